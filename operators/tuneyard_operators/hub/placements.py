"""Jobs in the scheduler: what waits, what is allocated, and the decisions that no status holds yet.

In the order in which it happens:

1. `sync`: the stored status of a job says which attempts hold GPUs; the scheduler allocates them.
2. `want`: a look at the job says which tasks wait, and what each asks for.
3. `cycle`: the scheduler decides. Each decision stands in the record of its job, and the job is looked at again.
4. `decided`: that look takes the decisions in (`lifecycle.advance`), and stores the status.
5. `recorded`: a status holds the placement. Only now the scheduler gives up the allocation of the decision: `sync` has allocated the
   attempt's own before.

The scheduler is told of changes alone. All it knows comes from JobSpecs, Clusters and Teams, so that the next leader knows the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
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
from tuneyard_operators.hub.backlog import Backlog
from tuneyard_operators.hub.corrections import Corrections
from tuneyard_operators.hub.decisions import Decided, Verdict
from tuneyard_operators.hub.explanations import has_moved
from tuneyard_operators.hub.forecasts import Starts
from tuneyard_operators.hub.member import Member
from tuneyard_operators.hub.placement_status import guessed_s, placement_of
from tuneyard_operators.hub.records import JobRecords
from tuneyard_operators.hub.supply import Supply
from tuneyard_operators.kube import Key

log = logging.getLogger(__name__)


class Placements:
    """Bookkeeping around a `Scheduler`; one cycle at a time. It writes `demand` of the records, and nothing else of them."""

    def __init__(self, policy: Policy, records: JobRecords) -> None:
        self.scheduler = new_scheduler(policy)
        self.supply = Supply()
        self.unfinished = False
        """Whether another cycle would go on at once where the last one ended."""
        self._records = records
        self._corrections = Corrections(enabled=policy.corrects_guesses)
        self._backlog = Backlog(records, self._corrections)

    @property
    def waiting(self) -> Collection[Key]:
        """Keys of jobs with tasks that wait for a placement, or whose placement no status holds yet."""
        return self._backlog.jobs.keys()

    # --- what waits, and what is allocated

    def want(self, key: Key, asks: Mapping[str, Ask], now: float, *, names_team: bool = False) -> bool:
        """Set what a job waits for, by task. True if a cycle is worth while for it. `names_team`: the spec names the team."""
        return self._backlog.want(self.scheduler, key, asks, now, names_team=names_team)

    def recorded(self, key: Key, task: str, now: float) -> None:
        """A status holds the placement of a task: the decision has done its work."""
        record = self._records.find(key)
        if record is not None and task in record.demand.tasks:
            self._backlog.drop(self.scheduler, record, task, now)

    def sync(self, key: Key, spec: Mapping[str, Any], status: JobStatus | None, now: float) -> bool:
        """Allocate what the attempts of a job hold by its stored status (None: the job is gone). True if that has freed something."""
        record = self._records.recall(key) if status is not None else self._records.find(key)
        if record is None:
            return False
        demand, allocated = record.demand, set()
        if status is None:
            self._corrections.forget(record)
        elif (team := self._corrections.learn(record, spec, status)) is not None:
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
        """A job is gone or over: nothing of it waits, and nobody gets notice."""
        self.want(key, {}, now)
        record = self._records.find(key)
        if record is not None:
            record.demand.victims = {}

    def oldest_s(self) -> float | None:
        """When the oldest waiting job was created, in seconds since the epoch; None if none waits."""
        return min((known.ask.created for record in self._backlog.jobs.values() for known in record.demand.tasks.values()), default=None)

    def set_teams(self, teams: Iterable[Team]) -> None:
        """Take in all teams that exist."""
        self.supply.tell_teams(self.scheduler, teams)

    # --- the cycle

    def cycle(self, members: Iterable[Member], away: Mapping[str, str], now: float) -> list[Key]:
        """Decide for all tasks that wait. `away`: unusable members, each with the reason. Returns the keys of jobs with news.

        Raises Undecidable because of one ask, which is set aside, and whatever the scheduler raises because of a member, which is left out:
        `start_over` then.
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
            else:  # nobody fails: a member that is too small today may grow. The reason is due at once
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
        """Note since when others make room for the ask, and give the victim notice."""
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
        """Work out why tasks wait. Returns the keys of jobs whose reason, or predicted start, is another than before."""
        news = []
        for key, task in self._backlog.explanations.turn(now):
            record = self._backlog.jobs[key]
            known = record.demand.tasks[task]
            before = known.verdict
            try:
                wait = self.scheduler.explain(record.name, task, now)
            except KeyError:  # the scheduler does not have it any more
                record.demand.tasks[task] = known.judged(None)
                self._backlog.explanations.drop((key, task))
                continue
            except Exception as error:  # the tasks behind it get their reasons all the same
                log.exception("why %s/%s waits cannot be told", record.name, task)
                wait = Wait(ask=known.ask, reasons={}, held=f"why it waits cannot be told: {type(error).__name__}: {error}")
            starts = self._backlog.explanations.start_of(record.name, task)
            record.demand.tasks[task] = known.judged(Verdict(wait.reason, starts))
            self._backlog.explanations.told((key, task), now)
            if before is None or before.reason != wait.reason or has_moved(before.starts, starts, now):
                news.append(key)
        return news

    def foresee(self, starts: Starts) -> bool:
        """Take in predicted starts, which count every task in front. Nothing else is told as a start: a single look is wrong by factors.

        True if some task has a predicted start for the first time.
        """
        return self._backlog.explanations.foresee(starts)

    # --- for a look at one job

    def decided(self, key: Key, cluster_of: Callable[[str], Cluster | None]) -> Decided:
        """Decisions about a job that its status does not hold yet. `cluster_of`: the Cluster of a name, for its SKUs and prices."""
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

    # --- an ask that makes cycles fail

    def start_over(self, now: float) -> None:
        """Make the scheduler anew. `sync` has to follow for every job; waiting tasks and decisions are known here."""
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
    """Notices that no status holds yet, of attempts that have not ended."""
    if not victims or status is None:
        return {}
    alive = {attempt.number for attempt in status.attempts if not attempt.stopping and not attempt.ended_at}
    return {number: reason for number, reason in victims.items() if number in alive}


def _number(attempt: Running) -> int:
    """The number of an attempt that a status holds (see `attempts_of`)."""
    return int(attempt.task.rpartition("/")[2])
