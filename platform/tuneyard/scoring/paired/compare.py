"""Compares two finished score tasks in one pass over their parts; a second look reads the texts of the rows that differ most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tuneyard.api import BadInput
from tuneyard.metrics import METRICS, Metric, metric_named
from tuneyard.scoring.paired.comparison import Compared, Comparison
from tuneyard.scoring.paired.differing import Extremes, differing_row
from tuneyard.scoring.paired.resampling import Judged, Resampled
from tuneyard.scoring.paired.row_sums import columns_of, row_sums
from tuneyard.scoring.paired.scored_output import ScoredOutput, joined
from tuneyard.scoring.paired.units import Units, units_of

_ALWAYS = ("row", "row_hash", "error")


@dataclass
class _Counted:
    rows: int = 0
    errors: int = 0
    errors_against: int = 0
    errors_both: int = 0


def compare(task: str, against: str, *, names: tuple[str, str]) -> Comparison:
    """Compare the score tasks whose folders are `task` and `against`. `names`: how the comparison calls the two.

    Raises BadInput: no finished score task, other data, no metric and no row in common, or an output that is written anew meanwhile.
    """
    ours, theirs = ScoredOutput.open(task), ScoredOutput.open(against)
    try:
        return _compared(ours, theirs, names)
    finally:  # after an error too: it may come from parts of two different runs
        ours.check_unchanged()
        theirs.check_unchanged()


def _compared(ours: ScoredOutput, theirs: ScoredOutput, names: tuple[str, str]) -> Comparison:
    metrics = _common(ours, theirs)
    columns = [*_ALWAYS, *(column for metric in metrics for column in columns_of(metric))]
    at_most = min(ours.layout.rows, theirs.layout.rows)
    units = {metric.name: Units(at_most, higher_is_better=metric.figures[0].higher_is_better) for metric in metrics}
    counted, extremes = _Counted(), Extremes()
    for left, right in joined(ours.tables(columns), theirs.tables(columns)):
        places = units_of(counted.rows, left.num_rows, at_most)
        better = [units[metric.name].add(places, row_sums(metric, left), row_sums(metric, right)) for metric in metrics]
        extremes.add(left, right, better)
        _count(counted, left, right)
    if not counted.rows:
        raise BadInput(
            f"{ours.store.uri} and {theirs.store.uri} have no row in common", "score the same rows: the same data.limit and data.sample"
        )
    return Comparison(
        task=names[0],
        against=names[1],
        rows=counted.rows,
        errors=counted.errors,
        errors_against=counted.errors_against,
        errors_both=counted.errors_both,
        figures=[each for metric in metrics for each in _judged(metric, units[metric.name])],
        better_rows=[differing_row(pair, ours, theirs, metrics) for pair in extremes.best],
        worse_rows=[differing_row(pair, ours, theirs, metrics) for pair in extremes.worst],
    )


def _common(ours: ScoredOutput, theirs: ScoredOutput) -> list[Metric]:
    """The metrics of both tasks. One that the two have computed in different ways is left out."""
    for output in (ours, theirs):
        if "lmEval" in output.settings.get("data", {}):
            raise BadInput(
                f"{output.store.uri} holds requests of lm-evaluation-harness, whose figures are not of single rows",
                "compare its figures: put both score tasks into one job, or see `tuneyard history compare`",
            )
    both = [metric_named(name) for name in ours.metrics if name in theirs.metrics]
    if not both:
        first, second = (", ".join(output.metrics) or "none" for output in (ours, theirs))
        raise BadInput(
            f"the two have no metric in common: {first} in one, {second} in the other", "name the same metrics in both score tasks"
        )
    different = {metric.name: _differing(metric, ours, theirs) for metric in both}
    same = [metric for metric in both if not different[metric.name]]
    if not same:
        ways = "; ".join(f"{name} by different score.{' and score.'.join(fields)}" for name, fields in different.items())
        raise BadInput(f"the two have no metric in common that both compute alike: {ways}", "give both score tasks the same settings")
    order = list(METRICS)
    return sorted(same, key=lambda metric: order.index(metric.name) if metric.name in METRICS else len(order))


def _differing(metric: Metric, ours: ScoredOutput, theirs: ScoredOutput) -> list[str]:
    """The fields of the score task that change the metric's values, and that the two give differently."""
    reads_answers = not metric.of_whole_output and bool({"output", "samples", "verdict", "preference"} & metric.needs)
    fields = [*metric.settings, *(["answer"] if reads_answers else [])]
    return [name for name in fields if ours.settings.get(name) != theirs.settings.get(name)]


def _count(counted: _Counted, left: Any, right: Any) -> None:
    ours, theirs = (table["error"].combine_chunks().is_valid().to_numpy(zero_copy_only=False) for table in (left, right))
    counted.rows += len(ours)
    counted.errors += int(np.count_nonzero(ours & ~theirs))
    counted.errors_against += int(np.count_nonzero(theirs & ~ours))
    counted.errors_both += int(np.count_nonzero(ours & theirs))


def _judged(metric: Metric, units: Units) -> list[Compared]:
    drawn = units.drawn()
    if not len(drawn.sums):
        return []
    resampled = Resampled.of(drawn)
    wins, ties, losses = (int(count) for count in drawn.outcomes.sum(axis=0))
    win_share, tie_share, loss_share = resampled.shares()
    found = []
    for figure in (each for each in metric.figures if not each.of_all_rows):
        judged = resampled.judge(figure.value)
        found.append(
            Compared(
                figure=figure.name,
                rows=resampled.rows,
                value=judged.value,
                against=judged.against,
                difference=judged.difference,
                interval=judged.interval,
                p_value=judged.p_value,
                real=judged.real,
                better=_better(judged, higher_is_better=figure.higher_is_better),
                wins=wins,
                ties=ties,
                losses=losses,
                win_share=win_share,
                tie_share=tie_share,
                loss_share=loss_share,
            )
        )
    return found


def _better(judged: Judged, *, higher_is_better: bool) -> bool | None:
    return None if judged.difference == 0 else (judged.difference > 0) == higher_is_better
