"""Exchanges between the ranks of a context group: tokens for heads and back, each with its gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

Group = Any
"""A torch.distributed process group."""


def heads_for_tokens(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """(rows, heads, tokens of a slice, width), all heads -> (rows, heads / ranks, tokens of the row, width), all tokens."""
    exchanged: torch.Tensor = _Exchange.apply(tensor, group, True)
    return exchanged


def tokens_for_heads(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """The inverse of `heads_for_tokens`."""
    exchanged: torch.Tensor = _Exchange.apply(tensor, group, False)
    return exchanged


def gathered_tokens(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """(rows, tokens of a slice, ...) -> (rows, tokens of the row, ...), on every rank of the group.

    Every rank must compute the same from the result. The gradient of a rank's own slice is then the same on all ranks, and their sum is
    that gradient times the number of ranks: nothing is sent.
    """
    gathered: torch.Tensor = _Gather.apply(tensor, group)
    return gathered


def summed_slices(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """The sum over the ranks, on every rank of the group. Every rank must compute the same from it. As for `gathered_tokens`, the gradient
    of a rank's own part is multiplied by the number of ranks, and nothing is sent.
    """
    total: torch.Tensor = _Sum.apply(tensor, group)
    return total


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group, to_heads: bool) -> torch.Tensor:
        ctx.group, ctx.to_heads = group, to_heads
        return _exchanged(tensor, group, to_heads=to_heads)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _exchanged(gradients[0], ctx.group, to_heads=not ctx.to_heads), None, None


def _exchanged(tensor: torch.Tensor, group: Group, *, to_heads: bool) -> torch.Tensor:
    """One all-to-all. Block i of a rank's tensor is for rank i: a block of heads on the way to attention, of tokens on the way back."""
    ranks = dist.get_world_size(group)
    cut, joined = (1, 2) if to_heads else (2, 1)
    sent = torch.stack(tensor.chunk(ranks, dim=cut))
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return torch.cat(received.unbind(), dim=joined)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group, ctx.tokens = group, tensor.shape[1]
        ranks = dist.get_world_size(group)
        sent = tensor.contiguous()
        received = torch.empty((ranks, *sent.shape), dtype=sent.dtype, device=sent.device)
        dist.all_gather_into_tensor(received.view(ranks * sent.shape[0], *sent.shape[1:]), sent, group=group)
        return torch.cat(received.unbind(), dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        own = gradients[0].narrow(1, dist.get_rank(ctx.group) * ctx.tokens, ctx.tokens)
        return own * dist.get_world_size(ctx.group), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        total = tensor.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] * dist.get_world_size(ctx.group), None
