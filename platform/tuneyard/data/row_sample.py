"""A random sample of row numbers that depends on the seed and the numbers alone.

Each row has a 64-bit key, a hash of seed and number. A share takes the rows whose key is below it, so that a larger share holds a smaller
one; a count takes the rows with the smallest keys (bottom-k sampling, Cohen and Kaplan 2007).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AT_ONCE = 1 << 20
"""Rows whose keys are in memory."""


def sampled_rows(rows: int, sample: float, seed: int) -> NDArray[np.int64]:
    """The numbers of the rows in a sample of `rows` rows, in order. `sample`: a share below 1, or else a number of rows."""
    import numpy as np

    kept, keys = np.empty(0, np.int64), np.empty(0, np.uint64)
    for first in range(0, rows, _AT_ONCE):
        numbers = np.arange(first, min(rows, first + _AT_ONCE), dtype=np.int64)
        new = row_keys(numbers, seed)
        if sample < 1:
            kept = np.concatenate([kept, numbers[new < np.uint64(int(sample * 2**64))]])
            continue
        kept, keys = np.concatenate([kept, numbers]), np.concatenate([keys, new])
        if len(kept) > int(sample):
            least = np.argpartition(keys, int(sample) - 1)[: int(sample)]
            kept, keys = kept[least], keys[least]
    return np.sort(kept)


def row_keys(numbers: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Independent, equally distributed keys of row numbers: splitmix64 (Steele et al. 2014), one stream for each seed."""
    import numpy as np

    (start,) = _mixed(np.array([seed], dtype=np.uint64)) if seed else (np.uint64(0),)
    return _mixed(numbers.astype(np.uint64) + start)


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    import numpy as np

    mixed = (state + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
