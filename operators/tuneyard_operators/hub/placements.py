"""Connects jobs and scheduler: waiting tasks, allocated attempts, and decisions that no status holds yet.

In the order in which it happens:

1. `sync`: the stored status of a job names the attempts that hold GPUs; the scheduler allocates these GPUs.
2. `want`: reconciling a job gives the asks of its waiting tasks.
3. `cycle`: the scheduler decides. The record of each job keeps its decisions, and the job is reconciled again.
4. `decided`: that reconciliation takes in the decisions (`lifecycle.advance`), and stores the status.
5. `recorded`: a status holds the placement. Only now is the allocation of the decision released: `sync` has allocated the attempt itself
   before.

The scheduler gets changes only. All its facts come from JobSpecs, Clusters and Teams, so that the next leader has the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tuneyard.api import Cluster, JobStatus
from tuneyard.federation import (
    Ask,
    Place,
    Policy,
    Preempt,
    Running,
    Team,
    Undecidable,
    Wait,
    attempts_of,
    new_scheduler,
)
from tuneyard_operators.forecast_process import Starts
from tuneyard_operators.hub.backlog import Backlog
from tuneyard_operators.hub.corrections import Corrections
from tuneyard_operators.hub.decisions import Decided, Verdict
from tuneyard_operators.hub.explanations import has_moved
from tuneyard_operators.hub.member import Member
from tuneyard_operators.hub.placement_status import guessed_s, placement_of
from tuneyard_operators.hub.records import JobRecords
from tuneyard_operators.hub.supply import Supply
from tuneyard_operators.kube import Key
from tuneyard_operators.metrics import Waiting

log = logging.getLogger(__name__)


class Placements:
    """Bookkeeping around a `Scheduler`; one cycle at a time. Of the job records, it writes `demand` alone."""

    def __init__(self, policy: Policy, records: JobRecords) -> None:
        self.scheduler = new_scheduler(policy)
        self.supply = Supply()
        self.unfinished = False
        """Whether the last cycle left work that another cycle can continue at once."""
        self._records = records
        self._corrections = Corrections(enabled=policy.corrects_guesses)
        self._backlog = Backlog(records, self._corrections)

    @property
    def waiting(self) -> Collection[Key]:
        """Keys of jobs with tasks that wait for a placement, or whose placement no status holds yet."""
        return self._backlog.jobs.keys()

    # --- waiting tasks and allocated attempts

    def want(self, key: Key, asks: Mapping[str, Ask], now: float, *, names_team: bool = False) -> bool:
        """Set the asks of a job, by task. True if an ask is new, so that a cycle is due. `names_team`: the spec names the team."""
        return self._backlog.want(self.scheduler, key, asks, now, names_team=names_team)

    def recorded(self, key: Key, task: str, now: float) -> None:
        """Drop the decision about a task whose placement a status now holds."""
        record = self._records.find(key)
        if record is not None and task in record.demand.tasks:
            self._backlog.drop(self.scheduler, record, task, now)

    def sync(
        self, key: Key, spec: Mapping[str, Any], status: JobStatus | None, now: float, labels: Mapping[str, str] | None = None
    ) -> bool:
        """Allocate the GPUs of a job's attempts, by its stored status (None: the job is deleted). True if any GPUs became free."""
        record = self._records.recall(key) if status is not None else self._records.find(key)
        if record is None:
            return False
        demand, allocated = record.demand, set()
        if status is None:
            self._corrections.forget(record)
        elif (team := self._corrections.learn(record, spec, status, labels or {})) is not None:
            self._backlog.correct(self.scheduler, team)
        demand.victims = _open_notices(demand.victims, status)
        for attempt in attempts_of(record.name, spec, key[0], status, now, self._grace_s) if status is not None and status.attempts else ():
            if not attempt.stopping and _number(attempt) in demand.victims:  # a victim is not chosen again until its status says so
                attempt = replace(attempt, stopping=True, ends=now + self._grace_s)
            self.scheduler.hold(attempt, now)
            allocated.add(attempt.task)
        freed = demand.allocated - allocated
        for task in freed:
            self.scheduler.release(record.name, task, now)
        demand.allocated = frozenset(allocated)
        return bool(freed)

    @property
    def _grace_s(self) -> float:
        return self.scheduler.policy.grace_s

    def forget(self, key: Key, now: float) -> None:
        """Drop the asks and notices of a job that is deleted or over."""
        self.want(key, {}, now)
        record = self._records.find(key)
        if record is not None:
            record.demand.victims = {}

    def queue(self) -> Iterator[Waiting]:
        """Each job with tasks that wait for a placement."""
        for record in self._backlog.jobs.values():
            asks = [known.ask for known in record.demand.tasks.values() if known.place is None]
            if asks:
                yield Waiting(asks[0].team, sum(min(ask.worlds) for ask in asks), min(ask.created for ask in asks))

    def set_teams(self, teams: Iterable[Team]) -> None:
        """Take in all existing teams."""
        self.supply.tell_teams(self.scheduler, teams)

    # --- the cycle

    def cycle(self, members: Iterable[Member], away: Mapping[str, str], now: float) -> list[Key]:
        """Run one scheduling cycle over all waiting tasks. `away`: unusable members, each with the reason. Returns the keys of jobs with
        news.

        Raises Undecidable because of one ask, which is set aside, or the scheduler's error because of one member, which is left out.
        The caller must then call `start_over`.
        """
        self.supply.tell_members(self.scheduler, members, away)
        self.supply.tell_missing_teams(self.scheduler, self._backlog.teams)
        self._backlog.try_asides(self.scheduler, now)
        try:
            decisions = self.scheduler.cycle(now)
        except Undecidable as error:
            self._backlog.set_aside(job_key(error.ask.job), error, now)
            raise
        news: list[Key] = []
        for decision in decisions:
            if isinstance(decision, Place):
                news += self._take_place(decision, now)
            elif isinstance(decision, Preempt):
                news += self._take_preemption(decision, now)
            else:  # a job does not fail if it fits no member: members may grow. The reason is due at once
                self._explain_anew(job_key(decision.ask.job), decision.ask.task)
        news += self._explain(now)
        self.unfinished = self.scheduler.unfinished or self._backlog.explanations.unfinished
        return news

    def _take_place(self, place: Place, now: float) -> list[Key]:
        key, task = job_key(place.ask.job), place.ask.task
        record = self._backlog.jobs[key]
        record.demand.tasks[task] = replace(record.demand.tasks[task], place=place, verdict=None)
        self._backlog.explanations.drop((key, task))
        placed = self.scheduler.attempt(place.ask.job, task)
        if placed is not None:  # an attempt that no status holds cannot be asked to stop
            self.scheduler.hold(replace(placed, preemptible=False), now)
        return [key]

    def _take_preemption(self, decision: Preempt, now: float) -> list[Key]:
        """Record since when victims make room for the ask, and give the victim notice."""
        key, victim = job_key(decision.ask.job), job_key(decision.victim.job)
        tasks = self._backlog.jobs[key].demand.tasks
        if decision.ask.owed_since is None:
            known = tasks[decision.ask.task]
            since = known.owed_since if known.owed_since is not None else now
            tasks[decision.ask.task] = replace(known, owed_since=since, ask=replace(known.ask, owed_since=since))
        if self._backlog.take_back(self.scheduler, victim, decision.victim.task, now):
            return [key]
        record = self._records.find(victim)
        if record is None:
            return [key]
        record.demand.victims[_number(decision.victim)] = f"makes room for {decision.ask.job}: {decision.reason}"
        return [key, victim]

    def _explain_anew(self, key: Key, task: str) -> None:
        tasks = self._backlog.jobs[key].demand.tasks
        tasks[task] = tasks[task].judged(None)
        self._backlog.explanations.add((key, task))

    def _explain(self, now: float) -> list[Key]:
        """Find the reasons why tasks wait. Returns the keys of jobs whose reason or predicted start has changed."""
        news = []
        for key, task in self._backlog.explanations.turn(now):
            record = self._backlog.jobs[key]
            known = record.demand.tasks[task]
            before = known.verdict
            try:
                wait = self.scheduler.explain(record.name, task, now)
            except KeyError:  # the scheduler does not have the task any more
                record.demand.tasks[task] = known.judged(None)
                self._backlog.explanations.drop((key, task))
                continue
            except Exception as error:  # one broken task must not stop the others
                log.exception("the reason why %s/%s waits cannot be found", record.name, task)
                wait = Wait(ask=known.ask, reasons={}, held=f"the reason why it waits cannot be found: {type(error).__name__}: {error}")
            starts = self._backlog.explanations.start_of(record.name, task)
            record.demand.tasks[task] = known.judged(Verdict(wait.reason, starts))
            self._backlog.explanations.told((key, task), now)
            if before is None or before.reason != wait.reason or has_moved(before.starts, starts, now):
                news.append(key)
        return news

    def foresee(self, starts: Starts) -> bool:
        """Take in a forecast, which counts every task ahead in the queue. Statuses show no other estimate: others are wrong by factors.

        True if a task is due for a reason, such as one with its first predicted start.
        """
        return self._backlog.explanations.foresee(starts)

    # --- decisions for one job

    def decided(self, key: Key, cluster_of: Callable[[str], Cluster | None]) -> Decided:
        """Decisions about a job that its status does not hold yet. `cluster_of`: the Cluster by its name, for SKUs and prices."""
        record = self._records.recall(key)
        demand = record.demand
        placements = {
            task: placement_of(known.place, cluster_of(known.place.cluster), guessed_s(known.place, known.ask))
            for task, known in demand.tasks.items()
            if known.place is not None
        }
        return Decided(
            tasks=demand.tasks, placements=placements, victims=demand.victims, worded_at=record.worded_at, offered=self.supply.skus
        )

    # --- recovery from a failed cycle

    def start_over(self, now: float) -> None:
        """Replace the scheduler by a new one with the same teams, asks and placements. The caller must then call `sync` for every job."""
        self.scheduler = new_scheduler(self.scheduler.policy)
        self.supply.start_over(self.scheduler)
        for record in self._records:
            record.demand.allocated = frozenset()
        self._backlog.tell(self.scheduler, now)


def job_key(name: str) -> Key:
    """The key of a job by its name in the scheduler."""
    namespace, _, job = name.partition("/")
    return namespace, job


def _open_notices(victims: Mapping[int, str], status: JobStatus | None) -> dict[int, str]:
    """Notices to running attempts that no status holds yet."""
    if not victims or status is None:
        return {}
    alive = {attempt.number for attempt in status.attempts if not attempt.stopping and not attempt.ended_at}
    return {number: reason for number, reason in victims.items() if number in alive}


def _number(attempt: Running) -> int:
    """The number of an attempt that a status holds (see `attempts_of`)."""
    return int(attempt.task.rpartition("/")[2])
