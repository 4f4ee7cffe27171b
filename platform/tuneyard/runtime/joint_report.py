"""Writes the report of a job whose tasks run in clusters of their own, several at once, and share only the output.

Each driver writes its section, `<task>/report.json`, and then joins all sections to report.json. Afterwards it reads the sections again,
and if one has changed meanwhile, it joins them again. The last driver to end therefore always leaves a complete report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tuneyard.api import JobSpec
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.score.comparing import with_comparisons
from tuneyard.storage import NotFound
from tuneyard.tracking import Report, write_report
from tuneyard.tracking.report import json_safe

SECTION = "report.json"
Section = dict[str, Any]
"""attempt; status, message, started_at, wall_s: of the driver's run; task: the entry of its task in report.json."""


class JointReport:
    """Writes the report of `job` as the driver of one attempt at one task. It is never required: result.json also records a success."""

    required: tuple[str, ...] = ()

    def __init__(self, output: JobOutput, job: JobSpec, task: str, attempt: int) -> None:
        self._output = output
        self._job = job
        self._task = task
        self._attempt = attempt

    def write(self, own: Report) -> Report:
        """Put this task's part of `own` into the report of the whole job. Returns the joined report. Raises StorageError."""
        sections = self._read()
        if sections.get(self._task, {}).get("attempt", 0) <= self._attempt:
            run = {"status": own.status, "message": own.message, "started_at": own.started_at, "wall_s": own.wall_s}
            mine = {"attempt": self._attempt, **run}
            section = json_safe({**mine, "task": own.tasks[self._task]})
            self._output.store.put(f"{self._task}/{SECTION}", json.dumps(section).encode())
        while True:
            sections = self._read()
            report = joined(own, [task.name for task in self._job.spec.task_order()], sections, datetime.now(UTC))
            report = with_comparisons(report, self._output.store)
            write_report(self._output.store, report)
            if _marks(self._read()) == _marks(sections):
                return report

    def _read(self) -> dict[str, Section]:
        sections = {}
        for task in self._job.spec.tasks:
            try:
                sections[task.name] = json.loads(self._output.store.get(f"{task.name}/{SECTION}"))
            except NotFound:
                continue
        return sections


def _marks(sections: Mapping[str, Section]) -> dict[str, tuple[int, str]]:
    return {name: (section["attempt"], section["status"]) for name, section in sections.items()}


def joined(own: Report, order: list[str], sections: Mapping[str, Section], now: datetime) -> Report:
    """One report of all sections. A task without a section has not started. Pure."""
    tasks = {name: sections[name]["task"] if name in sections else own.tasks[name] for name in order}
    found = [sections[name] for name in order if name in sections]
    status = _status([section["status"] for section in found], complete=len(found) == len(order))
    message = next((section["message"] for section in found if section["status"] == status and section["message"]), "")
    started_at = min((section["started_at"] for section in found), default=own.started_at)
    wall_s = (_end(found, now) - datetime.fromisoformat(started_at)).total_seconds() if started_at else own.wall_s
    return replace(own, tasks=tasks, status=status, message=message, started_at=started_at, wall_s=wall_s)


def _end(sections: Sequence[Section], now: datetime) -> datetime:
    """End of the last driver; `now` while one runs, and if one of an earlier version has not said how long it took."""
    ends = [
        datetime.fromisoformat(section["started_at"]) + timedelta(seconds=section["wall_s"])
        for section in sections
        if section["status"] != "running" and section.get("wall_s") is not None
    ]
    return max(ends) if ends and len(ends) == len(sections) else now


def _status(statuses: list[str], *, complete: bool) -> str:
    for status in ("failed", "stopped", "running"):
        if status in statuses:
            return status
    return "succeeded" if complete else "running"
