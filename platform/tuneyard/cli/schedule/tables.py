"""Rows about Schedules and their runs, for tables and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuneyard.api.schedule_status import ScheduledRun
from tuneyard.metrics import FIGURES
from tuneyard.schedules.view import ScheduleView

COLUMNS = ("name", "namespace", "cron", "zone", "suspended", "last_run", "verdict", "next_run", "active")
RUN_COLUMNS = ("run", "due", "kind", "phase", "verdict", "figures", "compared", "message")


def row(schedule: ScheduleView) -> dict[str, Any]:
    last = schedule.last
    return {
        "name": schedule.name,
        "namespace": schedule.namespace,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "suspended": schedule.suspended,
        "last_run": schedule.last_due,
        "verdict": last.verdict if last is not None else None,
        "next_run": schedule.status.next_run,
        "active": len(schedule.status.active),
    }


def run_row(run: ScheduledRun) -> dict[str, Any]:
    return {
        "run": run.name,
        "due": run.due,
        "kind": run.kind,
        "phase": run.phase,
        "verdict": run.verdict or None,
        "figures": ", ".join(_figures(run)) or None,
        "compared": compared(run),
        "message": run.message or None,
    }


def compared(run: ScheduledRun) -> str | None:
    """The run that it was compared with, and whether over the same rows, else why not."""
    if not run.compared_with:
        return None
    why = f": {run.rows_not_compared}" if run.rows_not_compared else ""
    return f"{run.compared_with}, {'same' if run.rows_compared_with else 'other'} rows{why}"


def _figures(run: ScheduledRun) -> Iterator[str]:
    """Each figure with its value, and with its task where there are several."""
    several = len({figure.task for figure in run.figures}) > 1
    for figure in run.figures:
        known = FIGURES.get(figure.name)
        value = known.text(figure.value) if known is not None else f"{figure.value:.4g}"
        yield f"{figure.task + ' ' if several else ''}{figure.name} {value}"


def facts(schedule: ScheduleView) -> dict[str, Any]:
    """A Schedule for programs."""
    status = schedule.status
    return {
        **row(schedule),
        "active": list(status.active),
        "regressed": schedule.regressed,
        "message": status.message,
        "watched": list(schedule.watched),
        "waiting": [each.model_dump(mode="json", by_alias=True) for each in status.waiting],
        "backfill": status.backfill.model_dump(mode="json", by_alias=True) if status.backfill is not None else None,
        "conditions": [each.model_dump(mode="json", by_alias=True) for each in status.conditions],
    }


def run_facts(run: ScheduledRun) -> dict[str, Any]:
    """A run for programs."""
    return run.model_dump(mode="json", by_alias=True)
