"""Model against model, for people: the comparisons in a report as sentences and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.metrics import FIGURES
from tuneyard.tracking.formats import number

MOST_CHARACTERS = 4_000


@dataclass(frozen=True)
class PairedFigure:
    """A row of the table. `verdict`: better, worse, not shown, or why there is none. `style`: better, worse or empty."""

    title: str
    value: str
    against: str
    difference: str
    interval: str
    verdict: str
    style: str
    outcomes: str


@dataclass(frozen=True)
class PairedRow:
    """A row with both answers."""

    title: str
    prompt: str
    reference: str
    output: str
    against: str
    judged: str = ""
    """The answer that `output` judges; empty where the tasks are no judges."""
    judged_against: str = ""


@dataclass(frozen=True)
class Paired:
    """A comparison for the report page."""

    task: str
    against: str
    note: str
    figures: list[PairedFigure]
    better_rows: list[PairedRow]
    worse_rows: list[PairedRow]


def paired_views(comparisons: Sequence[Mapping[str, Any]]) -> list[Paired]:
    """The comparisons of report.json for its page."""
    return [
        Paired(
            task=each["task"],
            against=each["against"],
            note=rows_note(each),
            figures=[paired_figure(figure) for figure in each["figures"]],
            better_rows=[_row(row, "better") for row in each["better_rows"]],
            worse_rows=[_row(row, "worse") for row in each["worse_rows"]],
        )
        for each in comparisons
    ]


def rows_note(comparison: Mapping[str, Any]) -> str:
    """Which rows are compared, and which are left out."""
    task, against = comparison["task"], comparison["against"]
    left_out = [
        f"{comparison[key]:,} with an error in {where}"
        for key, where in (("errors", f"{task} alone"), ("errors_against", f"{against} alone"), ("errors_both", "both"))
        if comparison[key]
    ]
    if not left_out:
        return f"{comparison['rows']:,} rows of both"
    compared = comparison["rows"] - sum(comparison[key] for key in ("errors", "errors_against", "errors_both"))
    return f"{compared:,} of {comparison['rows']:,} rows of both; left out: {', '.join(left_out)}"


def sentence(comparison: Mapping[str, Any]) -> str:
    """What is real of a comparison: `tuned against base, row by row: exact_match +0.05 (95 %: +0.038 to +0.063): better`."""
    said = []
    for figure in comparison["figures"]:
        bounds = interval_text(figure["interval"])
        within = f" (95 %: {bounds})" if bounds else ""
        said.append(f"{figure['figure']} {difference_text(figure['difference'])}{within}: {verdict(figure)}")
    return f"{comparison['task']} against {comparison['against']}, row by row: {'; '.join(said)}"


def verdict(figure: Mapping[str, Any]) -> str:
    """Whether a difference is real, in a word or two."""
    if figure["real"] is None:
        return "too few rows"
    if not figure["real"]:
        return "no real difference"
    return "better" if figure["better"] else "worse"


def title_of(figure: str) -> str:
    """The title of a figure; its name where this version does not know it: reports outlive versions."""
    return FIGURES[figure].title if figure in FIGURES else figure


def value_text(figure: str, value: float | None) -> str:
    return FIGURES[figure].text(value) if figure in FIGURES else number(value, 4)


def difference_text(value: float | None) -> str:
    """A difference with its sign."""
    if value is None:
        return "–"
    return f"{'−' if value < 0 else '+'}{number(abs(value))}" if value else "±0"


def interval_text(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else " to ".join(difference_text(bound) for bound in bounds)


def paired_figure(figure: Mapping[str, Any]) -> PairedFigure:
    """A figure of a comparison as report.json holds it, for a table."""
    said = verdict(figure)
    return PairedFigure(
        title=title_of(figure["figure"]),
        value=value_text(figure["figure"], figure["value"]),
        against=value_text(figure["figure"], figure["against"]),
        difference=difference_text(figure["difference"]),
        interval=interval_text(figure["interval"]),
        verdict=said,
        style=said if said in ("better", "worse") else "",
        outcomes=f"{figure['wins']:,} / {figure['ties']:,} / {figure['losses']:,}",
    )


def _row(row: Mapping[str, Any], outcome: str) -> PairedRow:
    """`outcome`: better or worse, by the first metric that differs. Figures with another outcome come last, and say so."""
    names = [name for name in row["values"] if name in row["values_against"]]
    by_outcome: dict[str, list[str]] = {outcome: []}
    for name in names:
        said = f"{name} {number(row['values'][name])} against {number(row['values_against'][name])}"
        by_outcome.setdefault((row.get("outcomes") or {}).get(name, outcome), []).append(said)
    values = "; ".join(f"{'' if each == outcome else f'{each}: '}{', '.join(said)}" for each, said in by_outcome.items() if said)
    return PairedRow(
        title=f"row {row['row']}: {values}",
        prompt=_text(row["prompt"]),
        reference=_text(row["reference"]),
        output=_text(row["output"]),
        against=_text(row["against"]),
        judged=_text(row.get("judged")),
        judged_against=_text(row.get("judged_against")),
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text):,} characters)"
