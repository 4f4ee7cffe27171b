"""All-to-all of tensors of several widths in one buffer, asynchronously. A single rank exchanges nothing, and rounds nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tuneyard.ranking.tables.wire import Wire, decoded, encoded, refuse_unsupported

Counts = Sequence[Sequence[int]]
"""Number of rows to (or from) each rank, for each tensor."""


class Awaited:
    """The result of an exchange, available after `wait`."""

    def __init__(self, finish: Callable[[], list[torch.Tensor]]) -> None:
        self._finish: Callable[[], list[torch.Tensor]] | None = finish
        self._found: list[torch.Tensor] = []

    def wait(self) -> list[torch.Tensor]:
        """The tensors, with the rows of all ranks in the order of ranks."""
        if self._finish is not None:
            self._found, self._finish = self._finish(), None
        return self._found

    def only(self, at: int) -> Awaited:
        """One of the tensors."""
        return Awaited(lambda: [self.wait()[at]])


class Exchange:
    """All-to-all between the ranks of a process group. `group`: None for the default one, which a single rank does not need."""

    def __init__(self, ranks: int, group: Any = None, wire: Wire = "fp32") -> None:
        """`wire`: what vectors are sent as. Raises BadInput for a backend that cannot send it."""
        refuse_unsupported(wire, group)
        self.ranks, self._group, self._wire = ranks, group, wire

    def start_vectors(self, vectors: Sequence[torch.Tensor], to: Counts, from_: Counts) -> Awaited:
        """`start` for embeddings and gradients [rows, width] in fp32, which travel as `wire` says."""
        if self.ranks == 1 or self._wire == "fp32":
            return self.start(vectors, to, from_)
        sent = self.start([encoded(each, self._wire) for each in vectors], to, from_)
        widths = [each.shape[1] for each in vectors]
        return Awaited(lambda: [decoded(each, self._wire, width) for each, width in zip(sent.wait(), widths, strict=True)])

    def start(self, tensors: Sequence[torch.Tensor], to: Counts, from_: Counts) -> Awaited:
        """Send rows of `tensors`, all of one dtype, each ordered by destination rank."""
        if self.ranks == 1:
            return Awaited(lambda: list(tensors))
        widths = [tensor.shape[1:].numel() for tensor in tensors]
        buffer = tensors[0].reshape(-1) if len(tensors) == 1 else torch.cat(_by_rank(tensors, to))
        sent, received = ([sum(map(_product, zip(counts, widths, strict=True))) for counts in each] for each in (to, from_))
        arrived = buffer.new_empty(sum(received))
        work = dist.all_to_all_single(arrived, buffer.contiguous(), received, sent, group=self._group, async_op=True)
        shapes = [tensor.shape[1:] for tensor in tensors]

        def finish() -> list[torch.Tensor]:
            work.wait()
            return _by_tensor(arrived, from_, widths, shapes)

        return Awaited(finish)


def _by_rank(tensors: Sequence[torch.Tensor], counts: Counts) -> list[torch.Tensor]:
    """Slices in the order of the buffer: by rank, then by tensor."""
    cut = [torch.split(tensor, [of_rank[at] for of_rank in counts]) for at, tensor in enumerate(tensors)]
    return [part.reshape(-1) for of_rank in zip(*cut, strict=True) for part in of_rank]


def _by_tensor(buffer: torch.Tensor, counts: Counts, widths: Sequence[int], shapes: Sequence[Any]) -> list[torch.Tensor]:
    if len(widths) == 1:
        return [buffer.view(-1, *shapes[0])]
    parts = torch.split(buffer, [count * width for of_rank in counts for count, width in zip(of_rank, widths, strict=True)])
    return [torch.cat(parts[at :: len(widths)]).view(-1, *shape) for at, shape in enumerate(shapes)]


def _product(pair: tuple[int, int]) -> int:
    return pair[0] * pair[1]
