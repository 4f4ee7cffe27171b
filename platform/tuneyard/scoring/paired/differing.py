"""The rows in which two models differ most, found while rows stream by; their texts are read afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuneyard.api import BadInput
from tuneyard.metrics import Metric
from tuneyard.scoring.paired.comparison import DifferingRow
from tuneyard.scoring.paired.row_sums import Numbers, columns_of, row_sums
from tuneyard.scoring.paired.scored_output import PART, ScoredOutput
from tuneyard.scoring.parts import added_names, names_in_output
from tuneyard.scoring.thoughts import without_thoughts

_SHOWN = 4


@dataclass(frozen=True, order=True)
class Pair:
    """A row, and the parts that hold its two answers. `better`: by how much the task is better, by each metric in turn."""

    better: tuple[float, ...]
    row: int
    part: int
    part_against: int


@dataclass
class Extremes:
    """The rows in which the task is better by most, and worse by most: by the first metric, among equal rows by the next."""

    best: list[Pair] = field(default_factory=list)
    worst: list[Pair] = field(default_factory=list)

    def add(self, left: Any, right: Any, better: Sequence[Numbers]) -> None:
        """Take the next rows. `better`: of each metric, by how much the task is better in each row; NaN: unknown."""
        known = [np.nan_to_num(each) for each in better]
        order = np.lexsort(known[::-1])
        parts = left[PART].to_numpy(), right[PART].to_numpy()
        rows = left["row"].to_numpy()
        for place in {*order[:_SHOWN].tolist(), *order[-_SHOWN:].tolist()}:
            pair = Pair(tuple(float(each[place]) for each in known), int(rows[place]), int(parts[0][place]), int(parts[1][place]))
            nothing = (0.0,) * len(known)
            if pair.better > nothing:
                self.best = sorted([*self.best, pair], key=lambda each: (tuple(-value for value in each.better), each.row))[:_SHOWN]
            elif pair.better < nothing:
                self.worst = sorted([*self.worst, pair])[:_SHOWN]


def differing_row(pair: Pair, ours: ScoredOutput, theirs: ScoredOutput, metrics: Sequence[Metric]) -> DifferingRow:
    """Read the texts and values of a pair."""
    task, against = _read(ours, pair.part, pair.row, metrics), _read(theirs, pair.part_against, pair.row, metrics)
    return DifferingRow(
        row=pair.row,
        prompt=task.prompt if task.prompt is not None else against.prompt,
        reference=task.reference if task.reference is not None else against.reference,
        output=task.output,
        against=against.output,
        values=task.values,
        values_against=against.values,
        outcomes=_outcomes(task.values, against.values, metrics),
        judged=task.judged,
        judged_against=against.judged,
    )


def _outcomes(values: Mapping[str, float], against: Mapping[str, float], metrics: Sequence[Metric]) -> dict[str, str]:
    """Figure -> better, worse or equal, for figures that both have."""
    figures = [metric.figures[0] for metric in metrics if metric.figures[0].name in values and metric.figures[0].name in against]
    by_how_much = {each.name: (values[each.name] - against[each.name]) * (1 if each.higher_is_better else -1) for each in figures}
    return {name: "better" if better > 0 else "worse" if better < 0 else "equal" for name, better in by_how_much.items()}


@dataclass(frozen=True)
class _Answer:
    prompt: Any
    reference: Any
    output: str | None
    values: dict[str, float]
    judged: str | None


def _read(output: ScoredOutput, part: int, row: int, metrics: Sequence[Metric]) -> _Answer:
    data = output.settings["data"]
    added = added_names(output.metrics, output.settings)
    judged = data.get("answer") or "output" if output.settings.get("judge") else ""
    asked = [data.get("prompt") or "", data.get("reference") or "", judged]
    possible = [name for column in asked for name in names_in_output(column, added)]
    table = output.read(part, ["row", "output", *possible, *(column for metric in metrics for column in columns_of(metric))])
    prompt, reference, judged = (
        next((name for name in names_in_output(column, added) if name in table.column_names), "") for column in asked
    )
    table = table.slice(int(np.searchsorted(table["row"].to_numpy(), row)), 1)
    if not table.num_rows or table["row"][0].as_py() != row:
        raise BadInput(f"{output.store.uri} was written anew while it was compared", "compare again once that task has ended")
    values = {metric.figures[0].name: row_sums(metric, table).values[0] for metric in metrics}
    (texts,) = table.select([name for name in ("output", prompt, reference, judged) if name in table.column_names]).to_pylist()
    known = {name: float(value) for name, value in values.items() if np.isfinite(value)}
    shown = [without_thoughts(text) if isinstance(text, str) else text for text in (texts.get(reference), texts.get(judged))]
    return _Answer(texts.get(prompt), shown[0], texts.get("output"), known, shown[1])
