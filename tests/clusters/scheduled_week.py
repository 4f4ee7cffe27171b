"""Nights of Schedules on a real hub, which is a process of its own, over real member clusters. The clock of Schedules is handed in.

Attempts end by themselves: a `Player` reports for each RayJob of a member, with the figures of the night. The hub is killed with SIGKILL
at random moments, and started again.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import urllib3
from tests.clusters.clocked_hub import CLOCK, set_clock
from tests.clusters.hubs import API, Operator, rayjobs, until
from tests.clusters.players import Player
from tests.testcluster.clusters import Clusters
from tests.testcluster.kubeapi import Refused

from tuneyard.api.moments import moment_of
from tuneyard.schedules.view import ScheduleView
from tuneyard_operators.rendering import JOB

SCHEDULES = f"{API}/namespaces/default/schedules"
ROWS = 1000
_LIMIT_S = 600
"""A hub that was killed leads again after 15 s, the time of its lease."""
TASK = {
    "name": "judge",
    "score": {
        "model": {"name": "Qwen/Qwen2.5-1.5B"},
        "data": {"source": "s3://logs/date={{ run.date - 1d }}", "prompt": "question", "reference": "answer"},
        "metrics": ["exact_match"],
    },
    "resources": {"sku": ["h100-80gb"]},
}


def estimate(value: float) -> dict[str, float]:
    """A share of `ROWS` rows, as an attempt reports it: with the bounds of its interval at 95 %."""
    half = 1.96 * (value * (1 - value) / ROWS) ** 0.5
    return {"exact_match": value, "exact_match.low": value - half, "exact_match.high": value + half}


@dataclass
class Week:
    """`rayjobs`: names of all RayJobs that a member ever had, by the name of their run."""

    clusters: Clusters
    operator: Operator
    players: list[Player]
    now: datetime
    rayjobs: dict[str, set[str]] = field(default_factory=dict)
    kills: int = 0
    value: float = 0.8
    ending: bool = True
    """Whether runs end by themselves, with `value` as their figure."""
    kept_open: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Of the hub's process."""

    # --- the clock

    def at(self, moment: datetime) -> None:
        """Set the clock, and wait until the hub has looked at every Schedule since."""
        self.now = moment
        set_clock(self.operator.folder / "clock", moment)
        self.until(lambda: all(view.suspended or self._is_past(view, moment) for view in self.views()), f"the hub has looked at {moment}")

    @staticmethod
    def _is_past(view: ScheduleView, moment: datetime) -> bool:
        return bool(view.status.next_run) and moment_of(str(view.status.next_run)) > moment

    def away_until(self, moment: datetime) -> None:
        """The hub is away until the clock shows `moment`."""
        with self._lock:
            self.operator.kill()
            set_clock(self.operator.folder / "clock", moment)
            self.operator.start()
            self.kills += 1
        self.at(moment)

    def kill(self) -> None:
        """SIGKILL of the hub, which comes back at once."""
        with self._lock:
            self.operator.kill()
            self.operator.start()
            self.kills += 1

    # --- what people see and do

    def put(self, name: str, **spec: Any) -> None:
        """Apply a Schedule that is paused: nothing of the time until now is due."""
        goal = {"template": {"spec": {"tasks": [TASK]}}, "suspend": True, **spec}
        item = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": name, "namespace": "default"}, "spec": goal}
        self.clusters.hub.apply(item)
        self.until(lambda: self.view(name).status.message == "suspended", f"{name} is paused")

    def resume(self, name: str) -> None:
        """Resume a paused Schedule, and wait until the hub follows it: what falls due from now on runs."""
        self.change(name, suspend=False)
        self.until(lambda: self.view(name).status.next_run, f"{name} is followed")

    def change(self, name: str, **spec: Any) -> None:
        self.clusters.hub.api.patch(f"{SCHEDULES}/{name}", {"spec": spec})

    def view(self, name: str) -> ScheduleView:
        return ScheduleView.of(self.clusters.hub.api.get(f"{SCHEDULES}/{name}"))

    def views(self) -> list[ScheduleView]:
        return [ScheduleView.of(item) for item in self.clusters.hub.api.get(SCHEDULES)["items"]]

    def settled(self, name: str) -> list[tuple[datetime, str, str]]:
        """(due, kind, verdict) of each run, oldest first, once none goes on but those that are kept open."""

        def runs() -> list[tuple[datetime, str, str]] | None:
            view = self.view(name)
            backfill = view.spec.get("backfill")
            status = view.status
            if any(run.verdict == "" and run.name not in self.kept_open for run in status.runs):
                return None
            if backfill and not (status.backfill and status.backfill.done):
                return None
            return sorted((moment_of(run.due), run.kind, run.verdict) for run in status.runs)

        return list(self.until(runs, f"the runs of {name} end"))

    def run_of(self, name: str, due: datetime) -> str:
        """The name of the scheduled run that was due at this time."""
        return next(run.name for run in self.view(name).status.runs if moment_of(run.due) == due and run.kind == "scheduled")

    def until(self, condition: Any, what: str) -> Any:
        """As `tests.clusters.hubs.until`, over an API server that may not answer for a moment. A failure shows the end of the hub's log."""

        def asked() -> Any:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                return condition()

        try:
            return until(asked, what, _LIMIT_S)
        except AssertionError as error:
            jobs = self.clusters.hub.kubectl("get", "jobspecs", "-o", "yaml")
            raise AssertionError(f"{error}\n{jobs[-6000:]}\n{self.operator.log[-4000:]}") from error

    # --- attempts

    def report(self) -> None:
        """Reports of all attempts of runs that may end."""
        for player in self.players:
            for item in rayjobs(player.member):
                run = (item["metadata"].get("labels") or {}).get(JOB, "")
                self.rayjobs.setdefault(run, set()).add(item["metadata"]["name"])
                if self.ending and run not in self.kept_open:
                    player.figures.setdefault(run, estimate(self.value))
                    player.ends.add(run)
            player.play()


@contextmanager
def week_on(clusters: Clusters, now: datetime) -> Iterator[Week]:
    """A hub that runs over these clusters, and attempts that report. `tests.clusters.hubs.prepared` has made the clusters ready."""
    clock = clusters.hub.folder / "clock"
    set_clock(clock, now)
    operator = Operator(clusters.hub.folder, clusters.hub.kubeconfig, module="tests.clusters.clocked_hub", environment={CLOCK: str(clock)})
    week = Week(clusters, operator, [Player(member) for member in clusters.members], now)
    over = threading.Event()

    def report() -> None:
        while not over.wait(0.3):
            with contextlib.suppress(urllib3.exceptions.HTTPError, Refused):
                week.report()

    thread = threading.Thread(target=report, daemon=True)
    week.operator.start()
    thread.start()
    try:
        yield week
    finally:
        week.clusters.hub.kubectl("delete", "schedules", "--all", "-A", "--wait=false")
        over.set()
        thread.join()
        week.operator.kill()


@contextmanager
def killed_at_random(week: Week, every_s: tuple[float, float], seed: int) -> Iterator[None]:
    """The hub is killed again and again, each time after it has led for a random time between the two."""
    over, chance = threading.Event(), random.Random(seed)

    def kill() -> None:
        led = 0
        while not over.wait(0.2):
            if (now := week.operator.log.count(" leading as ")) > led:
                led = now
                if over.wait(chance.uniform(*every_s)):
                    return
                week.kill()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def doubled(week: Week) -> Mapping[str, set[str]]:
    """Runs that had more than one RayJob. Empty where every run was started once."""
    return {run: names for run, names in week.rayjobs.items() if len(names) > 1}
