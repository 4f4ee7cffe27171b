"""The interface of a ranker's tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch


class Tables(Protocol):
    """A module that looks up the embeddings of a batch: one tensor for each sparse feature, in the order of the config.

    A bag gives [rows, width]: the mean or sum of its ids' embeddings, zeros without ids. A sequence gives [rows, length, width]: the
    embeddings of its last ids, the last one first, padded with zeros.
    """

    def begin(self, batch: Mapping[str, torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        """Start the look-up. The returned function waits for it. Work that needs no embeddings runs in between."""
        ...
