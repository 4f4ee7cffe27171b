"""Attempts that are played: a thread that reports for every RayJob of a member as its pods would, one step at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import urllib3
from tests.clusters.hubs import API, JOBS, RAYJOBS
from tests.testcluster import Member
from tests.testcluster.kubeapi import Refused

from tuneyard_operators.rendering import JOB, TASK

REPORTS = f"{API}/namespaces/{JOBS}/attemptreports"
_STEP_S = 0.3
_CHECKPOINT_EVERY = 5


@dataclass
class Player:
    """The sets name jobs, and may change while it plays.

    `silent`: their pods have not come up. `deaf`: they do not answer a request to stop. `ends`: they succeed with their next report;
    also a task of a job (`job/task`), or all runs of a Schedule, by its name.
    `figures`: figures of a run, by its name, that it reports when it succeeds.
    `fails`: each of their attempts is lost with its node, until the job is taken out.
    """

    member: Member
    silent: set[str] = field(default_factory=set)
    deaf: set[str] = field(default_factory=set)
    ends: set[str] = field(default_factory=set)
    fails: set[str] = field(default_factory=set)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    finale: bool = False
    """Every attempt succeeds with its next report."""
    steps: dict[str, int] = field(default_factory=dict)
    """Attempt -> steps done."""

    def play(self) -> None:
        """Report once for each RayJob."""
        for item in self.member.api.get(RAYJOBS)["items"]:
            labels = item["metadata"].get("labels") or {}
            if JOB in labels and labels[JOB] not in self.silent and "deletionTimestamp" not in item["metadata"]:
                with contextlib.suppress(Refused):  # a report that its hub removes at this moment
                    self._report(item["metadata"]["name"], labels)

    def _report(self, attempt: str, labels: dict[str, str]) -> None:
        found = self.member.api.find(f"{REPORTS}/{attempt}")
        if found is None:
            metadata = {"name": attempt, "labels": labels}
            found = self.member.api.create(REPORTS, {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "AttemptReport", "metadata": metadata})
        if (found.get("status") or {}).get("phase") in (None, "Starting", "Running"):
            asked = bool((found.get("spec") or {}).get("stop"))
            self.member.api.patch(f"{REPORTS}/{attempt}/status", {"status": self._state(attempt, labels[JOB], labels[TASK], asked)})

    def _state(self, attempt: str, job: str, task: str, asked: bool) -> dict[str, Any]:
        step = self.steps[attempt] = self.steps.get(attempt, 0) + 1
        state = {"progress": {"step": step, "of": 10_000}, "checkpointStep": step - step % _CHECKPOINT_EVERY}
        if job in self.fails:
            return {"phase": "Failed", "failure": {"kind": "NodeLost", "message": "GPU 3 fell off the bus"}, **state}
        if asked and job not in self.deaf:
            return {"phase": "Cancelled", **state}
        if self.finale or self.ends & {job, f"{job}/{task}", job.rpartition("-")[0]}:
            return {"phase": "Succeeded", "metrics": self.figures.get(job, {}), **state}
        return {"phase": "Running", **state}


@contextmanager
def playing(player: Player) -> Iterator[Player]:
    """Reports go out all the while."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(_STEP_S):
            with contextlib.suppress(urllib3.exceptions.HTTPError, Refused):
                player.play()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield player
    finally:
        over.set()
        thread.join()
