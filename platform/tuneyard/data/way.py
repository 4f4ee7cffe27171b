"""How the rows of a data set are made, as a run keeps it: `ways` chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Way:
    """`streamed`: rows are made while the task trains. `rows`: rows of one pass of a prepared part of a mixture, estimated as for a stream;
    None: as many as the order of its rows has. `all_held_out`: a stream evaluates on all samples that are held out, as prepared data do,
    and not on those of its first splits. `among`: data sets that share what is read before the first step. The order of rows depends on it.
    """

    streamed: bool
    rows: int | None = None
    all_held_out: bool = False
    among: int = 1


Ways = Mapping[str, Way]
"""The way of each data set, by the name of its part in a mixture (empty for one data set), and of `data.validation` under VALIDATION."""
VALIDATION = "data/validation"
"""No part of a mixture has a slash in its name."""


def ways_before(cursors: Mapping[str, Any], told: Mapping[str, Any] | None) -> dict[str, Way]:
    """The ways of an earlier attempt. `told`: its record of them; without one, its cursors tell, and rows were never estimated for prepared
    parts.
    """
    if told is not None:
        return {name: Way(**way) for name, way in told.items()}
    return {name: Way("order" not in cursor) for name, cursor in cursors.items()}
