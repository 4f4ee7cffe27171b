"""Transformations that join or order lists of ids: union, sort_by_score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from tuneyard.api import BadInput
from tuneyard.api.transforms import MOST_UNITED
from tuneyard.data.tables.transforms.lists import Lists, is_list, starts_of
from tuneyard.data.tables.transforms.steps import Step, is_number, need

_ID_LISTS = "lists of whole numbers"


def _holds_ids(kind: pa.DataType) -> bool:
    return is_list(kind) and pa.types.is_integer(kind.value_type)


class Union(Step):
    """The ids of all lists of a row, each once, in the order in which they first appear: the first list, then the second, …

    A null list adds nothing. The output is null where all lists are null.
    """

    op: Literal["union"] = "union"
    takes: ClassVar[int] = 2
    most: ClassVar[int | None] = MOST_UNITED
    skips_nulls: ClassVar[bool] = True

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        for kind in kinds:
            need(kind, _ID_LISTS, _holds_ids(kind))
        return pa.list_(pa.int64())

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        lists = [Lists.of(array) for array in arrays]
        rows = np.concatenate([each.rows for each in lists])
        in_rows = np.argsort(rows, kind="stable")
        rows, values = rows[in_rows], np.concatenate([_ids(each.values) for each in lists])[in_rows]
        _, codes = np.unique(values, return_inverse=True)
        _, firsts = np.unique(rows * (int(codes.max(initial=0)) + 1) + codes, return_index=True)
        kept = np.zeros(len(values), bool)
        kept[firsts] = True
        lengths = np.bincount(rows[kept], minlength=len(lists[0]))
        some = [each.valid for each in lists if each.valid is not None]
        valid = np.logical_or.reduce(some) if len(some) == len(lists) else None
        return Lists(values[kept], starts_of(lengths), valid).to_arrow(pa.int64())


class SortByScore(Step):
    """The ids of the first list, those with the highest scores in the second list first; of these the first `count`.

    Ids of equal score keep their order. Ids whose score is null or NaN come last. A null id leaves the list with its score. The output is
    null where either list is null. Rows whose lists differ in length are refused.
    """

    op: Literal["sort_by_score"] = "sort_by_score"
    takes: ClassVar[int] = 2
    count: int | None = Field(default=None, ge=0)

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        need(kinds[0], f"{_ID_LISTS} first", _holds_ids(kinds[0]))
        need(kinds[1], "lists of numbers as scores", is_list(kinds[1]) and is_number(kinds[1].value_type))
        return pa.list_(pa.int64())

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        both = pc.and_(arrays[0].is_valid(), arrays[1].is_valid())
        ids, scores = (pc.if_else(both, array, pa.scalar(None, array.type)) for array in arrays)
        lengths = _lengths(ids)
        _refuse_unequal(lengths, _lengths(scores))
        rows = np.repeat(np.arange(len(ids)), lengths)
        kept = ids.flatten().is_valid().to_numpy(zero_copy_only=False)
        values = _ids(ids.flatten().drop_null().to_numpy(zero_copy_only=False))
        rows, ranks = rows[kept], _ranks(scores.flatten())[kept]
        # lexsort is stable: ids of equal rank keep their order.
        order = np.lexsort((ranks, rows))
        valid = both.to_numpy(zero_copy_only=False) if not pc.all(both).as_py() else None
        lists = Lists(values[order], starts_of(np.bincount(rows, minlength=len(ids))), valid)
        found = lists if self.count is None else lists.kept(lists.positions < self.count)
        return found.to_arrow(pa.int64())


def _ids(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Raises BadInput for ids beyond 64 bits with a sign, which would become other, negative ids."""
    if values.dtype == np.uint64 and len(values) and (most := int(values.max())) > np.iinfo(np.int64).max:
        raise BadInput(f"{most} is no id: ids are at most 2^63 - 1", "write such ids as texts, which sigrid_hash takes")
    return values.astype(np.int64)


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)).astype(np.int64)


def _refuse_unequal(ids: npt.NDArray[np.int64], scores: npt.NDArray[np.int64]) -> None:
    """Raises BadInput for rows whose lists differ in length."""
    if (unequal := ids != scores).any():
        row = int(unequal.argmax())
        raise BadInput(
            f"sort_by_score has {ids[row]:,} ids and {scores[row]:,} scores in row {row} of a batch of {len(ids):,} rows",
            "give each id a score; null is a score that is not known",
        )


def _ranks(scores: pa.Array) -> npt.NDArray[Any]:
    """Places in descending order of scores, equal for equal scores; NaN and null come last. Whole numbers are compared exactly."""
    if pa.types.is_floating(scores.type):
        scores = pc.if_else(pc.is_nan(scores), pa.scalar(None, scores.type), scores)
    known = scores.is_valid().to_numpy(zero_copy_only=False)
    _, ascending = np.unique(scores.drop_null().to_numpy(zero_copy_only=False), return_inverse=True)
    ranks = np.full(len(scores), 1, np.int64)
    ranks[known] = -ascending
    return ranks
