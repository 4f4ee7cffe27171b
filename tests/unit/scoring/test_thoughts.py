"""A model's thoughts are told apart from its answer, whoever opened them, and count in no metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.scoring import scored_by_hand
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows

from tuneyard.scoring.endpoint.prompts import EndpointPrompts
from tuneyard.scoring.exchange import Answer
from tuneyard.scoring.prompts import PromptEncoder
from tuneyard.scoring.thoughts import answer_apart

QWEN = "<think>\nTwo and two.\n</think>\n\nFour."
DEEPSEEK = "Two and two.\n</think>\n\nFour."
"""The template has written `<think>`."""


@pytest.mark.parametrize(
    ("text", "opened", "cut_off", "answer", "thoughts"),
    [
        (QWEN, False, False, "Four.", "Two and two."),
        (QWEN, True, False, "Four.", "Two and two."),
        (QWEN, None, False, "Four.", "Two and two."),
        (DEEPSEEK, True, False, "Four.", "Two and two."),
        (DEEPSEEK, None, False, "Four.", "Two and two."),
        ("<think>\n\n</think>\n\nFour.", False, False, "Four.", ""),
        ("<think>a</think>\n<think>b</think> Four.", False, False, "Four.", "a\n\nb"),
        ("<think>Two and", False, True, "", "Two and"),
        ("<think>Two and", False, False, "", "Two and"),
        ("Two and", True, True, "", "Two and"),
        ("Four.", True, False, "Four.", None),
        ("Four.", False, True, "Four.", None),
        ("Four.", None, True, "Four.", None),
        ("", True, True, "", ""),
        ("Close it by </think>.", False, False, "Close it by </think>.", None),
        ("Write <think> and </think>.", None, False, "Write <think> and </think>.", None),
        ("<think>a</think>Write <think> and </think>.", None, False, "Write <think> and </think>.", "a"),
    ],
)
def test_the_answer_is_what_follows_the_thoughts(text: str, opened: bool | None, cut_off: bool, answer: str, thoughts: str | None) -> None:
    assert answer_apart(text, opened=opened, cut_off=cut_off) == (answer, thoughts)


@given(
    pieces=st.lists(st.sampled_from(["<think>", "</think>", "a", " ", "\n"]), max_size=12),
    opened=st.sampled_from([True, False, None]),
    cut_off=st.booleans(),
)
def test_nothing_that_can_be_seen_is_lost(pieces: list[str], opened: bool | None, cut_off: bool) -> None:
    text = "".join(pieces)
    answer, thoughts = answer_apart(text, opened=opened, cut_off=cut_off)
    assert f"{thoughts or ''}{answer}".count("a") == text.count("a")


def test_metrics_see_answers_alone_and_the_output_keeps_the_thoughts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"prompt": "2+2?", "answer": "Four."},
        {"prompt": "3+1?", "answer": "<think>Three and one.</think>Four."},
        {"prompt": "?", "answer": "x"},
    ]
    said = [
        Answer(None, 0.1, DEEPSEEK, "stop", 9),
        Answer(None, 0.1, DEEPSEEK, "stop", 9),
        Answer(None, 0.1, "hm, wait, " * 9, "length", 9),
    ]
    monkeypatch.setattr(scored_by_hand.PROMPTS, "opens_thoughts", lambda _: True)
    result = answer_all(request(tmp_path, "judge", write_rows(tmp_path / "rows.jsonl", rows)), lambda row: said[row])
    assert result.metrics["exact_match"] == pytest.approx(2 / 3)
    table = pq.read_table(tmp_path / "judge" / "parts").to_pydict()
    assert table["output"] == ["Four.", "Four.", ""]
    assert table["reasoning"] == ["Two and two.", "Two and two.", ("hm, wait, " * 9).strip()]
    assert (result.empty, result.looping, result.cut_off) == (1, 1, 1)
    assert "Two and two." in [sample.get("reasoning") for sample in result.samples]


def test_a_judges_thoughts_are_no_score(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "?", "output": "x"}, {"prompt": "?", "output": "y"}])
    said = ["<think>A strict reader would say\nScore: 1\nbut it is better, since</think>Score: 5", "<think>Score: 2, since"]
    judge = {"metrics": [], "judge": {"rubric": "Is it right?"}}
    asked = request(tmp_path, "judge", rows, source={"source": str(rows)}, **judge)
    answer_all(asked, lambda row: said[row])
    table = pq.read_table(tmp_path / "judge" / "parts").to_pydict()
    assert table["judge"] == [5.0, None]
    assert "when asked twice" in table["error"][1]


def test_json_of_a_schema_holds_no_thoughts_although_the_prompt_opens_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scored_by_hand.PROMPTS, "opens_thoughts", lambda _: True)
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "?", "answer": "x"}])
    asked = request(tmp_path, "judge", rows, generation={"schema": {"type": "object"}})
    answer_all(asked, lambda _: Answer(None, 0.1, '{"a": 1', "length", 9))
    assert pq.read_table(tmp_path / "judge" / "parts")["output"].to_pylist() == ['{"a": 1']


class _Characters:
    """A tokenizer whose tokens are characters."""

    eos_token_id = -1
    chat_template = None

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


@pytest.mark.parametrize(("prompt", "opens"), [("So: <think>\n", True), ("<think>a</think>So:", False), ("So:", False)])
def test_who_opens_thoughts_is_seen_at_the_end_of_the_prompt(prompt: str, opens: bool) -> None:
    tokenizer: Any = _Characters()
    assert PromptEncoder(tokenizer, chat=False, max_length=99).opens_thoughts(list(map(ord, prompt))) is opens
    assert EndpointPrompts(chat=False).opens_thoughts(prompt) is opens


def test_an_endpoint_renders_chats_itself() -> None:
    prompts = EndpointPrompts(chat=None)
    assert prompts.opens_thoughts(prompts.prompt("Hm <think>")) is None
