"""A Schedule as views show it: of a hub, or of this machine. Both keep the same object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tuneyard.api.moments import moment_of
from tuneyard.api.schedule_status import ScheduledRun, ScheduleStatus
from tuneyard.api.wire import read
from tuneyard.schedules.outcomes import REGRESSED

BAD = ("regressed", "failed", "missed")
"""Verdicts of runs that somebody should look at."""


@dataclass(frozen=True)
class ScheduleView:
    """One Schedule. `regressed`: None where nothing was measured; `runs`: the newest due first."""

    name: str
    namespace: str
    cron: str
    zone: str
    suspended: bool
    watched: tuple[str, ...]
    created: datetime
    status: ScheduleStatus
    spec: Mapping[str, Any]

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> ScheduleView:
        """The view of a Schedule object. What cannot be read of it is left out."""
        metadata, spec = item["metadata"], item.get("spec") or {}
        regression = spec.get("regression")
        return cls(
            name=str(metadata["name"]),
            namespace=str(metadata.get("namespace") or "default"),
            cron=str(spec.get("cron") or ""),
            zone=str(spec.get("timeZone") or "UTC"),
            suspended=spec.get("suspend") is True,
            watched=tuple(regression) if isinstance(regression, Mapping) else (),
            created=_moment(metadata.get("creationTimestamp")),
            status=read(ScheduleStatus, item.get("status")).value,
            spec=spec,
        )

    @property
    def runs(self) -> list[ScheduledRun]:
        return sorted(self.status.runs, key=lambda run: (run.due, run.started_at or ""), reverse=True)

    @property
    def last(self) -> ScheduledRun | None:
        """The run with a verdict that was due last."""
        return next((run for run in self.runs if run.verdict), None)

    @property
    def last_due(self) -> str | None:
        """When the last run was due: the one with the last verdict, or before any verdict the newest that has started."""
        return self.last.due if self.last is not None else self.status.last_run

    @property
    def regressed(self) -> bool | None:
        condition = next((each for each in self.status.conditions if each.type == REGRESSED), None)
        return {"True": True, "False": False}.get(condition.status) if condition is not None else None

    @property
    def is_bad(self) -> bool:
        """Whether somebody should look at the last run."""
        return self.last is not None and self.last.verdict in BAD


def _moment(text: Any) -> datetime:
    try:
        return moment_of(text) if isinstance(text, str) else datetime.fromtimestamp(0, UTC)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
