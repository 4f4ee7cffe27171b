"""What a cut at `maxLength` takes is counted: answers without their end, and pairs whose answers are equal afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import train_task, write_tokenizer

from tuneyard import data
from tuneyard.tracking.events import Warned

PAIRS = [
    {"prompt": "the cat sat", "chosen": " on a mat", "rejected": " on two hills"},
    {"prompt": "the cat sat", "chosen": " on" * 40, "rejected": " a"},
    {"prompt": "the cat sat", "chosen": " on" * 40, "rejected": " red" * 40},
    {"prompt": "the cat", "chosen": " on" * 40 + " a", "rejected": " on" * 40 + " b"},
    {"prompt": "the cat" * 40, "chosen": " on", "rejected": " a"},
]
CHATS = [
    {"prompt": "the cat sat", "completion": " on a mat"},
    {"prompt": "the cat sat", "completion": " on" * 40},
    {"prompt": "the cat" * 40, "completion": " on"},
]


def prepared(folder: Path, rows: list[dict[str, str]], objective: str, **fields: Any) -> tuple[data.Prepared, list[str]]:
    """The prepared rows, and the warnings. A task names them, so that the JobSpec's own model reads the settings."""
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = train_task(folder, source, objective=objective, data={"source": str(source), "maxLength": 16, **fields})
    told: list[Any] = []
    made = data.prepare(task.data, write_tokenizer(folder), objective=objective, seed=0, cache_dir=folder / "cache", emit=told.append)
    return made, [event.message for event in told if isinstance(event, Warned)]


@pytest.mark.parametrize("fields", [{}, {"pack": True}, {"streaming": True, "workers": 0}], ids=["rows", "packed", "streamed"])
def test_answers_without_an_end_and_equal_pairs_are_counted(fields: dict[str, Any], tmp_path: Path) -> None:
    made, warned = prepared(tmp_path, PAIRS, "dpo", **fields)

    report = made.report
    assert (report.truncated, report.cut_answers, report.dropped, report.alike) == (4, 3, 2, 1)
    assert "4 pairs are longer than maxLength 16 and were cut: 3 answers have lost their end" in warned
    assert any(each.startswith("2 pairs were dropped") and each.endswith("; 1 of them have equal answers after the cut") for each in warned)


def test_completions_without_an_end_are_counted_too(tmp_path: Path) -> None:
    made, warned = prepared(tmp_path, CHATS, "sft")

    assert (made.report.truncated, made.report.cut_answers, made.report.dropped) == (2, 1, 1)
    assert "2 samples are longer than maxLength 16 and were cut: 1 answer has lost its end" in warned
    kept, _ = prepared(tmp_path, CHATS, "sft", overlong="drop")
    assert (kept.report.truncated, kept.report.cut_answers, kept.report.dropped) == (0, 0, 2)
