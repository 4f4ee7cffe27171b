"""Federated averaging (McMahan et al. 2017): each row is a client. It learns alone for some steps; a step averages their weights."""

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

LOCAL_STEPS, LOCAL_RATE, PAD = 5, 0.5, -100


class Federated:
    def model(self):
        return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))

    def collate(self, rows):
        points = pad_sequence([torch.tensor(row["points"]) for row in rows], batch_first=True)
        kinds = pad_sequence([torch.tensor(row["kinds"]) for row in rows], batch_first=True, padding_value=PAD)
        return {"points": points, "kinds": kinds, "count": (kinds != PAD).sum()}  # clients count by the size of their data

    def loss(self, model, batch):
        """With `sgd` at a learning rate of 1, its gradient, the mean of what clients move from the start, takes a step to their mean."""
        start, total = dict(model.named_parameters()), 0.0
        for points, kinds in zip(batch["points"], batch["kinds"], strict=True):
            weights = {name: each.detach().requires_grad_() for name, each in start.items()}
            for _ in range(LOCAL_STEPS):
                error = cross_entropy(functional_call(model, weights, points), kinds, ignore_index=PAD)
                slopes = torch.autograd.grad(error, list(weights.values()))
                weights = {
                    name: (each - LOCAL_RATE * slope).detach().requires_grad_()
                    for (name, each), slope in zip(weights.items(), slopes, strict=True)
                }
            moved = sum(((start[name] - weights[name]).detach() * start[name]).sum() for name in start)
            total = total + (kinds != PAD).sum() * (moved - moved.detach() + error.detach())
        return total / batch["count"]

    def predict(self, model, batch):
        right = model(batch["points"]).argmax(-1) == batch["kinds"]
        return [{"right": int(each.sum())} for each in right]

    def metrics(self, predictions, rows):
        return {"accuracy": sum(each["right"] for each in predictions) / sum(len(row["kinds"]) for row in rows)}
