"""Transformations of sparse features (Zhao et al. 2022, table 11): SigridHash, PositiveModulus, MapId, FirstX, Enumerate, NGram, Cartesian,
IdListTransform, ComputeScore.

Ids are whole numbers, single or in lists. SigridHash and Cartesian also take texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from tuneyard.api import BadInput
from tuneyard.data.tables.transforms.hashing import Hashes, as_ids, below, combine, mix
from tuneyard.data.tables.transforms.lists import Lists, is_list, item_type, starts_of
from tuneyard.data.tables.transforms.steps import Step, each, is_id, is_number, like, need

_IDS = "whole numbers, or lists of them"
_INT64_SIZE = 1 << 63
MOST_PAIRS = 1_000_000
_MOST_PAIRS_OF_BATCH = 250_000_000
"""Maximum number of pairs in a batch: 2 GB of ids."""
_PAIRS_AT_ONCE = 1 << 22


class _Ids(Step):
    """A function of each id."""

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        need(kinds[0], _IDS, pa.types.is_integer(item_type(kinds[0])))
        return like(kinds[0], pa.int64())


class _IdLists(Step):
    """A function of lists of ids."""

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        for kind in kinds:
            need(kind, "lists of whole numbers", is_list(kind) and pa.types.is_integer(kind.value_type))
        return pa.list_(pa.int64())


class SigridHash(Step):
    """A hash of each id in [0, `table_size`): the row of an embedding table."""

    op: Literal["sigrid_hash"] = "sigrid_hash"
    table_size: int = Field(ge=1, lt=_INT64_SIZE)
    seed: int = Field(default=0, ge=0)

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        need(kinds[0], f"texts, {_IDS}", is_id(kinds[0]) or pa.types.is_integer(item_type(kinds[0])))
        return like(kinds[0], pa.int64())

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return each(as_ids(arrays[0]), pa.int64(), lambda ids: below(mix(ids, self.seed), self.table_size))


class PositiveModulus(_Ids):
    """The remainder of a division by `modulus`, at least 0 even for negative ids."""

    op: Literal["positive_modulus"] = "positive_modulus"
    modulus: int = Field(ge=1, lt=_INT64_SIZE)

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return each(arrays[0], pa.int64(), self._remainders)

    def _remainders(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        whole = ids if ids.dtype == np.uint64 else ids.astype(np.int64)
        remainders: npt.NDArray[np.int64] = np.mod(whole, whole.dtype.type(self.modulus)).astype(np.int64)
        return remainders


class MapId(_Ids):
    """Each id replaced by `mapping`; other ids become `default`."""

    op: Literal["map_id"] = "map_id"
    mapping: dict[int, int] = Field(min_length=1)
    default: int = 0

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        keys = np.array(sorted(self.mapping), np.int64)
        return keys, np.array([self.mapping[int(key)] for key in keys], np.int64)

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        keys, mapped = self._sorted

        def kernel(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            at = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
            return np.where(keys[at] == ids, mapped[at], self.default)

        return each(arrays[0], pa.int64(), kernel)


class FirstX(_IdLists):
    """The first `count` ids of each list."""

    op: Literal["first_x"] = "first_x"
    count: int = Field(ge=0)

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        lists = Lists.of(arrays[0])
        return lists.kept(lists.positions < self.count).to_arrow(pa.int64())


class Enumerate(_IdLists):
    """The position of each id in its list, from 0."""

    op: Literal["enumerate"] = "enumerate"

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        lists = Lists.of(arrays[0])
        return lists.with_values(lists.positions).to_arrow(pa.int64())


class NGram(_IdLists):
    """A hash below `table_size` of each run of `length` consecutive ids; none for shorter lists."""

    op: Literal["n_gram"] = "n_gram"
    length: int = Field(ge=1, le=64)
    table_size: int = Field(ge=1, lt=_INT64_SIZE)
    seed: int = Field(default=0, ge=0)

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        lists = Lists.of(arrays[0])
        single = mix(lists.values, self.seed)
        starts = np.flatnonzero(lists.positions + self.length <= np.repeat(lists.lengths, lists.lengths))
        hashes = single[starts]
        for step in range(1, self.length):
            hashes = combine(hashes, single[starts + step])
        offsets = starts_of(np.maximum(lists.lengths - self.length + 1, 0))
        return Lists(below(hashes, self.table_size), offsets, lists.valid).to_arrow(pa.int64())


class Cartesian(Step):
    """A hash below `table_size` of each pair of an id of the first feature and an id of the second; the second changes fastest.

    A single id or text counts as a list of one. The output is null where either input is null. Rows with more than a million pairs are
    refused.
    """

    op: Literal["cartesian"] = "cartesian"
    takes: ClassVar[int] = 2
    table_size: int = Field(ge=1, lt=_INT64_SIZE)
    seed: int = Field(default=0, ge=0)

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        for kind in kinds:
            need(kind, f"texts, {_IDS}", is_id(kind) or pa.types.is_integer(item_type(kind)))
        return pa.list_(pa.int64())

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        first, second = (_as_lists(array) for array in arrays)
        left: Hashes = mix(first.values, self.seed)
        right: Hashes = mix(second.values, self.seed)
        offsets = _pairs(first, second)
        made, row = np.empty(int(offsets[-1]), np.int64), 0
        while row < len(first):
            end = max(row + 1, int(np.searchsorted(offsets, offsets[row] + _PAIRS_AT_ONCE, side="right")) - 1)
            lengths = first.lengths[row:end]
            times = np.repeat(second.lengths[row:end], lengths)  # number of pairs per id of the first list
            of_first = first.offsets[row] + np.repeat(np.arange(len(times)), times)
            of_second = np.repeat(np.repeat(second.offsets[row:end], lengths), times) + _counted(times)
            made[offsets[row] : offsets[end]] = below(combine(left[of_first], right[of_second]), self.table_size)
            row = end
        valid = None
        if first.valid is not None or second.valid is not None:
            valid = np.ones(len(first), bool)
            for one in (first.valid, second.valid):
                valid &= one if one is not None else True
        return Lists(made, offsets, valid).to_arrow(pa.int64())


class IdListTransform(_IdLists):
    """The ids of the first list that are in the second list of the same row, in the order of the first. Null where either is null."""

    op: Literal["id_list_transform"] = "id_list_transform"
    takes: ClassVar[int] = 2

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        first, second = Lists.of(arrays[0]), Lists.of(arrays[1])
        _, codes = np.unique(np.concatenate([first.values, second.values]), return_inverse=True)
        width = int(codes.max(initial=0)) + 1
        keys = np.concatenate([first.rows, second.rows]) * width + codes
        found = first.kept(np.isin(keys[: len(first.values)], keys[len(first.values) :]))
        if second.valid is not None:
            found = Lists(found.values, found.offsets, second.valid if first.valid is None else first.valid & second.valid)
        return found.to_arrow(pa.int64())


class ComputeScore(Step):
    """Scores of ids, a map<id, score>: `scale` * score ^ `power` + `bias`. Ids and their order are kept; null scores stay null."""

    op: Literal["compute_score"] = "compute_score"
    scale: float = 1.0
    power: float = 1.0
    bias: float = 0.0

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        kind = kinds[0]
        need(kind, "a map of scores by id", pa.types.is_map(kind) and is_number(kind.item_type))
        return pa.map_(kind.key_type, pa.float64())

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        maps = arrays[0]
        offsets = maps.offsets.to_numpy()
        first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
        items = maps.items.slice(first, size)
        with np.errstate(invalid="ignore", divide="ignore"):
            scores = each(items, pa.float64(), lambda values: self.scale * np.power(values.astype(np.float64), self.power) + self.bias)
        mask = {"mask": maps.is_null()} if maps.null_count else {}
        kind = pa.map_(maps.type.key_type, pa.float64())
        return pa.MapArray.from_arrays(pa.array(offsets - first), maps.keys.slice(first, size), scores, type=kind, **mask)


def _as_lists(array: pa.Array) -> Lists:
    if is_list(array.type):
        return Lists.of(array)
    ids = as_ids(array)
    valid = ids.is_valid().to_numpy(zero_copy_only=False) if ids.null_count else None
    lengths = np.ones(len(ids), np.int64) if valid is None else valid.astype(np.int64)
    return Lists(ids.drop_null().to_numpy(zero_copy_only=False), starts_of(lengths), valid)


def _pairs(first: Lists, second: Lists) -> npt.NDArray[np.int64]:
    """The offset of the pairs of each row. Raises BadInput for too many pairs in a row or a batch."""
    pairs = first.lengths * second.lengths
    most, total = int(pairs.max(initial=0)), int(pairs.sum())
    if most > MOST_PAIRS or total > _MOST_PAIRS_OF_BATCH:
        raise BadInput(
            f"a cartesian has {most:,} pairs in row {int(pairs.argmax())} of a batch of {len(pairs):,} rows, and {total:,} in all rows",
            f"shorten the lists by first_x: a row may have {MOST_PAIRS:,} pairs, a batch {_MOST_PAIRS_OF_BATCH:,}",
        )
    return starts_of(pairs)


def _counted(times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0, 1, …, n - 1 for each n of `times`."""
    return np.arange(int(times.sum()), dtype=np.int64) - np.repeat(np.cumsum(times) - times, times)
