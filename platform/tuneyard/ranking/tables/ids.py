"""Ids of a batch as rows of tables: ids are hashed into their table, and only the last ids of a sequence count."""

from __future__ import annotations

import torch

_SPREAD = -7046029254386353131
"""SplitMix64's increment (Steele et al. 2014) as a signed number: its multiples are spread over 64 bits."""
_SHIFT = 24


def hashed(ids: torch.Tensor, rows: int | torch.Tensor) -> torch.Tensor:
    """Ids within a table. Ids outside of it are hashed into it, the same on every machine; the others are unchanged.

    `rows`: of the table, or of each id's table [ids].
    """
    mixed = ids * _SPREAD
    mixed = torch.bitwise_xor(mixed, torch.bitwise_right_shift(mixed, _SHIFT)) * _SPREAD
    return torch.where((ids >= 0) & (ids < rows), ids, torch.remainder(torch.bitwise_right_shift(mixed, _SHIFT), rows))


def last_places(offsets: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Places [rows, length] of the last `length` ids of each row, the last one first, and a mask of the places with an id."""
    back = torch.arange(length, device=offsets.device)
    places = offsets[1:, None] - 1 - back
    return places, places >= offsets[:-1, None]
