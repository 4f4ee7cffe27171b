"""The hub's memory of attempts on one member, beside the objects in its caches: one record per attempt, in one table.

The first event about an attempt, or the first `recall`, makes its record. `forget` drops the record once all objects of the attempt are
removed: when the job's status says so, or when the sweep has removed an attempt without a JobSpec.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import AttemptReport, AttemptState, Metadata
from tuneyard.api.attempt_report import AttemptGoal
from tuneyard.api.wire import read
from tuneyard.kubernetes import unreadable
from tuneyard_operators.kube import Key
from tuneyard_operators.rendering import ATTEMPT, JOB, NAMESPACE_LABEL, TASK, UID, attempt_name

log = logging.getLogger(__name__)
Object = dict[str, Any]


@dataclass(slots=True)
class AttemptRecord:
    job: Key | None = None
    """Key of the attempt's JobSpec, known from the labels of the attempt's objects."""
    pods: set[Key] = field(default_factory=set)
    """Keys of the attempt's pods in the cache."""
    remains: dict[str, Object] = field(default_factory=dict)
    """Failed pods by name, as last seen. They are kept because KubeRay replaces failed pods at once."""
    spoken_s: float | None = None
    """When the report last changed, or when `silent_s` was first called; by the clock of the event loop."""
    report: tuple[str, AttemptReport, str] | None = None
    """resourceVersion of the report, the report, and its unreadable fields in words."""
    refusal: str = ""
    """Why the member refuses the attempt's RayJob; empty if it does not."""


class AttemptRecords:
    """The records of all attempts on one member, by the attempt's name."""

    def __init__(self) -> None:
        self._records: dict[str, AttemptRecord] = {}
        self._deaf_until_s = 0.0

    def recall(self, attempt: str) -> AttemptRecord:
        """The record of an attempt, made if there is none."""
        found = self._records.get(attempt)
        if found is None:
            self._records[attempt] = found = AttemptRecord()
        return found

    def forget(self, attempt: str) -> None:
        """Drop the record of an attempt whose objects are all removed."""
        self._records.pop(attempt, None)

    def jobs(self) -> Iterator[tuple[str, Key]]:
        """Names of recorded attempts with a known job, each with the key of that job."""
        return ((name, record.job) for name, record in self._records.items() if record.job is not None)

    def has_pods(self, attempt: str) -> bool:
        """Whether the attempt still has pods."""
        record = self._records.get(attempt)
        return record is not None and bool(record.pods)

    def hear_again(self, now_s: float) -> None:
        """Count silence from now on: the hub could not read the member until now."""
        self._deaf_until_s = now_s

    def silent_s(self, attempt: str, now_s: float) -> float:
        """Seconds since the report of an attempt last changed, or since the first call for the attempt; without times in which the hub
        could not have heard it.
        """
        record = self.recall(attempt)
        if record.spoken_s is None:
            record.spoken_s = now_s
        return now_s - max(record.spoken_s, self._deaf_until_s)

    def report(self, attempt: str, item: Object | None) -> tuple[AttemptReport | None, str]:
        """The report of an attempt, and its unreadable fields in words; parsed once per version. Shared: callers must not change it."""
        if item is None:
            return None, ""
        record = self.recall(attempt)
        version = item["metadata"]["resourceVersion"]
        if record.report is None or record.report[0] != version:
            record.report = (version, *report_of(item))
        return record.report[1], record.report[2]

    def take_in_report(self, attempt: str, job: Key | None, now_s: float) -> None:
        """Record that an attempt's report has changed."""
        record = self.recall(attempt)
        record.spoken_s, record.job = now_s, job or record.job

    def take_in_pod(self, key: Key, old: Object | None, new: Object | None) -> bool:
        """Record a pod that was created, changed or deleted (`new` is None). False if it belongs to no attempt."""
        pod = new or old or {}
        attempt = attempt_of(pod)
        if attempt is None:
            return False
        record = self.recall(attempt)
        record.job = job_of(pod) or record.job
        if new is None:
            record.pods.discard(key)
        else:
            record.pods.add(key)
            if _has_failed(new):
                record.remains[key[1]] = new
        return True


def report_of(item: Object) -> tuple[AttemptReport, str]:
    """The readable part of an attempt's report, and its unreadable fields in words."""
    goal = read(AttemptGoal, item.get("spec")).value
    state = read(AttemptState, item["status"]) if item.get("status") else None
    problems = unreadable(item).get("status", "") or (state.problems if state is not None else "")
    if problems:
        log.warning("the report %s cannot be read in full: %s", item["metadata"]["name"], problems)
    report = AttemptReport(metadata=Metadata(name=item["metadata"]["name"]), spec=goal, status=state.value if state is not None else None)
    return report, problems


def job_of(item: Mapping[str, Any]) -> Key | None:
    """The key of the JobSpec that an object belongs to, by its labels."""
    labels = item.get("metadata", {}).get("labels") or {}
    return (labels.get(NAMESPACE_LABEL, ""), labels[JOB]) if JOB in labels else None


def attempt_of(pod: Mapping[str, Any]) -> str | None:
    """The name of the attempt that a pod belongs to, by its labels."""
    labels = pod.get("metadata", {}).get("labels") or {}
    try:
        return attempt_name(labels[JOB], labels[UID], labels[TASK], int(labels[ATTEMPT]))
    except (KeyError, ValueError):
        return None


def _has_failed(pod: Mapping[str, Any]) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    ended = any((status.get("state", {}).get("terminated") or {}).get("exitCode", 0) for status in statuses)
    put_out = any(c["type"] == "DisruptionTarget" for c in pod.get("status", {}).get("conditions") or [])
    return ended or put_out or pod.get("status", {}).get("phase") == "Failed"
