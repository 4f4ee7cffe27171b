"""The mesh of a task's ranks: data x context x tensor. It defines which ranks share a model, and which share rows. Pure: no process group,
no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.api import BadInput


@dataclass(frozen=True)
class Place:
    """A rank's index along each axis of its mesh."""

    data: int
    context: int
    tensor: int


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """`data * context * tensor` ranks. Neighbours in rank order share a tensor group, then a context group, so that the groups with the
    most traffic are inside one host: rank = (data index * context + context index) * tensor + tensor index.
    """

    data: int
    context: int = 1
    tensor: int = 1

    @classmethod
    def over(cls, workers: int, *, context: int = 1, tensor: int = 1) -> Mesh:
        """The mesh of `workers` ranks. Raises BadInput if they do not form a whole number of replicas."""
        replicas, rest = divmod(workers, context * tensor)
        if rest or not replicas:
            raise BadInput(
                f"{workers} workers make no whole number of groups of {context * tensor} "
                f"(contextParallel {context} x tensorParallel {tensor})",
                f"set resources.workers to a multiple of {context * tensor}",
            )
        return cls(data=replicas, context=context, tensor=tensor)

    @property
    def size(self) -> int:
        return self.data * self.context * self.tensor

    def place(self, rank: int) -> Place:
        replica, tensor = divmod(rank, self.tensor)
        data, context = divmod(replica, self.context)
        return Place(data, context, tensor)

    def rank(self, place: Place) -> int:
        return (place.data * self.context + place.context) * self.tensor + place.tensor

    def tensor_groups(self) -> list[list[int]]:
        """Ranks that share each weight."""
        return [list(range(first, first + self.tensor)) for first in range(0, self.size, self.tensor)]

    def context_groups(self) -> list[list[int]]:
        """Ranks that share each row, and hold the same weights."""
        replica = self.context * self.tensor
        return [
            list(range(base + tensor, base + replica, self.tensor))
            for base in range(0, self.size, replica)
            for tensor in range(self.tensor)
        ]

    def gradient_groups(self) -> list[list[int]]:
        """Ranks that hold the same weights. Gradients are summed, and ZeRO shards, over these."""
        return [list(range(tensor, self.size, self.tensor)) for tensor in range(self.tensor)]
