"""Model against model on the page of a run: its score tasks on the same rows, compared row by row, as its report has them. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.console.local.run_record import RunRecord
from tuneyard.tracking.paired_rows import PairedFigure, paired_figure, rows_note
from tuneyard.tracking.report import json_safe

_LOG = logging.getLogger(__name__)
_WRONG = (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError)


@dataclass(frozen=True)
class Pair:
    """A score task compared with another of its run. `sides`: both as `/score` names them, the other one first. `better_rows`,
    `worse_rows`: numbers of the rows in which the task differs by most."""

    task: str
    against: str
    note: str
    figures: list[PairedFigure]
    sides: list[str]
    better_rows: list[int]
    worse_rows: list[int]


def pairs_of(record: RunRecord) -> list[Pair]:
    """The comparisons of a run. One that cannot be read is left out: reports outlive versions."""
    found = []
    for each in record.comparisons:
        try:
            found.append(_pair(record, json_safe(each)))
        except _WRONG as error:
            _LOG.warning("a comparison of run %s cannot be shown: %s", record.run.id, error)
    return [pair for pair in found if {pair.task, pair.against} <= record.tasks.keys()]


def _pair(record: RunRecord, told: Mapping[str, Any]) -> Pair:
    task, against = str(told["task"]), str(told["against"])
    return Pair(
        task=task,
        against=against,
        note=rows_note(told),
        figures=[paired_figure(figure) for figure in told["figures"]],
        sides=[f"{record.run.id}/{each}" for each in (against, task)],
        better_rows=[int(row["row"]) for row in told["better_rows"]],
        worse_rows=[int(row["row"]) for row in told["worse_rows"]],
    )
