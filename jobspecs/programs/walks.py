"""Learning by trying (REINFORCE, Williams 1992): a policy finds its way over a field of 5 x 5. Each row is a start and a goal."""

import torch
from torch import nn
from torch.nn.functional import one_hot

SIDE, STEPS, TRIES = 5, 8, 4
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Walks:
    def model(self):
        return nn.Sequential(nn.Linear(4 * SIDE, 64), nn.Tanh(), nn.Linear(64, len(MOVES)))

    def collate(self, rows):
        draws = [torch.rand(TRIES, STEPS, len(MOVES), generator=row.generator()) for row in rows]
        return {"places": torch.tensor([row["places"] for row in rows]), "noise": -torch.log(-torch.log(torch.stack(draws)))}

    def rollout(self, model, batch):
        """Some walks for each row, by moves that the policy draws: the noise makes its likeliest move one at random (Gumbel)."""
        seen, moves, left = self._walk(model, batch["places"][:, None].expand(-1, TRIES, -1, -1), batch["noise"])
        gains = -left.flip(-1).cumsum(-1).flip(-1).float()  # of each move: the distances from the goal after it
        return {"seen": seen, "moves": moves, "advantage": gains - gains.mean(1, keepdim=True)}

    def loss(self, model, batch):
        said = model(batch["seen"]).log_softmax(-1).gather(-1, batch["moves"][..., None])[..., 0]
        return -(said * batch["advantage"]).mean()

    def predict(self, model, batch):
        _, _, left = self._walk(model, batch["places"], torch.zeros(len(batch["places"]), STEPS, len(MOVES)))
        return [{"distance": int(each)} for each in left[:, -1]]

    def metrics(self, predictions, rows):
        return {"arrived": sum(each["distance"] == 0 for each in predictions) / len(rows)}

    def _walk(self, model, places, noise):
        """What is seen, the move, and the distance after it, at each step: (..., steps)."""
        found, (here, goal) = [], places.unbind(-2)
        for step in range(STEPS):
            seen = one_hot(torch.cat([here, goal], -1), SIDE).flatten(-2).float()
            move = (model(seen) + noise[..., step, :].to(seen.device)).argmax(-1)
            here = (here + MOVES.to(seen.device)[move]).clamp(0, SIDE - 1)
            found.append((seen, move, (here - goal).abs().sum(-1)))
        return [torch.stack(each, places.dim() - 2) for each in zip(*found, strict=True)]
