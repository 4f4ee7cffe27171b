"""Jobs of a hub in lists, from the cells that the API server answers: a list of 10,000 is not validated field by field. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from tuneyard.cluster.job_table import Facts
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
    holds: bool = False
    """Whether an attempt of it has GPUs: also one that has ended, and is not cleaned up yet."""

    @property
    def waits(self) -> bool:
        return self.phase in WAITING


def rows_of(jobs: Iterable[Facts]) -> list[HubRow]:
    """JobSpecs, the newest first. One without the fields that all have is left out."""
    found = [row for row in map(_row, jobs) if row is not None]
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


def _row(facts: Facts) -> HubRow | None:
    get = facts.get
    name, namespace, created = get("Name"), get("Namespace") or "", moment_of(get("Created"))
    if created is None or not name:
        return None
    phase = get("Phase") or "Pending"
    at_work, waits, message = phase in AT_WORK, phase in WAITING, get("Message")
    return HubRow(
        name=name,
        namespace=namespace,
        team=get("Team") or namespace,
        state=_state(facts, phase),
        phase=phase,
        priority=get("Priority") or "normal",
        why=first_line(message) if message else "",
        place=(get("Cluster") or "") if at_work else "",
        gpus=int(get("GPUs") or 0) if at_work else 0,
        progress=get("Progress") or "",
        gpu_hours=float(get("GPU hours") or 0.0),
        created_at=created,
        ended_at=moment_of(get("Ended")),
        starts_at=moment_of(get("Starts")) if waits else None,
        holds=bool(get("Holds")),
    )


def _state(facts: Facts, phase: str) -> str:
    if facts.get("Deleting"):
        return "Deleting"
    if facts.get("Cancelled") and phase not in ENDED:
        return "Cancelling"
    return "Suspended" if facts.get("Suspended") and phase in WAITING else phase


def moment_of(text: object) -> datetime | None:
    """The moment of an RFC 3339 text; None for another text, and for a year outside _YEARS: not every time zone can show such a moment."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None and moment.year in _YEARS else None
