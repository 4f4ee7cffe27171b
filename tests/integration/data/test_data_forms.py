"""Rows of forms, paths and speakers: streams and prepared data are the same rows, and a checkpoint knows when the reading has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.real_exports.workbooks import xlsx

from tuneyard.api import BadInput, ScoreData
from tuneyard.data import Prepared, ScoreRows
from tuneyard.data.mapped_rows import by_batches

Make = Callable[..., Prepared]


def turns(i: int) -> list[dict[str, str]]:
    return [{"role": "guest", "content": f"the cat {i}"}, {"role": "cook", "content": f"on a mat {i}"}]


def gemini(i: int) -> dict[str, Any]:
    said = (("user", f"the cat {i}"), ("model", f"on a mat {i}"))
    return {"contents": [{"role": role, "parts": [{"text": text}]} for role, text in said]}


READINGS: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "form": (gemini, {}),
    "path and speakers": (
        lambda i: {"body": {"turns": turns(i)}},
        {"columns": {"messages": "body.turns"}, "roles": {"guest": "user", "cook": "assistant"}},
    ),
    "inputs": (lambda i: {"inputs": {"question": f"the cat {i}"}, "outputs": {"answer": f"on a mat {i}"}}, {}),
    "numbers": (lambda i: {"prompt": f"the cat {i}", "completion": None if i == 150 else 4.0}, {"max_bad_fraction": 0.1}),
}


def write(path: Path, row: Callable[[int], Any], count: int = 200) -> Path:
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(count)))
    return path


@pytest.mark.parametrize("name", READINGS)
def test_streamed_and_prepared_rows_are_the_same(name: str, make: Make, tokenizer: Any, tmp_path: Path) -> None:
    row, spec = READINGS[name]
    path = write(tmp_path / "a.jsonl", row)
    prepared, streamed = make(path, **spec), make(path, streaming=True, workers=0, **spec)
    order = prepared.order.at_each(np.arange(prepared.order.epoch_rows)).tolist()
    whole = by_batches(prepared.train)
    assert len(order) == 199 if name == "numbers" else 200
    for position, number in enumerate(order):
        here, there = whole[number], streamed.train[streamed.order.at(position)]
        assert all(np.array_equal(here[field], there[field]) for field in ("input_ids", "labels"))
    text = tokenizer.decode([label for label in whole[0]["labels"] if label != -100])
    assert ("4<" in text and "4.0" not in text) if name == "numbers" else "on a mat" in text


def test_a_workbook_streams_like_it_is_prepared(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(xlsx({"Rows": [["prompt", "completion"], *([f"the cat {i}", f"on a mat {i}"] for i in range(60))]}))
    prepared, streamed = make(path), make(path, streaming=True, workers=0)
    order = prepared.order.at_each(np.arange(60)).tolist()
    whole = by_batches(prepared.train)
    assert all(np.array_equal(whole[n]["input_ids"], streamed.train[streamed.order.at(p)]["input_ids"]) for p, n in enumerate(order))


@pytest.mark.parametrize("streaming", [False, True])
def test_another_reading_of_the_same_file_does_not_continue_a_checkpoint(streaming: bool, make: Make, tmp_path: Path) -> None:
    def two(i: int) -> dict[str, Any]:
        return {"a": {"q": f"the cat {i}", "r": f"one {i}"}, "b": {"q": f"the dog {i}", "r": f"two {i}"}}

    path, how = write(tmp_path / "a.jsonl", two), {"streaming": streaming, "workers": 0 if streaming else "auto"}
    before = make(path, columns={"prompt": "a.q", "completion": "a.r"}, **how)
    after = make(path, columns={"prompt": "b.q", "completion": "b.r"}, **how)
    assert before.place(before.cursors(0), before.contents) is None
    with pytest.raises(BadInput):
        after.place(before.cursors(0), before.contents)


def test_score_rows_have_the_prompts_and_references_of_training(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", READINGS["inputs"][0])
    row = ScoreRows.open(ScoreData(source=str(path), reference="completion"), cache_dir=tmp_path / "cache").row(7)
    assert (row["prompt"], row["references"]) == ("the cat 7", ("on a mat 7",))
