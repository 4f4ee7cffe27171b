"""Held-out samples for evaluation, chosen by content: a sample and its duplicates are always on the same side."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt


def held_out_items(hashes: npt.NDArray[np.uint64], fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """True for items whose hash, mixed with `seed`, falls into the first `fraction` of its range.

    The side of an item depends on its content alone, neither on order nor on other items. A data set that grows therefore moves no item.
    With two distinct items or more, at least one is held out and one is kept.
    """
    if fraction <= 0 or hashes.size == 0:
        return np.zeros(hashes.size, dtype=bool)
    unique, where = np.unique(hashes, return_inverse=True)
    mixed = np.asarray([_mixed(value.tobytes(), seed) for value in unique], dtype=np.uint64)
    chosen = mixed < _threshold(fraction)
    if unique.size > 1 and not chosen.any():
        chosen[mixed.argmin()] = True
    if unique.size > 1 and chosen.all():
        chosen[mixed.argmax()] = False
    held_out: npt.NDArray[np.bool_] = chosen[where]
    return held_out


def held_out_by_hash(hashes: npt.NDArray[np.uint64], fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """As `held_out_items`, for a part of a data set: each item by itself, so all items or none may be held out."""
    if fraction <= 0 or hashes.size == 0:
        return np.zeros(hashes.size, dtype=bool)
    unique, where = np.unique(hashes, return_inverse=True)
    mixed = np.asarray([_mixed(value.tobytes(), seed) for value in unique], dtype=np.uint64)
    held_out: npt.NDArray[np.bool_] = (mixed < _threshold(fraction))[where]
    return held_out


def _threshold(fraction: float) -> np.uint64:
    return np.uint64(min(int(fraction * 2**64), 2**64 - 1))


def _mixed(value: bytes, seed: int) -> int:
    return int.from_bytes(blake2b(value, digest_size=8, salt=seed.to_bytes(16, "little")).digest(), "little")
