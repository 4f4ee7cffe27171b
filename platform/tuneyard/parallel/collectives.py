"""Differentiable collectives of a tensor-parallel group. The backward pass of each mirrors its forward pass (Megatron-LM's f and g).

| forward | backward | used for |
|---|---|---|
| `copied`: nothing | sum over the ranks | a whole tensor that meets shards |
| `summed`: sum over the ranks | nothing | summands |
| `gathered`: all ranks' slices | own slice | shards that are needed whole |
| `sliced`: own slice | all ranks' slices | a whole tensor that meets shards of its own layout |

Backward passes use the same functions, so they can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from tuneyard.parallel.shares import share_of


@dataclass(frozen=True, eq=False)
class TensorGroup:
    """The ranks that together hold one model: the process group, this rank's index in it, and its size."""

    process_group: Any
    rank: int
    size: int

    @classmethod
    def of(cls, process_group: Any) -> TensorGroup:
        return cls(process_group, dist.get_rank(process_group), dist.get_world_size(process_group))

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorGroup:
        return self  # a copied model stays in its group


def copied(x: torch.Tensor, group: TensorGroup) -> torch.Tensor:
    """`x` unchanged; its gradient is summed over the group."""
    return x if group.size == 1 or not _differentiated(x) else _apply(_Copied, x, group)


def summed(x: torch.Tensor, group: TensorGroup) -> torch.Tensor:
    """The sum of the ranks' tensors; each rank gets the gradient of the sum."""
    return x if group.size == 1 else _apply(_Summed, x, group)


def gathered(x: torch.Tensor, group: TensorGroup, dimension: int, size: int) -> torch.Tensor:
    """The ranks' slices of a dimension of `size` indices, joined. The gradient must be the same on all ranks."""
    return x if group.size == 1 else _apply(_Gathered, x, group, dimension % x.ndim, size)


def sliced(x: torch.Tensor, group: TensorGroup, dimension: int) -> torch.Tensor:
    """This rank's slice. Its gradient is joined from all ranks."""
    return x if group.size == 1 else _apply(_Sliced, x, group, dimension % x.ndim)


def all_slices(x: torch.Tensor, group: TensorGroup, dimension: int, widths: Sequence[int]) -> list[torch.Tensor]:
    """Each rank's slice, without gradient. `widths`: the size of `dimension` on each rank."""
    most = max(widths)
    own = x.detach()
    if own.shape[dimension] < most:
        own = torch.cat([own, own.new_zeros(_resized(own, dimension, most - own.shape[dimension]))], dimension)
    own = own.contiguous()
    parts = [torch.empty_like(own) for _ in widths]
    dist.all_gather(parts, own, group=group.process_group)
    return [part.narrow(dimension, 0, width) for part, width in zip(parts, widths, strict=True)]


def _joined(x: torch.Tensor, group: TensorGroup, dimension: int, size: int) -> torch.Tensor:
    widths = [share_of(size, group.size, rank)[1] for rank in range(group.size)]
    return torch.cat(all_slices(x, group, dimension, widths), dimension)


def _resized(x: torch.Tensor, dimension: int, size: int) -> tuple[int, ...]:
    return (*x.shape[:dimension], size, *x.shape[dimension + 1 :])


def _differentiated(x: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and bool(x.requires_grad)


def _apply(function: Any, *arguments: Any) -> torch.Tensor:
    result: torch.Tensor = function.apply(*arguments)
    return result


def _own(x: torch.Tensor, group: TensorGroup, dimension: int) -> torch.Tensor:
    own = x.narrow(dimension, *share_of(x.shape[dimension], group.size, group.rank))
    return own.clone(memory_format=torch.contiguous_format)  # never a view of `x`, which later code may change in place


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: TensorGroup) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return summed(gradient, ctx.group), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: TensorGroup) -> torch.Tensor:
        ctx.group = group
        total = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group.process_group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return copied(gradient, ctx.group), None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: TensorGroup, dimension: int, size: int) -> torch.Tensor:
        ctx.group, ctx.dimension = group, dimension
        return _joined(x, group, dimension, size)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return sliced(gradient, ctx.group, ctx.dimension), None, None, None


class _Sliced(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: TensorGroup, dimension: int) -> torch.Tensor:
        ctx.group, ctx.dimension, ctx.size = group, dimension, x.shape[dimension]
        return _own(x, group, dimension)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gathered(gradient, ctx.group, ctx.dimension, ctx.size), None, None
