"""Milestones of the start of an attempt, from its RayJob and pods, by the member's clocks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tuneyard.api import PlacementStatus
from tuneyard.api.moments import moment_of
from tuneyard.api.status import StartTimes
from tuneyard_operators.hub.observed import Observed

Pod = Mapping[str, Any]


def start_times(known: StartTimes | None, seen: Observed, placement: PlacementStatus | None) -> StartTimes | None:
    """`known` with the milestones that are seen now. A milestone keeps its first value; one of the gang is there once all pods have it."""
    before = known or StartTimes()
    if before.ready_at is not None:
        return before
    pods = seen.without_data_pods.pods
    whole = placement is not None and len(pods) >= 1 + placement.pods
    found = {
        "created_at": _valid((seen.rayjob or {}).get("metadata", {}).get("creationTimestamp")),
        "scheduled_at": _last(pods, _scheduled) if whole else None,
        "running_at": _last(pods, _running) if whole else None,
        "ready_at": _last(pods, _ready) if whole else None,
    }
    news = {name: at for name, at in found.items() if at is not None and getattr(before, name) is None}
    return before.model_copy(update=news) if news else known


def _last(pods: Sequence[Pod], moment: Callable[[Pod], str | None]) -> str | None:
    """The latest moment of all pods; None while one lacks it."""
    moments = [moment(pod) for pod in pods]
    known = [at for at in moments if at is not None]
    return max(known, key=moment_of) if len(known) == len(moments) and known else None


def _scheduled(pod: Pod) -> str | None:
    return _turned(pod, "PodScheduled")


def _ready(pod: Pod) -> str | None:
    return _turned(pod, "Ready")


def _turned(pod: Pod, kind: str) -> str | None:
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition.get("type") == kind and condition.get("status") == "True":
            return _valid(condition.get("lastTransitionTime"))
    return None


def _running(pod: Pod) -> str | None:
    """When the last container of a pod started; None while one has not."""
    statuses = pod.get("status", {}).get("containerStatuses") or []
    moments = list(_starts(statuses))
    return max(moments, key=moment_of) if moments and len(moments) == len(statuses) else None


def _starts(statuses: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for status in statuses:
        state = status.get("state") or {}
        at = _valid((state.get("running") or state.get("terminated") or {}).get("startedAt"))
        if at is not None:
            yield at


def _valid(text: Any) -> str | None:
    try:
        return text if isinstance(text, str) and moment_of(text) else None
    except ValueError:
        return None
