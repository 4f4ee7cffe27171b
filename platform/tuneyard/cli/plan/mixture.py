"""Mixtures in `tuneyard plan`: rows, share and passes of each part over the planned steps, beside the share by weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from tuneyard.cli.output import table_lines
from tuneyard.cli.plan.text import WIDTH

if TYPE_CHECKING:
    from tuneyard.data.mixture import Mixture

_FAR = 2.0
"""A share that differs from its weight by this factor."""


@dataclass(frozen=True)
class PlannedPart:
    """One part. `rows`: its rows in the planned steps. `share`: their share (0..1). `weight`: the share by weights and temperature.
    `passes`: passes over the rows of the part."""

    name: str
    rows: int
    share: float
    weight: float
    passes: float

    @property
    def far(self) -> bool:
        """Whether the share is a factor of 2 from the weight, or more."""
        return not 1 / _FAR < self.share / self.weight < _FAR


def planned_parts(mixture: Mixture, steps: float, batch: int) -> tuple[PlannedPart, ...]:
    """The parts over `steps` of `batch` rows. Empty for no steps."""
    planned = round(steps) * batch
    if planned < 1:
        return ()
    each = zip(mixture.parts, mixture.counts(0, planned), mixture.shares, strict=True)
    return tuple(PlannedPart(part.name, rows, rows / planned, weight, rows / part.rows) for part, rows, weight in each)


def mixture_fields(parts: Sequence[PlannedPart]) -> dict[str, Any]:
    """The field `mixture` of a row of `tuneyard plan`. None for one data set, and where rows are unknown."""
    return {"mixture": [{**asdict(part), "far_from_weight": part.far} for part in parts] or None}


def mixture_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of the parts, and a warning where shares are far from weights; empty for one data set."""
    parts = next((row["mixture"] for row in rows if row.get("mixture")), None)
    if parts is None:
        return []
    cells = [
        {
            "part": part["name"],
            "rows": f"{part['rows']:,}",
            "share": f"{part['share']:.1%}",
            "by weight": f"{part['weight']:.1%}",
            "passes": f"{part['passes']:.2f}",
        }
        for part in parts
    ]
    far = [f"{part['name']} {part['share']:.1%} instead of {part['weight']:.1%}" for part in parts if part["far_from_weight"]]
    lines = table_lines(("part", "rows", "share", "by weight", "passes"), cells, right=("rows", "share", "by weight", "passes"))
    if not far:
        return ["", *lines]
    why = "a part whose rows are exhausted gives its places to the others"
    step = "give small parts more repeats or less weight, or set whenExhausted: repeat or stop"
    warning = f"warning: shares of rows are far from the weights: {', '.join(far)}; {why}: {step}"
    return ["", *lines, *wrap(warning, WIDTH, subsequent_indent="  ")]
