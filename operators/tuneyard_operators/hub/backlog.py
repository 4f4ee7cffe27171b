"""The waiting tasks of all jobs.

The record of a job holds its waiting tasks (`Demand.tasks`). The indexes here repeat their keys, so that a cycle does not walk over running
and ended jobs. Only `want` adds a task and only `drop` removes one; both keep indexes, records and scheduler consistent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tuneyard.federation import Ask, Scheduler, Undecidable, running_of
from tuneyard_operators.hub.corrections import Corrections
from tuneyard_operators.hub.decisions import Aside, TaskRecord, Verdict, with_owed
from tuneyard_operators.hub.explanations import Explanations, TaskKey
from tuneyard_operators.hub.records import JobRecord, JobRecords
from tuneyard_operators.kube import Key

_FIRST_ASIDE_S = 10.0
_LONGEST_ASIDE_S = 600.0


class Backlog:
    """`jobs`: the records with waiting tasks, by key; `teams`: waiting jobs per team that they name."""

    def __init__(self, records: JobRecords, corrections: Corrections) -> None:
        self.jobs: dict[Key, JobRecord] = {}
        self.teams: Counter[str] = Counter()
        self.explanations = Explanations(records)
        self._records = records
        self._corrections = corrections
        self._asides: set[TaskKey] = set()
        """Tasks that are set aside: their record has an `aside`."""

    def want(self, scheduler: Scheduler, key: Key, asks: Mapping[str, Ask], now: float, *, names_team: bool) -> bool:
        """Set the asks of a job, by task. True if an ask is new, so that a cycle is due."""
        record = self._records.recall(key) if asks else self._records.find(key)
        if record is None:
            return False
        tasks = record.demand.tasks
        for task in [task for task in tasks if task not in asks]:
            self.drop(scheduler, record, task, now)
        if asks:
            self.jobs[key] = record
        self._name_team(record, next(iter(asks.values())).team if asks and names_team else "")
        is_new = False
        for task, stored in asks.items():
            ask = with_owed(stored, tasks.get(task))
            if task not in tasks or tasks[task].ask != ask:
                is_new = True
                self._replace(scheduler, record, task, ask, now)
            if stored.owed_since is not None and tasks[task].owed_since is not None:  # its status says so now
                tasks[task] = replace(tasks[task], owed_since=None)
        return is_new

    def _replace(self, scheduler: Scheduler, record: JobRecord, task: str, ask: Ask, now: float) -> None:
        """Replace the ask of a task. Its placement is kept if the new ask allows it."""
        known = record.demand.tasks.get(task)
        self._asides.discard((record.key, task))
        if known is not None and known.still_suits(ask):
            record.demand.tasks[task] = replace(known, ask=ask, aside=None)
            return
        if known is not None and known.place is not None:
            scheduler.release(record.name, task, now)
        record.demand.tasks[task] = TaskRecord(ask, owed_since=known.owed_since if known is not None else None)
        scheduler.add(self._corrections.corrected(ask))
        self.explanations.add((record.key, task))

    def drop(self, scheduler: Scheduler, record: JobRecord, task: str, now: float) -> None:
        """Remove a task that no longer waits, here and from the scheduler, with its placement."""
        known = record.demand.tasks.pop(task)
        scheduler.withdraw(record.name, task)
        if known.place is not None:
            scheduler.release(record.name, task, now)
        self.explanations.drop((record.key, task))
        self._asides.discard((record.key, task))
        if not record.demand.tasks:
            del self.jobs[record.key]
            self._name_team(record, "")

    def _name_team(self, record: JobRecord, team: str) -> None:
        """Set the team that a waiting job names, and count it in `teams`."""
        before = record.demand.team
        if before == team:
            return
        record.demand.team = team
        if team:
            self.teams[team] += 1
        if before:
            self.teams[before] -= 1
            if not self.teams[before]:
                del self.teams[before]

    def take_back(self, scheduler: Scheduler, key: Key, task: str, now: float) -> bool:
        """Undo the placement of a victim that no status holds yet. False if there is none: the victim is an attempt in a status."""
        record = self.jobs.get(key)
        known = record.demand.tasks.get(task) if record is not None else None
        if record is None or known is None or known.place is None:
            return False
        scheduler.release(record.name, task, now)
        record.demand.tasks[task] = replace(known, place=None)
        scheduler.add(known.place.ask)
        self.explanations.add((key, task))
        return True

    def correct(self, scheduler: Scheduler, team: str) -> None:
        """Correct the asks of a team again, after its corrections have changed."""
        for record in self.jobs.values():
            for known in record.demand.tasks.values():
                if known.ask.team == team and _is_in_scheduler(known):
                    scheduler.add(self._corrections.corrected(known.ask))

    def tell(self, scheduler: Scheduler, now: float) -> None:
        """Give a new scheduler all asks, and all placements that no status holds yet."""
        for record in self.jobs.values():
            for known in record.demand.tasks.values():
                if known.place is not None:
                    scheduler.hold(replace(running_of(known.place, now), preemptible=False), now)
                elif _is_in_scheduler(known):
                    scheduler.add(self._corrections.corrected(known.ask))

    # --- asks that make cycles fail

    def set_aside(self, key: Key, error: Undecidable, now: float) -> None:
        """Withhold an ask from the scheduler after it made a cycle fail, for twice as long after each failure."""
        task = error.ask.task
        tasks = self.jobs[key].demand.tasks
        before = tasks[task].aside
        pause_s = min(_LONGEST_ASIDE_S, before.pause_s * 2 if before is not None else _FIRST_ASIDE_S)
        cause = f"{type(error.cause).__name__}: {error.cause}"
        verdict = Verdict(f"the hub cannot place it ({cause}), and tries again in {pause_s:.0f} s", None)
        tasks[task] = replace(tasks[task], verdict=verdict, aside=Aside(error.ask, pause_s, now + pause_s))
        self._asides.add((key, task))
        self.explanations.drop((key, task))

    def try_asides(self, scheduler: Scheduler, now: float) -> None:
        """Give the scheduler the set-aside asks whose pause is over."""
        for key, task in list(self._asides):
            tasks = self.jobs[key].demand.tasks
            aside = tasks[task].aside
            if aside is not None and now >= aside.again_at and tasks[task].place is None:
                tasks[task] = replace(tasks[task], aside=replace(aside, again_at=math.inf))
                scheduler.add(aside.ask)
                self.explanations.add((key, task))


def _is_in_scheduler(known: TaskRecord) -> bool:
    """Whether the scheduler has the ask of a task: no placement yet, and not set aside."""
    return known.place is None and (known.aside is None or known.aside.again_at == math.inf)
