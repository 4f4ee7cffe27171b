"""What a ranker asks of its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch


class Tables(Protocol):
    """A module that finds the embeddings of a batch: one tensor for each sparse feature, in the order of the config.

    Of a bag [rows, width]: the mean or sum of its ids' embeddings, zeros without ids. Of a sequence [rows, length, width]: the embeddings
    of its last ids, the last one first; the rest is zeros.
    """

    def begin(self, batch: Mapping[str, torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        """Start to find them; the returned function waits for them. What needs no embeddings is computed in between."""
        ...
