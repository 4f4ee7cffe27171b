"""Entries of a map column as separate columns: one buffer per feature with offsets and presence, not one dictionary per row.

DPP's raw tables keep features as `map<feature id, value>` (Zhao et al. 2022, section 3). Maps are split once per row group, for the
projected keys only, without a loop over rows: entries are sorted by key, so that the values of each key lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_TABLE_OF_KEYS = 1 << 20
"""Up to this range of keys, a key is found by a look-up in a table; above, by binary search."""


def map_entries(maps: pa.MapArray, keys: Sequence[int]) -> list[pa.Array]:
    """One array per key, as long as `maps`: the value in each row; null where the row lacks the key.

    Where a row has a key twice, the later entry counts, as in a Python dictionary, even if its value is null. A null value reads like a
    missing key. A key outside the range of the map's key type is in no row.
    """
    rows, slots, places = _selected(maps, keys)
    if pa.types.is_list(maps.type.item_type):
        return _lists(maps, rows, slots, places, len(keys))
    if pa.types.is_integer(maps.type.item_type) or pa.types.is_floating(maps.type.item_type):
        return _numbers(maps, rows, slots, places, len(keys))
    return _others(maps, rows, slots, places, len(keys))


def _selected(maps: pa.MapArray, keys: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The wanted entries, sorted by key and row: rows, positions of keys in `keys`, and places in `maps.items`."""
    offsets = maps.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    slots = key_slots(maps.keys.slice(first, last - first), keys)
    wanted = slots >= 0
    counts = np.diff(offsets)
    if maps.null_count:
        wanted &= np.repeat(maps.is_valid().to_numpy(zero_copy_only=False), counts)
    places = np.flatnonzero(wanted)
    slots = slots[places]
    rows = np.searchsorted(offsets, places + first, side="right") - 1 if len(places) * 8 < len(wanted) else _rows(counts)[places]
    by_key = np.argsort(slots.astype(np.int16) if len(keys) < 1 << 15 else slots, kind="stable")  # 16 bits: a radix sort
    rows, slots, places = rows[by_key], slots[by_key], places[by_key] + first
    again = (np.diff(rows) == 0) & (np.diff(slots) == 0)
    if again.any():
        kept = np.append(~again, True)
        rows, slots, places = rows[kept], slots[kept], places[kept]
    if maps.items.null_count:  # nulls are dropped last: a later null hides the value before it
        valid = maps.items.is_valid().to_numpy(zero_copy_only=False)[places]
        rows, slots, places = rows[valid], slots[valid], places[valid]
    return rows, slots, places


def key_slots(entry_keys: pa.Array, keys: Sequence[int]) -> npt.NDArray[np.int64]:
    """Position of each entry's key in `keys`, or -1. Keys of 64 unsigned bits are compared as the signed numbers with the same bits."""
    unsigned = pa.types.is_uint64(entry_keys.type)
    lowest, highest = (0, 2**64 - 1) if unsigned else (-(2**63), 2**63 - 1)
    held = [number for number, key in enumerate(keys) if lowest <= key <= highest]
    if not held:
        return np.full(len(entry_keys), -1, np.int64)
    there = entry_keys.to_numpy() if unsigned else pc.cast(entry_keys, pa.int64()).to_numpy()
    wanted = np.asarray([keys[number] for number in held], np.uint64 if unsigned else np.int64)
    slots = _slot_of(there.view(np.int64), wanted.view(np.int64))
    return slots if len(held) == len(keys) else np.where(slots >= 0, np.asarray(held, np.int64)[slots], -1)


def _rows(counts: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def _slot_of(entry_keys: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Position of each entry's key in `keys`, or -1. `keys` is not empty."""
    low, high = int(keys.min()), int(keys.max())
    if high - low < _TABLE_OF_KEYS and low > -(2**63) and high < 2**63 - 1:
        table = np.full(high - low + 3, -1, np.int64)  # the first and the last slot stand for all keys outside
        table[keys - low + 1] = np.arange(len(keys))
        return table[np.clip(entry_keys, low - 1, high + 1) - low + 1]
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys[order], entry_keys), len(keys) - 1)
    return np.where(keys[order][at] == entry_keys, order[at], -1)


def _presence(rows: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], keys: int, length: int) -> list[pa.Buffer]:
    present = np.zeros((keys, length), bool)
    present[slots, rows] = True
    packed = np.packbits(present, axis=1, bitorder="little")
    return [pa.py_buffer(row) for row in packed]


def _numbers(
    maps: pa.MapArray, rows: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], places: npt.NDArray[np.int64], keys: int
) -> list[pa.Array]:
    kind, items, length = maps.type.item_type, maps.items, len(maps)
    dtype = np.dtype(kind.to_pandas_dtype())
    values = np.frombuffer(items.buffers()[1], dtype)[items.offset :] if len(places) else np.empty(0, dtype)
    dense = np.zeros((keys, length), dtype)
    dense[slots, rows] = values[places]
    presence = _presence(rows, slots, keys, length)
    return [pa.Array.from_buffers(kind, length, [presence[key], pa.py_buffer(dense[key])]) for key in range(keys)]


def _lists(
    maps: pa.MapArray, rows: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], places: npt.NDArray[np.int64], keys: int
) -> list[pa.Array]:
    """Lists of each key. One `take` gathers the values of all keys; each key gets a slice."""
    gathered = maps.items.take(pa.array(places))
    lengths = np.zeros((keys, len(maps)), np.int32)
    lengths[slots, rows] = np.diff(gathered.offsets.to_numpy())
    offsets = np.zeros((keys, len(maps) + 1), np.int32)
    np.cumsum(lengths, axis=1, out=offsets[:, 1:])
    ends = np.cumsum(offsets[:, -1], dtype=np.int64)
    children = gathered.flatten()
    presence = _presence(rows, slots, keys, len(maps))
    return [
        pa.Array.from_buffers(
            maps.type.item_type,
            len(maps),
            [presence[key], pa.py_buffer(offsets[key])],
            children=[children.slice(int(ends[key]) - int(offsets[key, -1]), int(offsets[key, -1]))],
        )
        for key in range(keys)
    ]


def _others(
    maps: pa.MapArray, rows: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], places: npt.NDArray[np.int64], keys: int
) -> list[pa.Array]:
    """Values of any type: one `take` with a null index where a row lacks the key."""
    index, missing = np.zeros((keys, len(maps)), np.int64), np.ones((keys, len(maps)), bool)
    index[slots, rows], missing[slots, rows] = places, False
    return [maps.items.take(pa.array(index[key], mask=missing[key])) for key in range(keys)]
