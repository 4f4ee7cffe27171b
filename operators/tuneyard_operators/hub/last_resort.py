"""Ends a job that the hub cannot reconcile, from the few fields of its stored status that it needs for this. Pure.

The fields are read without a schema: phase, message, and the names, members and clean-up of attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from tuneyard.api import Phase
from tuneyard.api.secrets import redact
from tuneyard_operators.hub.clock import written
from tuneyard_operators.hub.guard import STALLED, with_stalled

Object = Mapping[str, Any]
FINAL = [str(phase) for phase in Phase if phase.final]


def is_deleted(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


def is_cancelled(item: Object) -> bool:
    """Whether the author has cancelled a job that has not ended."""
    return stored_spec(item).get("cancelled") is True and stored_status(item).get("phase") not in FINAL


def is_stalled(item: Object) -> bool:
    """Whether a job that has started waits for a person, as its conditions say."""
    told = [(each.get("type"), each.get("status")) for each in _mappings(stored_status(item).get("conditions"))]
    return any(stored_attempts(item)) and (("Valid", "False") in told or (STALLED, "True") in told)


def is_settled(item: Object) -> bool:
    """True if a job has ended, and all its attempts are cleaned up."""
    return stored_status(item).get("phase") in FINAL and not any(map(_has_objects, stored_attempts(item)))


def left_on_members(item: Object) -> Iterator[tuple[str, str]]:
    """Member and name of each attempt that may still have objects on its member."""
    for attempt in stored_attempts(item):
        placement, name = attempt.get("placement"), attempt.get("name")
        cluster = placement.get("cluster") if isinstance(placement, Mapping) else None
        if isinstance(cluster, str) and isinstance(name, str) and cluster and name and _has_objects(attempt):
            yield cluster, name


def _has_objects(attempt: Mapping[str, Any]) -> bool:
    return not attempt.get("cleaned") or bool(attempt.get("door"))


def cancelled_status(item: Object, reason: str, now: datetime) -> dict[str, Any]:
    """The change to the status of a cancelled job, once all its objects on members are removed."""
    ended = [
        {**attempt, "cleaned": True, "door": "", "endedAt": attempt.get("endedAt") or written(now)} for attempt in stored_attempts(item)
    ]
    return {
        **stalled_status(item, reason, now),
        "phase": str(Phase.CANCELLED),
        "message": "cancelled; its checkpoints are kept",
        "finishedAt": written(now),
        "observedGeneration": item["metadata"].get("generation", 0),
        "attempts": ended,
    }


def stalled_status(item: Object, reason: str, now: datetime) -> dict[str, Any]:
    """The change to the status of a job that the hub cannot reconcile; empty if the status says so already."""
    stored = stored_status(item).get("conditions")
    conditions = with_stalled(stored, reason, item["metadata"].get("generation", 0), now)
    return {"message": redact(reason), "conditions": conditions} if conditions != stored else {}


def stored_spec(item: Object) -> Mapping[str, Any]:
    """The spec of an object; empty if it is not a mapping."""
    spec = item.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def stored_status(item: Object) -> Mapping[str, Any]:
    """The status of an object; empty if it is not a mapping."""
    status = item.get("status")
    return status if isinstance(status, Mapping) else {}


def stored_attempts(item: Object) -> Iterator[Mapping[str, Any]]:
    return _mappings(stored_status(item).get("attempts"))


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())
