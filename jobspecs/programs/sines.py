"""Learning to learn (MAML, Finn et al. 2017): weights from which two steps on five points fit a sine. Each row is a task."""

import torch
from torch import nn
from torch.func import functional_call

SHOTS, QUERIES, INNER_RATE, INNER_STEPS = 5, 10, 0.1, 2


class Sines:
    def model(self):
        return nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))

    def collate(self, rows):
        draws = [torch.rand(SHOTS + QUERIES, 1, generator=row.generator()) * 10 - 5 for row in rows]
        points = torch.stack(draws)
        amplitude = torch.tensor([row["amplitude"] for row in rows])[:, None, None]
        phase = torch.tensor([row["phase"] for row in rows])[:, None, None]
        return {"points": points, "values": amplitude * torch.sin(points - phase)}

    def loss(self, model, batch):
        return torch.stack([self._error(model, *task) for task in zip(batch["points"], batch["values"], strict=True)]).mean()

    def predict(self, model, batch):
        with torch.enable_grad():  # predicting means to learn from the five points first
            errors = [self._error(model, *task) for task in zip(batch["points"], batch["values"], strict=True)]
        return [{"error_after_adapting": float(error)} for error in errors]

    def _error(self, model, points, values):
        """Error on the queries after learning from the shots. The graph of the inner steps is kept: the gradient goes through them."""
        weights = dict(model.named_parameters())
        for _ in range(INNER_STEPS):
            error = nn.functional.mse_loss(functional_call(model, weights, points[:SHOTS]), values[:SHOTS])
            gradients = torch.autograd.grad(error, list(weights.values()), create_graph=True)
            weights = {name: each - INNER_RATE * slope for (name, each), slope in zip(weights.items(), gradients, strict=True)}
        return nn.functional.mse_loss(functional_call(model, weights, points[SHOTS:]), values[SHOTS:])
