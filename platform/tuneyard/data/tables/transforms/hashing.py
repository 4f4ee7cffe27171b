"""Hashes of ids: seeded, vectorised, and equal on every platform and in every release.

`mix` is the finalizer of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"), on 64-bit integers with
wrap-around. Texts are hashed by xxh3 first, each distinct text once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

Hashes = npt.NDArray[np.uint64]
_GOLDEN = 0x9E3779B97F4A7C15


def mix(values: npt.NDArray[Any], seed: int) -> Hashes:
    """A hash of each 64-bit whole number."""
    start = (seed * _GOLDEN + _GOLDEN) % (1 << 64)
    mixed = values.astype(np.int64).view(np.uint64) + np.uint64(start)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def combine(first: Hashes, second: Hashes) -> Hashes:
    """A hash of an ordered pair of hashes."""
    return mix((first * np.uint64(3) + second).view(np.int64), 1)


def below(hashes: Hashes, size: int) -> npt.NDArray[np.int64]:
    """Hashes as ids in [0, `size`)."""
    return (hashes % np.uint64(size)).astype(np.int64)


def as_ids(array: pa.Array) -> pa.Array:
    """Texts as 64-bit ids; whole numbers unchanged. Nulls stay null."""
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or pa.types.is_dictionary(array.type)):
        return array
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    ids = np.array([xxhash.xxh3_64_intdigest(text.encode()) for text in coded.dictionary.to_pylist()], np.uint64).view(np.int64)
    return pa.array(ids).take(coded.indices)
