"""Jobs of a hub in lists, from the objects as the API server answers them: a list of 10,000 is not validated field by field. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuneyard.tracking.progress.words import first_line

WAITING = ("Pending", "Queued", "Preempted")
AT_WORK = ("Starting", "Running")
ENDED = ("Succeeded", "Failed", "Cancelled")
_PRIORITIES = ("low", "normal", "high", "urgent")
_YEARS = range(1970, 9999)


@dataclass(frozen=True)
class HubRow:
    """A JobSpec. `state`: its phase, or the cancellation or hold that is under way. `why`: the operator's message in one line."""

    name: str
    namespace: str
    team: str
    state: str
    phase: str
    priority: str
    why: str
    place: str
    gpus: int
    progress: str
    gpu_hours: float
    created_at: datetime
    ended_at: datetime | None
    starts_at: datetime | None

    @property
    def waits(self) -> bool:
        return self.phase in WAITING


def rows_of(items: Iterable[Mapping[str, Any]]) -> list[HubRow]:
    """JobSpecs, whole or with the fields of lists alone, the newest first. One without the fields that all have is left out."""
    found = [row for row in map(_row, items) if row is not None]
    return sorted(found, key=lambda row: (row.created_at, row.namespace, row.name), reverse=True)


def queue_of(rows: Iterable[HubRow]) -> list[HubRow]:
    """Jobs that wait: by predicted start where there is one, then by priority, then the oldest first."""
    last = datetime.max.replace(tzinfo=None)

    def place(row: HubRow) -> tuple[datetime, int, datetime]:
        starts = row.starts_at.replace(tzinfo=None) if row.starts_at is not None else last
        urgency = _PRIORITIES.index(row.priority) if row.priority in _PRIORITIES else 1
        return starts, -urgency, row.created_at.replace(tzinfo=None)

    return sorted((row for row in rows if row.waits and row.state != "Cancelling"), key=place)


def matching(rows: Iterable[HubRow], text: str, state: str, team: str) -> list[HubRow]:
    """Rows with `text` in their name or namespace, of one phase and one team; an empty argument selects nothing."""
    wanted = text.lower()
    return [
        row
        for row in rows
        if wanted in f"{row.namespace}/{row.name}".lower()
        and (not state or row.phase.lower() == state.lower())
        and (not team or row.team == team)
    ]


def page_after(rows: Sequence[HubRow], after: str, size: int) -> tuple[Sequence[HubRow], str]:
    """`size` rows after the job `NAMESPACE/NAME`, and the mark of the next page; from the top where it is no longer there."""
    begin = next((index + 1 for index, row in enumerate(rows) if f"{row.namespace}/{row.name}" == after), 0)
    shown = rows[begin : begin + size]
    more = bool(shown) and begin + size < len(rows)
    return shown, f"{shown[-1].namespace}/{shown[-1].name}" if more else ""


def _row(item: Mapping[str, Any]) -> HubRow | None:
    metadata, spec, status = item.get("metadata") or {}, item.get("spec") or {}, item.get("status") or {}
    created = moment_of(metadata.get("creationTimestamp"))
    if created is None or "name" not in metadata:
        return None
    phase = str(status.get("phase") or "Pending")
    placement = status.get("placement") or {}
    at_work = phase in AT_WORK
    return HubRow(
        name=str(metadata["name"]),
        namespace=str(metadata.get("namespace", "")),
        team=str(spec.get("team") or metadata.get("namespace", "")),
        state=_state(metadata, spec, phase),
        phase=phase,
        priority=str(spec.get("priority") or "normal"),
        why=first_line(str(status.get("message") or "")),
        place=str(placement.get("cluster", "")) if at_work else "",
        gpus=int(placement.get("gpus") or 0) if at_work else 0,
        progress=str((status.get("progress") or {}).get("summary") or ""),
        gpu_hours=float((status.get("usage") or {}).get("gpuHours") or 0.0),
        created_at=created,
        ended_at=moment_of(status.get("finishedAt")),
        starts_at=moment_of(status.get("expectedStart")) if phase in WAITING else None,
    )


def _state(metadata: Mapping[str, Any], spec: Mapping[str, Any], phase: str) -> str:
    if "deletionTimestamp" in metadata:
        return "Deleting"
    if spec.get("cancelled") and phase not in ENDED:
        return "Cancelling"
    return "Suspended" if spec.get("suspend") and phase in WAITING else phase


def moment_of(text: object) -> datetime | None:
    """The moment of an RFC 3339 text; None for another text, and for a year outside _YEARS: not every time zone can show such a moment."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None and moment.year in _YEARS else None
