"""Which adverts are clicked: embeddings, their pairwise products (factorization machine, Rendle 2010), and a small network on top."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

CATEGORIES = {"user": 100, "item": 50, "hour": 24}
WIDTH = 8


class ClickModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict({name: nn.Embedding(size, WIDTH) for name, size in CATEGORIES.items()})
        self.biases = nn.ModuleDict({name: nn.Embedding(size, 1) for name, size in CATEGORIES.items()})
        self.top = nn.Sequential(nn.Linear(len(CATEGORIES) * WIDTH + 1, 32), nn.ReLU(), nn.Linear(32, 1))
        for table in self.embeddings.values():
            nn.init.normal_(table.weight, std=0.1)
        for table in self.biases.values():
            nn.init.zeros_(table.weight)

    def forward(self, ids: torch.Tensor, price: torch.Tensor) -> torch.Tensor:
        """ids (rows, categories), price (rows,) -> logits (rows,)."""
        columns = list(zip(CATEGORIES, ids.unbind(1), strict=True))
        vectors = torch.stack([self.embeddings[name](column) for name, column in columns], dim=1)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        linear = sum(self.biases[name](column)[:, 0] for name, column in columns)
        return linear + pairs + self.top(torch.cat([vectors.flatten(1), price[:, None]], dim=1))[:, 0]


class Clicks:
    def model(self):
        return ClickModel()

    def collate(self, rows):
        return {
            "ids": torch.tensor([[row[name] for name in CATEGORIES] for row in rows]),
            "price": torch.tensor([row["price"] for row in rows]),
            "clicked": torch.tensor([float(row["clicked"]) for row in rows]),
        }

    def loss(self, model, batch):
        return cross_entropy(model(batch["ids"], batch["price"]), batch["clicked"])

    def predict(self, model, batch):
        probabilities = model(batch["ids"], batch["price"]).sigmoid()
        return [{"probability": float(each)} for each in probabilities]
