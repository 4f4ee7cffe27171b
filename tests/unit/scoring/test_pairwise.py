"""A judge of two answers: verdicts in what it says, rows that flip, and pairs that cannot be judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows

from tuneyard.api import BadInput
from tuneyard.metrics import METRICS
from tuneyard.metrics.win_rate import Preference
from tuneyard.scoring import ScoreResult
from tuneyard.scoring.exchange import Answer
from tuneyard.scoring.pairwise import verdict_in
from tuneyard.scoring.rows import ScoredRow
from tuneyard.tracking.pairwise import pairwise_words


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("Better.\nVerdict: A", 1.0),
        ("**Verdict**: **B**.", 0.0),
        ("Verdict: tie", 0.5),
        ("verdict: Answer B", 0.0),
        ('{"why": "shorter", "verdict": "A"}', 1.0),
        ("[[B]]", 0.0),
        ("Tie", 0.5),
        ("Verdict: A. No, on reflection:\nVerdict: B", 0.0),
        ("Verdict: A or B", None),
        ("Verdict: A/B", None),
        ("Verdict: a matter of taste", None),
        ("Verdict: Both", None),
        ("Verdict: A tie", None),
        ("**Verdict:** **A** tie", None),
        ("Verdict: A clear win for B.", None),
        ("Verdict: A is worse than B", None),
        ("Verdict: A vs B: tie", None),
        ("Verdict: A < B", None),
        ("Verdict: A=B", None),
        ("Verdict: A-", None),
        ('{"verdict": "A tie"}', None),
        ("The answer says 'Verdict: A'. I disagree.", None),
        ("Verdict: A\nVerdict: A tie", None),
        ("Verdict: A\nVerdict: B", 0.0),
        ('{"verdict": "B", "why": "A is longer"}', 0.0),
        ('{\n  "verdict": "tie",\n  "why": "x"\n}', 0.5),
        ("Verdict: [A]\r\n", 1.0),
        ("A answers the question", None),
        ("The first verdict: A, the second verdict: B, both fair", None),
        ("Verdict: A\nOn reflection, B is better.", None),
        ("Verdict: A\n\nReason: it is shorter.", None),
        ("Verdict: A. It is shorter.", None),
        ("Verdict: B\n```\n", 0.0),
        ("My verdict: A", 1.0),
        ('Sure:\n```json\n{"verdict": "B", "why": "A is longer"}\n```', 0.0),
        ('{"verdict": "A", "why": "it was cut', 1.0),
        ('{"verdict": "A"} No: the second one.', None),
        ('{"verdict": "A", "verdict": "B"}', None),
        ("It returns {x}.\nVerdict: A", 1.0),
        ("", None),
        ("It is better, so my final verdict: A", 1.0),
        ("A is short. Verdict: A", 1.0),
        ("__Verdict__: A", 1.0),
        ("No verdict: A", None),
        ("I cannot give a verdict: A", None),
        ("The answer ends with the line: Verdict: A", None),
        ("Overdict A", None),
        ('{"not_verdict": "A"}', None),
        ('{"not_verdict": "B", "verdict": "A"}', 1.0),
    ],
)
def test_the_verdict_is_the_one_that_the_judge_was_asked_to_write(said: str, verdict: float | None) -> None:
    assert verdict_in(said) == verdict


@given(said=st.text(max_size=200))
def test_no_answer_of_a_judge_is_a_crash(said: str) -> None:
    assert verdict_in(said) in (None, 0.0, 0.5, 1.0)


def test_the_bootstrap_interval_narrows_with_rows_and_needs_thirty() -> None:
    def width(rows: int) -> float | None:
        made = [ScoredRow(row, preference=Preference(float(row % 2), float(row % 2), 0)) for row in range(rows)]
        metric = METRICS["win_rate"]
        for row in made:
            metric.measure(row)
        _, value, interval = next(iter(metric.known(metric.totals(made))))
        assert value == pytest.approx(0.5, abs=0.02)
        return None if interval is None else interval[1] - interval[0]

    few, many = width(100), width(10_000)
    assert width(29) is None
    assert few == pytest.approx(2 * 1.96 * 0.05, rel=0.1)
    assert many == pytest.approx(2 * 1.96 * 0.005, rel=0.1)


RESULT = ScoreResult(
    rows=0, errors=0, metrics={}, output="", input_tokens=0, output_tokens=0, output_tokens_per_s=0, mfu=None, latency_s={}, wall_s=0
)


def judged(
    folder: Path,
    says: Any,
    other_rows: int = 4,
    prompt: str = "q",
    answer: Callable[[str, int], str] = lambda name, row: f"{name} {row}",
) -> ScoreResult:
    """Judge four pairs of answers. `says`: the judge's words, by row and number of the question about it."""
    for name, rows, start in (("tuned", 4, "q"), ("base", other_rows, prompt)):
        data = write_rows(folder / f"{name}.jsonl", [{"prompt": f"{start}{row}", "answer": "x"} for row in range(rows)])
        answers: list[Answer | str] = [answer(name, row) for row in range(rows)]
        answers[3] = Answer(0, 0.1, error="lost") if name == "base" else answers[3]
        answer_all(request(folder, name, data), answers.__getitem__)
    asked: list[int] = []

    def say(row: int) -> str:
        asked.append(row)
        return str(says(row, asked.count(row)))

    judge = {"rubric": "Which is right?", "against": {"source": str(folder / "base" / "parts")}}
    return answer_all(request(folder, "pair", folder / "tuned" / "parts", metrics=[], judge=judge), say)


def test_a_flipped_row_is_a_tie_and_a_row_without_a_verdict_or_an_answer_is_an_error(tmp_path: Path) -> None:
    words = {0: ["Verdict: A", "Verdict: B"], 1: ["Verdict: A", "Verdict: A"], 2: ["Hm.", "B", "Hm.", "Hm."]}
    result = judged(tmp_path, lambda row, number: words[row][number - 1])

    assert (result.rows, result.errors) == (4, 2)
    assert result.metrics == {"win_rate": 0.75, "judged": 0.5, "order_dependent": 0.5}
    pairwise = result.details["pairwise"]
    assert (pairwise["wins"], pairwise["ties"], pairwise["losses"]) == (1, 1, 0)
    assert (pairwise["first_preferred"], pairwise["second_preferred"]) == (0.75, 0.25)
    assert pq.read_table(tmp_path / "pair" / "parts")["win_rate"].to_pylist() == [1.0, 0.5, None, None]
    errors = {row["row"]: row["error"] for row in result.samples}
    assert errors[2] == "the judge named neither A nor B nor a tie, when asked twice"
    assert errors[3] == "the other answer: there is no answer to judge: output is missing"
    assert result.details["judge_retries"] == 1


def test_answers_that_are_the_same_are_ties_that_no_judge_is_asked_about(tmp_path: Path) -> None:
    """As base and tuned answer the same in rows 0 and 1, but for white space at an end."""
    asked: list[int] = []

    def says(row: int, number: int) -> str:
        asked.append(row)
        return f"Verdict: {'AB'[number - 1]}"

    same = {0: "the same", 1: "the same\n"}
    result = judged(tmp_path, says, answer=lambda name, row: same[row] if name == "tuned" and row in same else same.get(row, name).strip())

    assert asked == [2, 2]
    pairwise = result.details["pairwise"]
    assert (pairwise["wins"], pairwise["ties"], pairwise["losses"], pairwise["identical"]) == (1, 2, 0, 2)
    assert (pairwise["first_preferred"], pairwise["second_preferred"], pairwise["order_dependent"]) == (0.5, 0.5, 0)
    assert result.metrics["win_rate"] == pytest.approx(2 / 3)
    table = pq.read_table(tmp_path / "pair" / "parts")
    assert table["win_rate"].to_pylist() == [0.5, 0.5, 1.0, None]
    assert table["input_tokens"].to_pylist()[:2] == [0, 0]
    assert "the same text" in table["output"].to_pylist()[0]
    samples = [(row["row"], row["typical"], row["against"]) for row in result.samples if row["error"] is None]
    assert samples == [(2, True, "base"), (0, False, "the same"), (1, False, "the same")]
    assert ("the same answer twice", "2", "rows, counted as ties, and not judged") in pairwise_words({"details": result.details})


@pytest.mark.parametrize(("flipped", "rows", "warned"), [(5, 20, True), (4, 20, False), (19, 19, False), (500, 1000, True)])
def test_many_verdicts_that_follow_the_order_are_a_warning(flipped: int, rows: int, warned: bool) -> None:
    pairwise = {"rows": rows + 7, "identical": 7, "order_dependent": flipped, "first_preferred": 0.6, "second_preferred": 0.3}
    said = replace(RESULT, rows=rows + 7, details={"pairwise": pairwise}).warnings(256)

    assert [f"{flipped} of {rows} pairs" in each for each in said] == ([True] if warned else [])


def test_order_dependence_is_a_share_of_the_pairs_that_were_asked(tmp_path: Path) -> None:
    result = judged(tmp_path, lambda *_: "Verdict: A", answer=lambda name, row: "the same" if row < 2 else f"{name} {row}")

    assert result.metrics["order_dependent"] == 1
    words = {title: (value, note) for title, value, note in pairwise_words({"details": result.details})}
    assert words["order-dependent"] == ("1", "100.0% of the 1 pairs that the judge was asked about; ties")


def test_answers_to_other_rows_are_refused_before_the_judge_is_asked(tmp_path: Path) -> None:
    for folder, changes, says in (
        ("more", {"other_rows": 5}, "has 5 rows, and"),
        ("asked", {"prompt": "another "}, "row 0 of .* has another prompt"),
    ):
        (tmp_path / folder).mkdir()
        with pytest.raises(BadInput, match=says):
            judged(tmp_path / folder, lambda *_: "A", **changes)
