"""Counting a data set before it is tokenised: all of a small one, an interval that holds the truth for a large one."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.models import write_tokenizer

from tuneyard.api import BadInput, TrainTask
from tuneyard.data import counting
from tuneyard.data.counting import count_data


def task(source: Path, **data: Any) -> TrainTask:
    return TrainTask.model_validate({"model": {"name": "m"}, "data": {"source": str(source), **data}})


def text_rows(count: int) -> list[dict[str, str]]:
    """Texts of 10 to 500 characters."""
    return [{"text": "word " * (2 + i * 37 % 99)} for i in range(count)]


def write_jsonl(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few thousand rows are a large data set."""
    monkeypatch.setattr(counting, "READ_WHOLE_BYTES", 64 << 10)
    monkeypatch.setattr(counting, "_BLOCK_BYTES", 8 << 10)
    monkeypatch.setattr(counting, "_LOOKED_AT", 200)


def test_a_small_data_set_is_counted_without_its_bad_rows(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", text_rows(300))
    file.write_text(file.read_text() + '{"text": 3}\n\n')
    found = count_data(task(file))
    assert (found.samples.likely, found.samples.exact) == (300, True)
    assert len(found.characters) == 300
    assert found.assumed_tokens
    assert count_data(task(file, limit=20)).samples.likely == 20


def test_a_tokenizer_says_how_many_characters_a_token_has(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", text_rows(50))
    write_tokenizer(tmp_path / "model")
    found = count_data(task(file), tokenizer=tmp_path / "model" / "tokenizer.json")
    ratio = found.characters_per_token
    assert not found.assumed_tokens
    assert 1 < ratio.low <= ratio.likely <= ratio.high < 6
    (tmp_path / "broken.json").write_text("{")
    assert count_data(task(file), tokenizer=tmp_path / "broken.json").assumed_tokens


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("order", ["as written", "sorted by length"])
def test_lines_of_a_large_file_are_estimated_with_an_interval_that_holds_the_truth(tmp_path: Path, order: str) -> None:
    rows = text_rows(20_000)
    rows = sorted(rows, key=lambda row: len(row["text"])) if order == "sorted by length" else rows
    found = count_data(task(write_jsonl(tmp_path / "a.jsonl", rows))).samples
    assert found.low <= 20_000 <= found.high
    assert found.low < found.high < 20_000 * 1.5


@pytest.mark.usefixtures("small_blocks")
def test_rows_of_a_large_parquet_file_stand_in_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(text_rows(20_000)), tmp_path / "a.parquet", compression="none")
    found = count_data(task(tmp_path / "a.parquet")).samples
    assert (found.likely, found.exact) == (20_000, True)


@pytest.mark.usefixtures("small_blocks")
def test_of_a_large_compressed_file_the_first_part_stands_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "READ_WHOLE_BYTES", 1 << 20)
    noise = [{"text": hashlib.sha256(b"%d" % i).hexdigest() * (1 + i * 37 % 5)} for i in range(40_000)]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(write_jsonl(tmp_path / "a.jsonl", noise).read_bytes()))
    found = count_data(task(tmp_path / "a.jsonl.gz")).samples
    assert not found.exact
    assert found.low <= 40_000 <= found.high


@pytest.mark.usefixtures("small_blocks")
def test_a_line_longer_than_any_block_is_not_the_end(tmp_path: Path) -> None:
    found = count_data(task(write_jsonl(tmp_path / "a.jsonl", [{"text": "x" * 100_000}] * 3))).samples
    assert found.low >= 1


@pytest.mark.parametrize(("name", "content"), [("gone.jsonl", None), ("bad.jsonl", "{\n[\n"), ("other.jsonl", '{"a": 1}\n')])
def test_data_that_cannot_be_trained_on_are_refused(tmp_path: Path, name: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(BadInput):
        count_data(task(tmp_path / name))
