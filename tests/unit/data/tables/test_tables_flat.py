"""Flat buffers: entries of maps become columns equal to a look-up per row, and tensors share the batch's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.data.tables import flat
from tuneyard.data.tables.map_entries import map_entries

KEYS = {
    "int64": st.integers(-3, 12) | st.sampled_from([10**12, -(10**12), 2**63 - 1, -(2**63)]),
    "uint64": st.integers(0, 12) | st.sampled_from([2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]),
    "int8": st.integers(-3, 12),
}
ASKED = st.one_of(*KEYS.values()) | st.just(2**64)
ITEMS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "floats": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "whole numbers": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "lists": (pa.list_(pa.int64()), st.lists(st.integers(0, 99) | st.none(), max_size=4)),
    "texts": (pa.string(), st.text(max_size=3)),
    "lists of lists": (pa.list_(pa.list_(pa.int8())), st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2)),
}


@pytest.mark.parametrize("kind", ITEMS)
@pytest.mark.parametrize("key_type", KEYS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_entries_are_what_a_look_up_in_each_row_gives(key_type: str, kind: str, data: st.DataObject) -> None:
    item_type, items = ITEMS[kind]
    pairs = st.lists(st.tuples(KEYS[key_type], items | st.none()), max_size=6)  # a key may come twice, a value may be null
    rows = data.draw(st.lists(pairs | st.none(), max_size=12))
    keys = data.draw(st.lists(ASKED, min_size=1, max_size=5, unique=True))
    cut = data.draw(st.integers(0, len(rows)))
    maps = pa.array(rows, pa.map_(pa.type_for_alias(key_type), item_type)).slice(cut)
    found = map_entries(maps, keys)
    for key, array in zip(keys, found, strict=True):
        array.validate(full=True)
        assert array.type.equals(item_type)
        assert array.to_pylist() == [dict(row or ()).get(key) for row in rows[cut:]]


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_an_embedding_bag_takes_the_tensors_as_they_are() -> None:
    batch = batch_of(ids=pa.array([[1, 2], None, [], [3]], pa.list_(pa.int64())))
    values, offsets = flat(batch, "ids").tensors()
    bag = torch.nn.EmbeddingBag(5, 2, mode="sum", include_last_offset=True)
    weights = bag.weight.detach()
    expected = torch.stack([weights[1] + weights[2], torch.zeros(2), torch.zeros(2), weights[3]])
    assert torch.equal(bag(values, offsets).detach(), expected)


def test_tensors_share_the_memory_of_the_batch() -> None:
    batch = batch_of(ids=pa.array([[1, 2], [3]]), x=pa.array([1.0, 2.0]))
    values, offsets = flat(batch, "ids").tensors()
    assert values.data_ptr() == batch.column(0).values.buffers()[1].address
    assert offsets.data_ptr() == batch.column(0).buffers()[1].address
    dense, present = flat(batch, "x").tensors()
    assert dense.data_ptr() == batch.column(1).buffers()[1].address
    assert present is None


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.lists(st.integers(0, 9), max_size=4) | st.none(), max_size=15), start=st.integers(0, 15), size=st.integers(0, 15))
def test_lists_come_back_from_values_and_offsets_of_any_slice(rows: list[Any], start: int, size: int) -> None:
    batch = batch_of(ids=pa.array(rows, pa.list_(pa.int64()))).slice(min(start, len(rows)), size)
    found = flat(batch, "ids")
    assert found.offsets is not None
    lists = [found.values[found.offsets[i] : found.offsets[i + 1]].tolist() for i in range(batch.num_rows)]
    assert lists == [row or [] for row in batch.column(0).to_pylist()]
    present = found.present.tolist() if found.present is not None else [True] * batch.num_rows
    assert present == [row is not None for row in batch.column(0).to_pylist()]


def test_what_lies_under_a_null_is_zero_or_empty() -> None:
    hidden = pa.Array.from_buffers(pa.float32(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1, 99], np.float32))])
    assert flat(batch_of(x=hidden), "x").values.tolist() == [1.0, 0.0]
    offsets = pa.py_buffer(np.array([0, 1, 3], np.int32))
    owned = pa.Array.from_buffers(pa.list_(pa.int64()), 2, [pa.py_buffer(b"\x01"), offsets], children=[pa.array([1, 8, 9])])
    found = flat(batch_of(ids=owned), "ids")
    assert (found.values.tolist(), found.offsets.tolist() if found.offsets is not None else None) == ([1], [0, 1, 1])


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([[1, None]]), "1 nulls inside its lists"),
        (pa.array(["text"]), "is string: tensors hold numbers"),
        (pa.array([["text"]]), "is string: tensors hold numbers"),
    ],
)
def test_what_no_tensor_can_hold_is_refused(column: pa.Array, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        flat(batch_of(x=column), "x")
    with pytest.raises(BadInput, match="no feature 'y'"):
        flat(batch_of(x=column), "y")


def test_booleans_are_numbers() -> None:
    values, present = flat(batch_of(x=pa.array([True, None, False])), "x").tensors()
    assert values.tolist() == [True, False, False]
    assert present.tolist() == [True, False, True]
