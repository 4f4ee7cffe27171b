"""Sample rows for people: a row that is typical of the model's outputs, then the first rows of the data. Rows that a judge was not asked
about, because their two answers are equal, come last.

The first rows are the same for every model, so that two score tasks can be compared. But the very first may by chance be the model's best
or worst answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.data import ScoreRows
from tuneyard.metrics import METRICS, Metric
from tuneyard.scoring.judging import SAME_ANSWERS
from tuneyard.scoring.parts import read_rows
from tuneyard.scoring.thoughts import without_thoughts_of
from tuneyard.storage import Store

_FIRST_ROWS = 5
_OR = "\nor: "
"""Separator between several references of a row."""
_COLUMNS = ("row", "output", "reasoning", "error", "extracted", "nll", "reference_tokens")
_LONGEST_REASONING = 4_000
"""Characters of thoughts: a history keeps them."""
_PER_ROW = [metric for metric in METRICS.values() if metric.per_row is not None]


def samples(rows: ScoreRows, store: Store, *, cut: bool = False) -> list[dict[str, Any]]:
    """`row`, `typical`, `prompt`, `reference`, `output` and `error` of each sample, of a judge also `answer` and `against`, and
    `reasoning` where the model had thoughts, and where answers are `cut` out `extracted`: the answer, empty where there is none.

    Empty where the first part was not committed.
    """
    answered = read_rows(store, 0, [*_COLUMNS, *(metric.name for metric in _PER_ROW)])
    asked = [row for row in answered if rows.against is None or row["output"] != SAME_ANSWERS]
    typical = _typical(asked or answered)
    first = [*asked, *(row for row in answered if row["output"] == SAME_ANSWERS)][:_FIRST_ROWS] if rows.against else answered[:_FIRST_ROWS]
    shown = [*([typical] if typical is not None else []), *(row for row in first if row is not typical)]
    return [_sample(rows, row, row is typical, cut) for row in shown]


def _sample(rows: ScoreRows, answer: Mapping[str, Any], typical: bool, cut: bool) -> dict[str, Any]:
    asked = without_thoughts_of(rows.row(answer["row"]))
    judged = {"answer": asked["answer"]} if rows.data.answer is not None else {}
    other = {"against": asked["against"]} if rows.against is not None and "against" in asked else {}
    reasoning = answer.get("reasoning")
    thoughts = {"reasoning": f"{reasoning[:_LONGEST_REASONING]}{'…' * (len(reasoning) > _LONGEST_REASONING)}"} if reasoning else {}
    return {
        **judged,
        **other,
        **thoughts,
        "row": answer["row"],
        "typical": typical,
        "prompt": asked["prompt"],
        "reference": _OR.join(asked["references"]),
        "output": answer["output"],
        **({"extracted": answer.get("extracted") or ""} if cut and answer["error"] is None else {}),
        "error": answer["error"],
    }


def _typical(answered: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The median row by closeness to its reference, then by length of its output, among the first part's rows without an error."""
    ranked = sorted((row for row in answered if row["error"] is None), key=lambda row: (_closeness(row), len(row["output"] or "")))
    return ranked[len(ranked) // 2] if ranked else None


def _closeness(row: Mapping[str, Any]) -> tuple[float, ...]:
    """The metrics of the row in the order of their table, higher is better; then the mean log-likelihood of the reference's tokens."""
    likelihood = -float(row["nll"]) / float(row["reference_tokens"]) if row.get("nll") is not None and row["reference_tokens"] else 0.0
    return (*(_goodness(metric, row.get(metric.name)) for metric in _PER_ROW), likelihood)


def _goodness(metric: Metric, value: float | None) -> float:
    if value is None:
        return 0.0
    return value if metric.figures[0].higher_is_better else -value
