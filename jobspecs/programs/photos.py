"""Which shape a photo shows: a small convolutional network on random crops of images that data workers decode and resize."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

KINDS = ["square", "disc", "cross"]
SIDE = 24
"""Pixels of a crop; the short side of an image has more."""


def crop(row):
    """A square of the row's image at a random place that depends on the row alone: (3, SIDE, SIDE), 0 to 1."""
    draw = row.generator()
    top, left = (int(torch.randint(side - SIDE + 1, (), generator=draw)) for side in row["image"].shape[:2])
    return torch.from_numpy(row["image"][top : top + SIDE, left : left + SIDE]).permute(2, 0, 1) / 255


class Photos:
    def model(self):
        return nn.Sequential(
            *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(4, 32), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, len(KINDS))),
        )

    def collate(self, rows):
        return {"images": torch.stack([crop(row) for row in rows]), "kinds": torch.tensor([KINDS.index(row["kind"]) for row in rows])}

    def loss(self, model, batch):
        return cross_entropy(model(batch["images"]), batch["kinds"])

    def predict(self, model, batch):
        return [{"kind": KINDS[number]} for number in model(batch["images"]).argmax(-1).tolist()]

    def metrics(self, predictions, rows):
        right = [prediction["kind"] == row["kind"] for prediction, row in zip(predictions, rows, strict=True)]
        return {"accuracy": sum(right) / len(right)}
