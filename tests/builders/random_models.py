"""Small models put together at random from what people write between two linears, right and wrong for sharding alike.

Each is an ordinary `nn.Module`: the plan is derived from its code alone, and must give the numbers of one process or leave it whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS, TOKENS, WIDTH, INNER, HEADS = 2, 6, 16, 32, 4
Between = Callable[["Feed", Tensor, Tensor], Tensor]
"""What a block does between its two linears: (block, hidden (ROWS, TOKENS, INNER), the block's own input) -> the same shape as hidden."""


class Square(torch.autograd.Function):
    """A custom function, elementwise."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradients[0]


class Centre(torch.autograd.Function):
    """A custom function that mixes features."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True)

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] - gradients[0].mean(-1, keepdim=True)


def _in_place_rows(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    h = h.clone()
    h[:, 0] = 0
    return h


def _in_place_features(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    h = h.clone()
    h[..., :3] = 0
    return h


def _half_of_view(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    h = h * 1.0
    h[..., : h.shape[-1] // 2].mul_(2)
    return h


def _heads(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    return h.view(*h.shape[:2], HEADS, -1).softmax(-1).flatten(2)


def _heads_by_width(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    return h.view(*h.shape[:2], -1, INNER // HEADS).softmax(-1).flatten(2)


def _across_heads(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    return h.view(*h.shape[:2], -1, INNER // HEADS).softmax(-2).flatten(2)


def _attention(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    q = h.view(*h.shape[:2], -1, INNER // HEADS).transpose(1, 2)
    return functional.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)


def _attention_by_hand(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    q = h.view(*h.shape[:2], -1, INNER // HEADS).transpose(1, 2)
    return ((q @ q.mT / q.shape[-1] ** 0.5).softmax(-1) @ q).transpose(1, 2).flatten(2)


def _one_head(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    return (h @ h.mT / h.shape[-1] ** 0.5).softmax(-1) @ h


def _repeated_half(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    half = h.view(*h.shape[:2], -1, INNER // HEADS)[:, :, ::2]
    return half.repeat_interleave(2, dim=2).flatten(2)


def _rotary(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    x = h.view(*h.shape[:2], -1, INNER // HEADS)
    a, b = x.chunk(2, dim=-1)
    angle = torch.arange(x.shape[1], device=h.device)[None, :, None, None] * 0.1
    return (x * angle.cos() + torch.cat([-b, a], dim=-1) * angle.sin()).flatten(2)


def _interleaved(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    return torch.stack([h[..., 1::2], h[..., ::2]], dim=-1).flatten(-2)


def _halves(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    a, b = h.chunk(2, dim=-1)
    return torch.cat([a * b.sigmoid(), b], dim=-1)


def _by_shape(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    return torch.relu(h) if h.shape[-1] > INNER // 2 else torch.tanh(h)


def _extra_step(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    for _step in range(h.shape[-1] // 8):
        h = h * 0.5
    return h


def _random(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    return h * torch.linspace(0, 1, h.shape[-1], device=h.device)


def _one_hot(_: Feed, h: Tensor, __: Tensor) -> Tensor:
    return h * functional.one_hot(torch.tensor([1], device=h.device), h.shape[-1])


BETWEEN: dict[str, Between] = {
    "relu": lambda _, h, __: torch.relu(h),
    "nothing": lambda _, h, __: h,
    "scaled by a number": lambda _, h, __: 0.3 * h + 0.1,
    "scaled by its width": lambda _, h, __: h * h.shape[-1] ** -0.5,
    "divided by its elements": lambda _, h, __: h / h[0, 0].numel(),
    "added its width": lambda _, h, __: h + h.size(-1) / 10,
    "clamped by its width": lambda _, h, __: h.clamp(max=1 / h.shape[-1]),
    "tensor of its width": lambda _, h, __: h * torch.tensor(1.0 / h.shape[-1]),
    "filled with its width": lambda _, h, __: h * torch.full((), 1.0 / h.shape[-1], device=h.device),
    "times its width": lambda _, h, __: h * h.shape[-1] / 8,
    "ones of its width": lambda _, h, __: h * h.new_ones(h.shape[-1]).sum() / 32,
    "last of its places": lambda _, h, __: h * torch.arange(h.shape[-1], device=h.device)[-1] / 32,
    "power of its width": lambda _, h, __: h.abs() ** (h.shape[-1] / INNER),
    "sum over features": lambda _, h, __: h.sum(-1, keepdim=True) / h.shape[-1] + h,
    "mean over features": lambda _, h, __: h - h.mean(-1, keepdim=True),
    "largest feature": lambda _, h, __: h - h.amax(-1, keepdim=True),
    "norm of features": lambda _, h, __: h / (1 + h.norm(dim=-1, keepdim=True)),
    "mean over everything": lambda _, h, __: h - h.mean(),
    "mean over tokens": lambda _, h, __: h - h.mean(1, keepdim=True),
    "running sum of tokens": lambda _, h, __: h.cumsum(1) / 4,
    "running sum of features": lambda _, h, __: h.cumsum(-1) / 8,
    "softmax of features": lambda _, h, __: h.softmax(-1),
    "softmax of tokens": lambda _, h, __: h.softmax(1),
    "flipped": lambda _, h, __: h.flip(-1),
    "rolled": lambda _, h, __: h.roll(1, -1),
    "rolled tokens": lambda _, h, __: h.roll(1, 1),
    "sorted": lambda _, h, __: h.sort(dim=-1).values,
    "top half": lambda _, h, __: torch.where(h >= h.median(-1, keepdim=True).values, h, 0 * h),
    "permuted": lambda block, h, __: h[..., block.order[: h.shape[-1]] % h.shape[-1]],
    "layer norm": lambda block, h, __: block.norm(h),
    "functional norm": lambda _, h, __: functional.layer_norm(h, h.shape[-1:]),
    "norm of heads": lambda block, h, __: block.head_norm(h.view(*h.shape[:2], -1, INNER // HEADS)).flatten(2),
    "group norm": lambda _, h, __: functional.group_norm(h.transpose(1, 2), 4).transpose(1, 2),
    "times a parameter": lambda block, h, __: h * block.scale,
    "times a scalar parameter": lambda block, h, __: h * block.scalar,
    "plus a buffer": lambda block, h, __: h + block.shift[: h.shape[-1]],
    "plus its input": lambda _, h, x: h + x.repeat(1, 1, 2)[..., : h.shape[-1]],
    "gated by its input": lambda _, h, x: h * x.mean(-1, keepdim=True).sigmoid(),
    "own function": lambda _, h, __: Square.apply(h),
    "own function over features": lambda _, h, __: Centre.apply(h),
    "own rows changed": _in_place_rows,
    "own features changed": _in_place_features,
    "half of a view changed": _half_of_view,
    "in place": lambda _, h, __: torch.relu_(h),
    "detached part": lambda _, h, __: h + h.detach() * 0.1,
    "in another precision": lambda _, h, __: h.float().tanh().to(h.dtype),
    "heads": _heads,
    "heads by width": _heads_by_width,
    "across heads": _across_heads,
    "attention": _attention,
    "attention by hand": _attention_by_hand,
    "one head": _one_head,
    "repeated half": _repeated_half,
    "rotary": _rotary,
    "interleaved": _interleaved,
    "halves": _halves,
    "another path by shape": _by_shape,
    "steps by shape": _extra_step,
    "places by width": _random,
    "one hot of its width": _one_hot,
    "merged tokens": lambda _, h, __: h.reshape(-1, h.shape[-1]).tanh().reshape(h.shape),
    "swapped": lambda _, h, __: h.transpose(1, 2).contiguous().view(h.shape),
    "fixed width": lambda _, h, __: h.view(-1, INNER).tanh().view(h.shape),
    "own weight again": lambda block, h, __: (
        h + functional.linear(block.first(h.sum(-1, keepdim=True).expand(-1, -1, WIDTH)), torch.eye(INNER))
    ),
    "first again": lambda block, h, x: h + block.first(x * 2),
    "weight read": lambda block, h, __: h * block.first.weight.norm(),
    "product with a parameter": lambda block, h, __: h @ block.square,
    "convolved over tokens": lambda block, h, __: block.depthwise(h.transpose(1, 2)).transpose(1, 2),
    "dropout": lambda _, h, __: functional.dropout(h, 0.5, training=False),
    "quantised": lambda _, h, __: (h * 8 / h.abs().max()).round() / 8 + h,
    "signs": lambda _, h, __: h * (h.sum(-1, keepdim=True) > 0.05),
    "batch matrix": lambda _, h, __: torch.bmm(h.mT @ h, h.mT).mT / 50,
    "einsum of features": lambda _, h, __: torch.einsum("btd,bte->bte", h, h) / 8,
    "einsum of tokens": lambda _, h, __: torch.einsum("btd,bsd->bsd", h, h) / 8,
    "unfolded": lambda _, h, __: h.unflatten(-1, (2, -1)).sum(-2).repeat(1, 1, 2),
    "folded": lambda _, h, __: h.unflatten(-1, (-1, 2)).sum(-1).repeat_interleave(2, dim=-1),
}


class Feed(nn.Module):
    """A linear, one of BETWEEN or several, and a linear back."""

    def __init__(self, names: list[str], *, bias: bool, residual: bool) -> None:
        super().__init__()
        self.names, self.residual = names, residual
        self.first, self.second = nn.Linear(WIDTH, INNER, bias=bias), nn.Linear(INNER, WIDTH, bias=bias)
        if "layer norm" in names:
            self.norm = nn.LayerNorm(INNER)
        if "norm of heads" in names:
            self.head_norm = nn.LayerNorm(INNER // HEADS)
        if "times a parameter" in names:
            self.scale = nn.Parameter(torch.linspace(0.5, 1.5, INNER))
        if "times a scalar parameter" in names:
            self.scalar = nn.Parameter(torch.tensor(0.7))
        if "product with a parameter" in names:
            self.square = nn.Parameter(torch.randn(INNER, INNER) / 6)
        if "convolved over tokens" in names:
            self.depthwise = nn.Conv1d(INNER, INNER, 3, padding=1, groups=INNER)
        self.register_buffer("shift", torch.linspace(-1, 1, INNER))
        self.register_buffer("order", torch.arange(INNER).flip(0))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for name in self.names:
            h = BETWEEN[name](self, h, x)
        y = self.second(h)
        return x + y if self.residual else y


class Random(nn.Module):
    """Blocks in a row; one may come twice, and two may share a weight."""

    def __init__(self, blocks: list[Feed], order: list[int], *, tied: bool) -> None:
        super().__init__()
        self.blocks, self.order = nn.ModuleList(blocks), order
        self.tied = tied and len(blocks) > 1
        if self.tied:
            blocks[1].first.weight = blocks[0].first.weight

    def forward(self, x: Tensor) -> Tensor:
        for index in self.order:
            x = self.blocks[index](x)
        return x


FITTING = (
    "relu",
    "scaled by a number",
    "softmax of tokens",
    "heads by width",
    "attention by hand",
    "norm of heads",
    "rotary",
    "folded",
    "repeated half",
)
"""Some of what pairs: most random models have these alone, so that a proof is tried and not only given up."""


def random_model(seed: int, names: list[str] | None = None) -> Random:
    """The model of a seed; `names`: one block that does exactly these between its linears."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    if names is not None:
        return Random([Feed(names, bias=True, residual=True)], [0], tied=False)
    blocks = []
    for _ in range(draw.choice([1, 2, 2, 3])):
        names = draw.choices(FITTING, k=draw.choice([1, 2, 3])) + (draw.choices(sorted(BETWEEN)) if draw.random() < 0.4 else [])
        draw.shuffle(names)
        blocks.append(Feed(names, bias=draw.random() < 0.6, residual=draw.random() < 0.7))
    order = list(range(len(blocks))) + ([draw.randrange(len(blocks))] if draw.random() < 0.2 else [])
    return Random(blocks, order, tied=draw.random() < 0.2)


def random_inputs(seed: int) -> dict[str, Tensor]:
    """The keyword arguments of one forward pass."""
    torch.manual_seed(seed + 1)
    return {"x": torch.randn(ROWS, TOKENS, WIDTH)}
