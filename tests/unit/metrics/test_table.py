"""What holds of every metric, whatever rows it gets: those that nobody tuned it to above all."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.metrics import FIGURES, METRICS, PLAIN, Metric, Totals, Ways
from tuneyard.metrics.choices import Chosen
from tuneyard.metrics.metric import added
from tuneyard.metrics.similarity import Similarity
from tuneyard.metrics.win_rate import Preference
from tuneyard.scoring.parts import Columns
from tuneyard.scoring.rows import ScoredRow

every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=str(list(METRICS)).strip("[]").replace("'", "").split(", "))
ODD = ("", " ", "\n\t", "\u200b", "\x00", "İ", "ß", "e\u0301", "日本語", "👩\u200d👩\u200d👧", "__", "$1.50", "the " * 50, "<s>", "%s {0}")
TEXTS = st.one_of(
    st.text(max_size=40), st.sampled_from(ODD), st.lists(st.sampled_from(["a", "cat", "sat,", "5"]), max_size=8).map(" ".join)
)


@dataclass
class Answered:
    """A row as scoring has it."""

    output: str | None = None
    references: tuple[str, ...] = ()
    nll: float | None = None
    reference_tokens: int = 0
    verdict: float | None = None
    preference: Preference | None = None
    similarity: Similarity | None = None
    answered: bool = True
    samples: tuple[str | None, ...] = ()
    choices: Chosen | None = None
    ways: Ways = PLAIN
    values: dict[str, float] = field(default_factory=dict)
    sums: dict[str, Totals] = field(default_factory=dict)


ROWS = st.lists(
    st.builds(
        Answered,
        output=st.one_of(st.none(), TEXTS),
        references=st.lists(TEXTS, max_size=3).map(tuple),
        nll=st.one_of(st.none(), st.floats(0, 1e6)),
        reference_tokens=st.integers(0, 1000),
        verdict=st.one_of(st.none(), st.floats(-100, 100)),
        preference=st.one_of(
            st.none(), st.builds(Preference, st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0]), st.integers(-9, 9))
        ),
        similarity=st.one_of(st.none(), st.builds(Similarity, st.floats(-1, 1), st.booleans())),
        answered=st.booleans(),
        samples=st.lists(st.one_of(st.none(), TEXTS), max_size=3).map(tuple),
        choices=st.one_of(
            st.none(), st.builds(Chosen, st.tuples(*[st.floats(-1e6, 0)] * 3), st.tuples(*[st.integers(1, 99)] * 3), st.integers(0, 2))
        ),
    ),
    max_size=40,
)


def totals(metric: Metric, rows: list[Answered]) -> Totals:
    measured = []
    for row in rows:
        with suppress(ValueError):  # which makes the row an error: a reference without a number
            metric.measure(row)
            measured.append(row)
    return metric.totals(measured)


def figures(metric: Metric, sums: Totals) -> dict[str, float]:
    return {figure.name: value for figure, value, _ in metric.known(sums)}


@every_metric
@settings(max_examples=60)
@given(rows=ROWS, cut=st.integers(0, 40))
def test_parts_add_up_to_the_whole_however_they_are_cut_and_through_json(metric: Metric, rows: list[Answered], cut: int) -> None:
    whole = totals(metric, rows)

    parts = added(*(json.loads(json.dumps(totals(metric, part), allow_nan=False)) for part in (rows[:cut], rows[cut:])))

    assert figures(metric, parts) == pytest.approx(figures(metric, whole), rel=1e-9)


@every_metric
@settings(max_examples=60)
@given(rows=ROWS)
def test_figures_are_finite_and_inside_their_intervals(metric: Metric, rows: list[Answered]) -> None:
    for figure, value, interval in metric.known(totals(metric, rows)):
        assert math.isfinite(value)
        if interval is not None:
            slack = 1e-6 * max(1.0, abs(value))
            assert interval[0] - slack <= value <= interval[1] + slack
        assert figure.text(value)


@every_metric
@pytest.mark.parametrize(
    "rows", [[], [Answered()], [Answered("x")], [Answered(None, ("y",))]], ids=["none", "empty", "no reference", "no output"]
)
def test_rows_without_what_it_needs_give_no_figure(metric: Metric, rows: list[Answered]) -> None:
    takes = [row for row in rows if metric.takes(row)]

    assert bool(figures(metric, totals(metric, rows))) == bool(takes)


@every_metric
@given(output=TEXTS, references=st.lists(TEXTS, min_size=1, max_size=3))
def test_another_reference_never_makes_a_row_worse(metric: Metric, output: str, references: list[str]) -> None:
    if metric.per_row is None or "reference" not in metric.needs or not metric.needs <= {"output", "reference"}:
        return  # the others get their values from a model
    better = max if metric.figures[0].higher_is_better else min

    values = []
    for upto in range(1, len(references) + 1):
        row = Answered(output, tuple(references[:upto]))
        with suppress(ValueError):
            metric.measure(row)
            values.append(row.values[metric.name])

    assert not values or values[-1] == better(values)


def test_names_are_words_and_hide_no_column() -> None:
    fixed = set(Columns(None, ())._added([ScoredRow(0)])) | {"nll", "reference_tokens", "prompt", "reference"}

    for name, metric in METRICS.items():
        assert name == metric.name
        assert name.isidentifier()
        assert name == name.lower()
        assert name not in fixed
        assert metric.needs
        assert metric.sums_column not in fixed
        assert "rows" in metric.totals([Answered("x", ("x",), 1.0, 1)])
        assert metric.per_row is not None or metric.row_sums or "likelihood" in metric.needs, "two models could not be compared by it"
    assert all(FIGURES[figure.name] is figure for metric in METRICS.values() for figure in metric.figures), "two figures share a name"
    assert all(figure.title and figure.description for figure in FIGURES.values())
