"""Rows read by batches: the same as one by one, whatever they are read from."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.models import sentences, tokenizer_of
from torch.utils.data import DataLoader

from tuneyard.api import TrainData
from tuneyard.data import Prepared, prepare
from tuneyard.data.mapped_rows import MappedRows, by_batches
from tuneyard.data.stream import splits as splits_module
from tuneyard.data.token_batch import RowParts, TokenBatch

ROWS = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=5)
"""Rows of samples, by their lengths."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_of([], eos="<|end|>", chat_template=None)


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 2048)
    monkeypatch.setattr(splits_module, "_ROWS_OF_A_SHARD", 0)


def prepared_of(folder: Path, tokenizer: Any, *, count: int = 300, name: str = "texts", **changes: Any) -> Prepared:
    source = folder / f"{name}.jsonl"
    source.write_text("".join(json.dumps({"text": f"{name} {i} {text}"}) + "\n" for i, text in enumerate(sentences(count))))
    given = {"source": str(source), "workers": 0, "maxLength": 64} | changes
    return prepare(TrainData.model_validate(given), tokenizer, objective="clm", seed=3, cache_dir=folder / "cache")


def as_lists(row: Any) -> dict[str, Any]:
    return {name: value if isinstance(value, int) else list(value) for name, value in row.items()}


def packed_rows(lengths: list[list[int]], *, as_mask: bool) -> tuple[list[RowParts], list[dict[str, list[int]]]]:
    """Rows as they lie, and as dictionaries."""
    parts, rows, token = [], [], 10
    for samples in lengths:
        ids = np.arange(token, token + sum(samples), dtype=np.uint16)
        token += len(ids)
        counted = ids % 3 > 0
        positions = [place for length in samples for place in range(length)]
        labels = [int(one) if counts else -100 for one, counts in zip(ids, counted, strict=True)]
        given = counted if as_mask else np.asarray(labels, dtype=np.int32)
        where = (None, np.asarray(samples, np.int32)) if as_mask else (np.asarray(positions, np.int32), None)
        parts.append(RowParts(ids, given, *where))
        rows.append({"input_ids": ids.tolist(), "labels": labels, "position_ids": positions, "length": len(ids)})
    return parts, rows


@settings(deadline=None)
@given(lengths=ROWS, as_mask=st.booleans())
def test_rows_as_they_lie_and_rows_as_dictionaries_give_equal_matrices(lengths: list[list[int]], as_mask: bool) -> None:
    parts, rows = packed_rows(lengths, as_mask=as_mask)
    one, other = TokenBatch.of_parts(parts), TokenBatch.of_rows(rows)
    for name in ("input_ids", "labels", "position_ids", "lengths"):
        assert getattr(one, name).dtype == np.int64
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    assert [as_lists(row) for row in one] == rows


@settings(deadline=None)
@given(lengths=ROWS, cut=st.integers(0, 5))
def test_merged_batches_are_one_of_all_rows(lengths: list[list[int]], cut: int) -> None:
    parts, rows = packed_rows(lengths, as_mask=True)
    numbers = np.random.default_rng(0).permutation(len(parts))
    chosen = [each for each in (numbers[:cut], numbers[cut:]) if each.size]
    merged = TokenBatch.merged([(each, TokenBatch.of_parts([parts[i] for i in each])) for each in chosen], len(parts))
    if len(chosen) > 1:
        assert [as_lists(row) for row in merged] == rows


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_batch_of_rows_is_its_rows_one_by_one(tmp_path: Path, tokenizer: Any, streaming: bool, pack: bool) -> None:
    prepared = prepared_of(tmp_path, tokenizer, streaming=streaming, pack=pack)
    rows = by_batches(prepared.train)
    order = prepared.order.at_each(np.arange(40, 80)).tolist()
    assert order == [prepared.order.at(position) for position in range(40, 80)]
    assert [as_lists(row) for row in rows.__getitems__(order)] == [as_lists(rows[row]) for row in order]
    if not streaming:
        assert [as_lists(rows[row]) for row in order] == [prepared.train[row] for row in order]
        assert [as_lists(row) for row in pickle.loads(pickle.dumps(rows)).__getitems__([3, 1])] == [prepared.train[3], prepared.train[1]]


@pytest.mark.parametrize("limits", [(None, None), (60, None), (60, 200)])
def test_a_batch_of_a_mixture_is_its_rows_one_by_one(tmp_path: Path, tokenizer: Any, limits: tuple[int | None, int | None]) -> None:
    """A part with a limit is prepared, the others are streamed."""
    mix = []
    for name, limit in zip("ab", limits, strict=True):
        prepared_of(tmp_path, tokenizer, name=name)
        mix.append({"source": str(tmp_path / f"{name}.jsonl"), "weight": 1 + len(mix), "limit": limit})
    given = {"mix": mix, "workers": 0, "maxLength": 64, "pack": True, "streaming": True}
    prepared = prepare(TrainData.model_validate(given), tokenizer, objective="clm", seed=3, cache_dir=tmp_path / "cache")
    assert len(prepared.streams) == limits.count(None)
    rows = by_batches(prepared.train)
    order = prepared.order.at_each(np.arange(50)).tolist()
    assert order == [prepared.order.at(position) for position in range(50)]
    assert [as_lists(row) for row in rows.__getitems__(order)] == [as_lists(rows[row]) for row in order]


def test_the_loader_of_torch_reads_by_batches(tmp_path: Path, tokenizer: Any) -> None:
    rows = by_batches(prepared_of(tmp_path, tokenizer, pack=True).train)
    batches = list(DataLoader(rows, batch_sampler=[[0, 3], [2, 1]], collate_fn=lambda batch: batch))
    assert all(isinstance(batch, TokenBatch) for batch in batches)


def test_pairs_of_answers_and_selections_are_not_read_by_batches(tmp_path: Path, tokenizer: Any) -> None:
    rows = prepared_of(tmp_path, tokenizer).train
    pairs = datasets.Dataset.from_dict({"prompt": ["p"], "chosen": ["a"], "rejected": ["b"]})
    assert by_batches(pairs) is pairs
    assert by_batches(None) is None
    with pytest.raises(ValueError, match="selection"):
        MappedRows(rows.select([3, 1]))
