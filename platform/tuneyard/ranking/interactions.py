"""The interaction modules of DHEN (Zhang et al. 2022, section 3.2). Each can be used alone.

Every module maps embeddings [rows, inputs, width] to embeddings [rows, outputs, width].
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from tuneyard.ranking.config import Interaction

_COMPRESSED = 8
"""Mixtures that AdvancedDLRM multiplies with all embeddings: the number of products is linear in the number of features, not quadratic."""
_RANK = 64
"""Rank of the two factors of DCN's matrix (Wang et al. 2021, section 3.3; they need a quarter of the matrix's size)."""
_CHANNELS, _KERNEL = 8, 3
_HEADS = 2
_EXPERTS = 4


class Mixing(nn.Module):  # type: ignore[misc]
    """A linear map over the embeddings: [rows, inputs, width] -> [rows, outputs, width]. The module `linear`; others end with it.

    Each row has its own product: one product over all rows would need two transpositions of the embeddings, which takes longer.
    """

    def __init__(self, inputs: int, outputs: int, width: int) -> None:  # noqa: ARG002 - as all interactions
        super().__init__()
        self.map = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, width = x.shape[0], x.shape[2]
        bias = self.map.bias.view(1, -1, 1).expand(rows, -1, width)
        return torch.baddbmm(bias, self.map.weight.unsqueeze(0).expand(rows, -1, -1), x)


class AdvancedDLRM(nn.Module):  # type: ignore[misc]
    """Dot products of all embeddings with a few mixtures of them, and a network on the products (Naumov et al. 2019).

    The products are not normalised: that would hide their overall size from the network.
    """

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        compressed = min(inputs, _COMPRESSED)
        self.outputs, self.width = outputs, width
        self.compress = Mixing(inputs, compressed, width)
        hidden = max(width, outputs * width // 2)
        self.network = nn.Sequential(nn.Linear(inputs * compressed, hidden), nn.ReLU(), nn.Linear(hidden, outputs * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        products = torch.bmm(x, self.compress(x).transpose(1, 2)).flatten(1)
        made: torch.Tensor = self.network(products)
        return made.view(-1, self.outputs, self.width)


class SelfAttention(nn.Module):  # type: ignore[misc]
    """A layer of a transformer's encoder over the embeddings, without positions (Vaswani et al. 2017)."""

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        heads = _HEADS if width % _HEADS == 0 else 1
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm, self.final_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.mix = Mixing(inputs, outputs, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended, _ = self.attention(x, x, x, need_weights=False)
        x = self.norm(x + attended)
        made: torch.Tensor = self.mix(self.final_norm(x + self.network(x)))
        return made


class Convolution(nn.Module):  # type: ignore[misc]
    """Two-dimensional convolutions over embeddings and their elements, as over a picture."""

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, _CHANNELS, _KERNEL, padding=_KERNEL // 2), nn.ReLU(), nn.Conv2d(_CHANNELS, 1, _KERNEL, padding=_KERNEL // 2)
        )
        self.mix = Mixing(inputs, outputs, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.mix(self.layers(x.unsqueeze(1)).squeeze(1))
        return made


class CrossNetwork(nn.Module):  # type: ignore[misc]
    """DCN-v2: x * (U V x + b) + x over all embeddings as one vector (Wang et al. 2021, equation 1 with section 3.3)."""

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        size = inputs * width
        rank = min(_RANK, size)
        self.down, self.up = nn.Linear(size, rank, bias=False), nn.Linear(rank, size)
        self.mix = Mixing(inputs, outputs, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        crossed = flat * self.up(self.down(flat)) + flat
        made: torch.Tensor = self.mix(crossed.view_as(x))
        return made


class Experts(nn.Module):  # type: ignore[misc]
    """A mixture of experts: several AdvancedDLRM, whose embeddings each row adds with weights of its own (Jacobs et al. 1991).

    All experts compute all rows. DHEN is compared with such mixtures.
    """

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(AdvancedDLRM(inputs, outputs, width) for _ in range(_EXPERTS))
        self.gate = nn.Linear(inputs * width, _EXPERTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = self.gate(x.flatten(1)).softmax(-1)
        made = torch.stack([expert(x) for expert in self.experts], dim=1)
        mixed: torch.Tensor = torch.bmm(shares.unsqueeze(1), made.flatten(2))
        return mixed.view(-1, made.shape[2], made.shape[3])


MODULES: Mapping[Interaction, type[nn.Module]] = {
    "dlrm": AdvancedDLRM,
    "attention": SelfAttention,
    "convolution": Convolution,
    "linear": Mixing,
    "dcn": CrossNetwork,
    "experts": Experts,
}
