"""What the first rows of a data set tell before a job starts: refused where they are wrong, and left alone where they may be right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import BadInput, ScoreTask, TrainTask
from tuneyard.data.head import check_head
from tuneyard.data.sources import locate

CHAT = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
NO_TURN = {"messages": [{"role": "user", "content": "2 + 2?"}]}


def write(folder: Path, *rows: object) -> Path:
    (folder / "rows.jsonl").write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return folder / "rows.jsonl"


def look(path: Path, objective: str = "sft", **data: Any) -> None:
    task = TrainTask.model_validate({"model": {"name": "m"}, "objective": objective, "data": {"source": str(path), **data}})
    check_head(task, task.data, locate(str(path)))


def look_to_score(path: Path, **data: Any) -> None:
    task = ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": str(path), **data}})
    check_head(task, task.data, locate(str(path)))


def test_the_look_needs_no_training_stack(tmp_path: Path) -> None:
    path = write(tmp_path, CHAT)
    code = (
        "import sys\nfrom tuneyard.api import TrainTask\nfrom tuneyard.data.head import check_head\n"
        "from tuneyard.data.sources import locate\n"
        f"task = TrainTask.model_validate({{'model': {{'name': 'm'}}, 'data': {{'source': {str(path)!r}}}}})\n"
        "check_head(task, task.data, locate(task.data.source))\n"
        "print([m for m in ('torch', 'ray', 'transformers', 'datasets', 'pandas', 'trl') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_data_as_they_should_be(tmp_path: Path) -> None:
    look(write(tmp_path, *[CHAT] * 300))
    look_to_score(write(tmp_path, *[{"prompt": "2 + 2?", "answer": 4}] * 300), reference="answer")


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([CHAT], {"columns": {"messages": "mesages"}}, "no column mesages .*columns found: messages\n  next: did you mean messages"),
        ([{"a": 1, "b": 2}], {}, "of no known format; columns found: a, b"),
        ([CHAT], {"objective": "dpo"}, "not of format preference"),
        ([{"chosen": "a", "rejected": "b"}], {}, "preference data .* needs objective dpo, not sft"),
        ([NO_TURN] * 3, {}, r"rows\.jsonl: 3 of 3 rows are bad .*none is usable"),
        ([NO_TURN] * 300, {}, r"rows\.jsonl \(first rows\): 200 of 200 rows are bad .*none is usable"),
        ([CHAT, NO_TURN], {}, "1 of 2 rows are bad .*1.0% are tolerated"),
        (["{"] * 300, {}, "not JSON"),
        ([" "], {}, "the data set is empty"),
    ],
)
def test_data_that_cannot_be_trained_on(tmp_path: Path, rows: list[object], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        look(write(tmp_path, *rows), **settings)


def test_a_head_with_bad_rows_says_nothing_of_the_rest(tmp_path: Path) -> None:
    look(write(tmp_path, NO_TURN, *[CHAT] * 300))
    look(write(tmp_path, NO_TURN, CHAT), max_bad_fraction=0.5)
    look(write(tmp_path, *[NO_TURN] * 300), max_bad_fraction=1.0)


def test_large_rows_end_the_look_early(tmp_path: Path) -> None:
    large = {"text": "a" * 600_000}
    with pytest.raises(BadInput, match=r"2 of 3 rows are bad"):
        look(write(tmp_path, large, {"text": ""}, {"text": ""}))
    look(write(tmp_path, large, large, {"text": ""}, {"text": ""}))


def test_a_file_in_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("prompt,completion\n" + "süß,groß\n" * 100, encoding="latin-1")
    for check in (look, look_to_score):
        with pytest.raises(BadInput, match=r"rows\.csv:2: not UTF-8 \(byte 0xfc\)") as refused:
            check(path)
        assert refused.value.next_step.startswith("convert it: iconv -f cp1252 -t utf-8 ")


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([{"prompts": "a"}], {}, "no column prompt .*next: did you mean prompts"),
        ([{"prompt": "a"}], {"reference": "zzz"}, "no column zzz .*next: set data.reference to one of them"),
        ([{"prompt": ""}] * 3, {}, r"no row can be scored; .*rows\.jsonl:1: prompt is empty"),
        ([" "], {}, "the data set is empty"),
    ],
)
def test_data_that_cannot_be_scored(tmp_path: Path, rows: list[object], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=r"(?s)" + message):
        look_to_score(write(tmp_path, *rows), **settings)


def test_a_bad_row_to_score_is_the_tasks_own(tmp_path: Path) -> None:
    look_to_score(write(tmp_path, "{", {"prompt": ""}, {"prompt": "a"}))


def test_a_head_of_answers_labelled_false_says_nothing_of_the_rest(tmp_path: Path) -> None:
    """Data sets of labels (KTO) are often sorted by them."""
    row = {"prompt": "2 + 2?", "completion": "5"}
    look(write(tmp_path, *[row | {"label": False}] * 300, row | {"label": True}))
    with pytest.raises(BadInput, match="all 20 rows are labelled"):
        look(write(tmp_path, *[row | {"label": False}] * 20))
