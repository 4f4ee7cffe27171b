"""A model's thoughts are told apart from its answer, whoever opened them, and count in no metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.models import write_tokenizer
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows
from tokenizers import AddedToken

from tuneyard.scoring.endpoint.prompts import EndpointPrompts
from tuneyard.scoring.exchange import Answer
from tuneyard.scoring.prompts import PromptEncoder
from tuneyard.scoring.special_marks import SpecialMarks
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


def test_metrics_see_answers_alone_and_the_output_keeps_the_thoughts(tmp_path: Path) -> None:
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
    result = answer_all(request(tmp_path, "judge", write_rows(tmp_path / "rows.jsonl", rows)), lambda row: said[row], opens_thoughts=True)
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


def test_json_of_a_schema_holds_no_thoughts_although_the_prompt_opens_some(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "?", "answer": "x"}])
    asked = request(tmp_path, "judge", rows, generation={"schema": {"type": "object"}})
    answer_all(asked, lambda _: Answer(None, 0.1, '{"a": 1', "length", 9), opens_thoughts=True)
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


def test_marks_are_told_apart_in_time_that_grows_with_the_text() -> None:
    many = "<think></think>" * 200_000
    assert answer_apart(many, opened=None, cut_off=False) == ("", "")


def test_what_a_server_has_told_apart_is_not_cut_again(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "?", "answer": "Write </think> to end them."}, {"prompt": "?", "answer": "x"}])
    said = ["Write </think> to end them.", "<think> is it."]
    result = answer_all(
        request(tmp_path, "judge", rows), lambda row: Answer(None, 0.1, said[row], "stop", 9, reasoning="Hm."), opens_thoughts=None
    )
    table = pq.read_table(tmp_path / "judge" / "parts").to_pydict()
    assert (table["output"], table["reasoning"], result.metrics["exact_match"]) == (said, ["Hm.", "Hm."], 0.5)


def test_thoughts_that_a_stop_text_has_ended_are_no_answer(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "?", "answer": "x"}])
    answer = Answer(None, 0.1, "Okay, two and two.", "stop", 9, by_stop_text=True)
    assert answer_all(request(tmp_path, "judge", rows), lambda _: answer, opens_thoughts=True).empty == 1
    assert pq.read_table(tmp_path / "judge" / "parts")["reasoning"].to_pylist() == ["Okay, two and two."]


def test_judges_and_samples_see_no_thoughts_of_references_and_recorded_answers(tmp_path: Path) -> None:
    rows = [{"prompt": "?", "output": "<think>HIS</think>x", "answer": "<think>HERS</think>gold"}] * 2
    source = {"source": str(write_rows(tmp_path / "rows.jsonl", rows)), "reference": "answer"}
    asked = request(tmp_path, "judge", Path(), source=source, metrics=[], judge={"rubric": "Is it right?"})
    prompts: list[str] = []
    result = answer_all(asked, lambda _: "Score: 3", seen=prompts)
    assert len(prompts) == 4  # each row's question, and its stricter form
    assert all("gold" in prompt and "HERS" not in prompt and "HIS" not in prompt for prompt in prompts)
    assert {(sample["reference"], sample["answer"]) for sample in result.samples} == {("gold", "x")}


def test_a_reference_of_thoughts_alone_is_not_met_by_saying_nothing(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "?", "answer": "<think>"}, {"prompt": "?", "answer": "<think>a</think>"}])
    assert answer_all(request(tmp_path, "judge", rows), lambda _: "").metrics["exact_match"] == 0


def test_a_judge_of_two_answers_keeps_its_thoughts_about_both_orders(tmp_path: Path) -> None:
    for name, text in (("a", "x"), ("b", "y")):
        write_rows(tmp_path / f"{name}.jsonl", [{"prompt": "?", "output": text}])
    judge = {"rubric": "Which?", "against": {"source": str(tmp_path / "b.jsonl")}}
    asked = request(tmp_path, "judge", Path(), source={"source": str(tmp_path / "a.jsonl")}, metrics=[], judge=judge)
    said = iter(["<think>FIRST</think>Verdict: A", "<think>SECOND</think>Verdict: B"])
    answer_all(asked, lambda _: next(said))
    assert pq.read_table(tmp_path / "judge" / "parts")["reasoning"].to_pylist() == ["FIRST\n\nSECOND"]


def test_no_column_of_the_data_is_lost_to_another(tmp_path: Path) -> None:
    rows = [{"prompt": "?", "answer": "x", "reasoning": "theirs", "input_reasoning": "older"}]
    answer_all(request(tmp_path, "judge", write_rows(tmp_path / "rows.jsonl", rows)), lambda _: "x")
    table = pq.read_table(tmp_path / "judge" / "parts").to_pydict()
    assert (table["reasoning"], table["input_reasoning"], table["input_input_reasoning"]) == ([None], ["older"], ["theirs"])


def test_marks_that_are_special_tokens_come_back_into_texts(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path, chat_template=None)
    assert SpecialMarks.of(tokenizer) is None
    tokenizer.add_tokens([AddedToken("<think>", special=True), AddedToken("</think>", special=True)])
    marks = SpecialMarks.of(tokenizer)
    assert marks is not None
    ids = tokenizer("<think>the cat</think>sat<|end|>", add_special_tokens=False)["input_ids"]
    assert "think" not in tokenizer.decode(ids, skip_special_tokens=True)
    assert marks.text(ids, "the catsat") == "<think>the cat</think>sat"
    assert marks.text(ids, "the cats") == "<think>the cat</think>s"
    assert marks.text(ids, "the cat") == "<think>the cat</think>"
    assert marks.text(ids[1:3], "the c") == "the c"
    assert marks.text([], "") == ""
