"""The scheduling cycle: who waits, what is held, and the decisions that have not been recorded in a JobSpec yet.

The scheduler is told of changes alone; whatever it knows comes from JobSpecs, Clusters and Teams, so that the next leader knows the same.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from typing import Any

from tuneyard.api import Cluster, JobStatus, NodeInventory, PlacementStatus
from tuneyard.federation import (
    Ask,
    Guesses,
    Place,
    Policy,
    Preempt,
    Running,
    Team,
    Undecidable,
    Wait,
    attempts_of,
    member_of,
    new_scheduler,
    running_of,
    sku_names,
    taken_by,
    unknown_team,
)
from tuneyard_operators.hub.forecasts import Starts
from tuneyard_operators.hub.member import Member
from tuneyard_operators.kube import Key

log = logging.getLogger(__name__)
_FIRST_ASIDE_S = 10.0
_LONGEST_ASIDE_S = 600.0
_REFRESH_S = 30.0
"""Reasons for waiting change with every job that ends: they are worked out again no more often than this."""
_EXPLAINED_AT_ONCE = 200
"""How many reasons are worked out in one cycle: the next goes on."""


@dataclass(frozen=True)
class Verdict:
    """Why a task waits. `starts`: when it is predicted to start, in seconds since the epoch; `at`: as of when."""

    reason: str
    starts: float | None
    at: float


@dataclass(frozen=True)
class _Aside:
    """An ask on whose account a cycle came to nothing: it is tried again at `again_at` (never: it is being tried), then later each time."""

    ask: Ask
    pause_s: float
    again_at: float


@dataclass(frozen=True)
class _Facts:
    """What a member's facts are made from. The hub makes new objects where something has changed, so identity is enough to know."""

    nodes: Sequence[NodeInventory]
    cluster: Cluster
    why_not: str

    def are_those(self, other: _Facts) -> bool:
        return self.nodes is other.nodes and self.cluster is other.cluster and self.why_not == other.why_not


class Placing:
    """Bookkeeping around a `Scheduler`; one cycle at a time."""

    def __init__(self, policy: Policy) -> None:
        self.scheduler = new_scheduler(policy)
        self.asks: dict[Key, dict[str, Ask]] = {}
        self.skus: frozenset[str] = frozenset()
        """SKUs of all members that there have been, by the catalog's names: asks are checked against these."""
        self.decided: dict[Key, dict[str, Place]] = defaultdict(dict)
        """Placements that no status holds yet: they count as taken."""
        self.going: dict[Key, dict[int, str]] = defaultdict(dict)
        """Victims not yet recorded in a status: attempts by number, each with the job that it makes room for."""
        self.owed: dict[Key, dict[str, float]] = defaultdict(dict)
        """When others were first asked to make room for a task, where no status holds that yet."""
        self._guesses = Guesses()
        self._taught: dict[Key, set[str]] = {}
        """Tasks that have ended, and taught what guesses of their team are worth."""
        self.verdicts: dict[Key, dict[str, Verdict]] = defaultdict(dict)
        self._foreseen: Starts = {}
        self.unfinished = False
        """Whether another cycle would go on at once where the last one ended."""
        self._held: dict[Key, set[str]] = {}
        self._facts: dict[str, _Facts] = {}
        self._broken: dict[str, _Facts] = {}
        """Facts of members that the scheduler could not take in."""
        self._aside: dict[tuple[Key, str], _Aside] = {}
        self._teams: dict[str, Team] = {}
        self._missing_teams: set[str] = set()
        """Teams that jobs have named and that did not exist."""
        self._named: dict[Key, str] = {}
        self._unexplained: dict[tuple[Key, str], None] = {}
        """Tasks that wait and have not been told why, the first come first."""
        self._explained: dict[tuple[Key, str], None] = {}
        """Those that have, the oldest reason first."""

    # --- what is known

    def want(self, key: Key, asks: Mapping[str, Ask], now: float, *, names_team: bool = False) -> bool:
        """Set what a job waits for. True if that is new, so that a cycle is worth while. `names_team`: its team is no default."""
        before = self.asks.get(key, {})
        asks = {task: self._with_owed(key, ask) for task, ask in asks.items()}
        for task in before.keys() - asks.keys():
            self.scheduler.withdraw(_name(key), task)
            self._drop_verdict(key, task)
            self._aside.pop((key, task), None)
            self._forget_owed(key, task)
        if asks:
            self.asks[key] = asks
            if names_team:
                self._named[key] = next(iter(asks.values())).team
        else:
            self.asks.pop(key, None)
            self.verdicts.pop(key, None)
            self._named.pop(key, None)
        for task in [task for task in self.decided.get(key, {}) if task not in asks]:
            self._undo(key, task, now)
        new = {task: ask for task, ask in asks.items() if before.get(task) != ask}
        for task, ask in new.items():
            self._aside.pop((key, task), None)
            if (place := self.decided.get(key, {}).get(task)) is not None and not _is_where(place, ask):
                self._undo(key, task, now)
            if task not in self.decided.get(key, {}):
                self.scheduler.add(self._corrected(ask))
                self._drop_verdict(key, task)
                self._unexplained[key, task] = None
        return bool(new)

    def learn_skus(self, members: Iterable[Member]) -> bool:
        """Take note of the SKUs of members. True where some are new. Those of a member that is gone stay: it may come back."""
        before = self.skus
        self.skus = before.union(*(sku_names(member.cluster).values() for member in members))
        return self.skus != before

    def _with_owed(self, key: Key, ask: Ask) -> Ask:
        since = self.owed.get(key, {}).get(ask.task)
        if since is None or ask.owed_since is not None:
            self._forget_owed(key, ask.task)
            return ask
        return replace(ask, owed_since=since)

    def _forget_owed(self, key: Key, task: str) -> None:
        if key in self.owed:
            self.owed[key].pop(task, None)
            if not self.owed[key]:
                del self.owed[key]

    def recorded(self, key: Key, task: str, now: float) -> None:
        """A status holds the placement now: neither decided nor wanted any more."""
        if task in self.decided.get(key, {}):
            self._undo(key, task, now)
        self._forget_owed(key, task)
        asks = self.asks.get(key, {})
        asks.pop(task, None)
        if not asks:
            self.asks.pop(key, None)

    def hold(self, key: Key, spec: Mapping[str, Any], status: JobStatus | None, now: float) -> bool:
        """Set what a job's attempts hold, by its status as stored (None: it is gone). True if that has freed something."""
        name = _name(key)
        held = set()
        self._learn(key, spec, status)
        self._forget_told(key, status)
        if status is not None and status.attempts:
            for attempt in attempts_of(name, spec, key[0], status, now, self.scheduler.policy.grace_s):
                told = self.going and _number(attempt) in self.going.get(key, {})
                if told and not attempt.stopping:  # decided, and not in its status yet: it is nobody's victim again
                    attempt = replace(attempt, stopping=True, ends=now + self.scheduler.policy.grace_s)
                self.scheduler.hold(attempt, now)
                held.add(attempt.task)
        before = self._held.pop(key, set())
        for task in before - held:
            self.scheduler.release(name, task, now)
        if held:
            self._held[key] = held
        return bool(before - held)

    def _learn(self, key: Key, spec: Mapping[str, Any], status: JobStatus | None) -> None:
        """Compare what tasks that have ended took with what their authors guessed."""
        if status is None:
            for task in self._taught.pop(key, ()):
                self._guesses.forget((_name(key), task))
            return
        if not self.scheduler.policy.corrects_guesses:
            return
        team = str(spec.get("team") or key[0])
        moved = False
        for taken in taken_by(status):
            known = self._taught.setdefault(key, set())
            if taken.task not in known:
                known.add(taken.task)
                moved |= self._guesses.learn((_name(key), taken.task), team, taken.guessed_s, taken.took_s, taken.ended)
        if moved:
            self._correct(team)

    def _correct(self, team: str) -> None:
        """Guesses of a team are worth something else than they were."""
        for key, asks in self.asks.items():
            for task, ask in asks.items():
                aside = self._aside.get((key, task))
                if ask.team == team and task not in self.decided.get(key, {}) and (aside is None or aside.again_at == math.inf):
                    self.scheduler.add(self._corrected(ask))

    def _corrected(self, ask: Ask) -> Ask:
        return self._guesses.corrected(ask) if self.scheduler.policy.corrects_guesses else ask

    def guessed_s(self, place: Place) -> float | None:
        """Seconds there by the author's guess alone, where there is one."""
        ask = self.asks.get(job_key(place.ask.job), {}).get(place.ask.task)
        if ask is None or ask.basis != "given" or place.ask.seconds <= 0:
            return None
        return place.seconds * ask.seconds / place.ask.seconds

    def _forget_told(self, key: Key, status: JobStatus | None) -> None:
        """Notices that the status holds now, or that are of attempts which have ended."""
        going = self.going.get(key, {})
        lives = {a.number for a in status.attempts if not a.stopping and not a.ended_at} if status is not None else set()
        for number in going.keys() - lives:
            del going[number]
        if not going:
            self.going.pop(key, None)

    def foresee(self, starts: Starts) -> bool:
        """When tasks are predicted to start, all those before them counted; what is absent starts later, or never. Nothing else is told as
        a start: what a single look says is wrong by factors. True where somebody waits who was told no start, and has one now."""
        self._foreseen = starts
        for key, task in list(self._explained):
            if self.verdicts[key][task].starts is None and (_name(key), task) in starts:
                del self._explained[key, task]
                self._unexplained[key, task] = None
        return bool(self._unexplained)

    def set_teams(self, teams: Iterable[Team]) -> None:
        """All teams that there are."""
        known = {team.name: team for team in teams}
        for name in (self._teams.keys() | self._missing_teams) - known.keys():
            self.scheduler.set_team(Team(name=name))
        for team in known.values():
            self.scheduler.set_team(team)
        self._teams = known
        self._missing_teams.clear()

    def forget(self, key: Key, now: float) -> None:
        """A JobSpec is gone, or over for good."""
        self.want(key, {}, now)
        self.going.pop(key, None)

    # --- the cycle

    def cycle(self, members: Iterable[Member], away: Mapping[str, str], now: float) -> list[Key]:
        """Decide for all who wait. `away`: why members cannot be used that cannot. Returns the keys of jobs that have news.

        Raises Undecidable where that is impossible on account of one ask, which is set aside, and whatever the scheduler raises on account
        of a member, which is left out: `start_over` then.
        """
        self._look_at_members(members, away)
        self._look_at_teams()
        self._try_again(now)
        news: list[Key] = []
        try:
            decisions = self.scheduler.cycle(now)
        except Undecidable as error:
            self._set_aside(error, now)
            raise
        for decision in decisions:
            if isinstance(decision, Place):
                key = job_key(decision.ask.job)
                self.decided[key][decision.ask.task] = decision
                placed = self.scheduler.attempt(decision.ask.job, decision.ask.task)
                if placed is not None:  # whoever has no attempt yet cannot be asked to stop it
                    self.scheduler.hold(replace(placed, preemptible=False), now)
                self._drop_verdict(key, decision.ask.task)
                news.append(key)
            elif isinstance(decision, Preempt):
                news.append(self._owe(decision.ask, now))
                key = job_key(decision.victim.job)
                if self._take_back(key, decision.victim.task, now):
                    continue
                self.going[key][_number(decision.victim)] = f"makes room for {decision.ask.job}: {decision.reason}"
                news.append(key)
            else:  # a place that is too small today may grow, so nobody is failed for it; but it is said at once
                key = job_key(decision.ask.job)
                self._drop_verdict(key, decision.ask.task)
                self._unexplained[key, decision.ask.task] = None
        news += self._explain(now)
        self.unfinished = self.scheduler.unfinished or bool(self._unexplained)
        return news

    def _owe(self, ask: Ask, now: float) -> Key:
        """Others make room for this ask, as the scheduler knows. Returns the key of its job."""
        key = job_key(ask.job)
        if ask.owed_since is None:
            self.owed[key].setdefault(ask.task, now)
            self.asks[key][ask.task] = replace(self.asks[key][ask.task], owed_since=self.owed[key][ask.task])
        return key

    def _explain(self, now: float) -> list[Key]:
        """Say why others wait: those first who have not been told, then those whose reason is old."""
        old = takewhile(lambda each: now - self.verdicts[each[0]][each[1]].at >= _REFRESH_S, self._explained)
        news = []
        for key, task in list(islice(chain(self._unexplained, old), _EXPLAINED_AT_ONCE)):
            before = self.verdicts.get(key, {}).get(task)
            self._drop_verdict(key, task)
            try:
                wait = self.scheduler.explain(_name(key), task, now)
            except KeyError:  # it does not wait any more
                continue
            except Exception as error:  # who waits behind is told all the same
                log.exception("why %s/%s waits cannot be told", _name(key), task)
                wait = Wait(ask=self.asks[key][task], reasons={}, held=f"why it waits cannot be told: {type(error).__name__}: {error}")
            starts = self._foreseen.get((_name(key), task))
            self.verdicts[key][task] = Verdict(wait.reason, starts, now)
            self._explained[key, task] = None
            if before is None or before.reason != wait.reason or _has_moved(before.starts, starts, now):
                news.append(key)
        return news

    def _drop_verdict(self, key: Key, task: str) -> None:
        verdicts = self.verdicts.get(key, {})
        verdicts.pop(task, None)
        if not verdicts:
            self.verdicts.pop(key, None)
        self._explained.pop((key, task), None)
        self._unexplained.pop((key, task), None)

    def _look_at_members(self, members: Iterable[Member], away: Mapping[str, str]) -> None:
        present = set()
        for member in members:
            present.add(member.name)
            facts = _Facts(member.inventory(), member.cluster, away.get(member.name, ""))
            known = self._facts.get(member.name)
            if known is None or not facts.are_those(known):
                broken = self._broken.get(member.name)
                if broken is not None and facts.are_those(broken):
                    continue
                try:
                    self.scheduler.set_member(member_of(facts.cluster, facts.nodes, why_not=facts.why_not))
                except Exception:
                    self._broken[member.name] = facts
                    raise
                self._facts[member.name] = facts
                self._broken.pop(member.name, None)
        for name in self._facts.keys() - present:
            del self._facts[name]
            self.scheduler.remove_member(name)

    # --- one that stands in the way of all others

    def start_over(self, now: float) -> None:
        """Make the scheduler anew. What attempts hold is to be told again (`hold`); who waits, and what was decided, is known."""
        self.scheduler = new_scheduler(self.scheduler.policy)
        self._facts.clear()
        self._held.clear()
        self._missing_teams.clear()
        for team in self._teams.values():
            self.scheduler.set_team(team)
        for key, asks in self.asks.items():
            for task, ask in asks.items():
                place, aside = self.decided.get(key, {}).get(task), self._aside.get((key, task))
                if place is not None:
                    self.scheduler.hold(replace(running_of(place, now), preemptible=False), now)
                elif aside is None or aside.again_at == math.inf:
                    self.scheduler.add(self._corrected(ask))

    def _set_aside(self, error: Undecidable, now: float) -> None:
        key, task = job_key(error.ask.job), error.ask.task
        before = self._aside.get((key, task))
        pause_s = min(_LONGEST_ASIDE_S, before.pause_s * 2 if before is not None else _FIRST_ASIDE_S)
        self._aside[key, task] = _Aside(error.ask, pause_s, now + pause_s)
        self._drop_verdict(key, task)
        cause = f"{type(error.cause).__name__}: {error.cause}"
        self.verdicts[key][task] = Verdict(f"the hub cannot place it ({cause}), and tries again in {pause_s:.0f} s", None, now)

    def _try_again(self, now: float) -> None:
        for (key, task), aside in list(self._aside.items()):
            if now >= aside.again_at and task in self.asks.get(key, {}) and task not in self.decided.get(key, {}):
                self._aside[key, task] = replace(aside, again_at=math.inf)
                self.scheduler.add(aside.ask)
                self._unexplained[key, task] = None

    def _look_at_teams(self) -> None:
        """Jobs that name a team which does not exist wait for it, where there are teams at all."""
        if self._teams:
            for team in set(self._named.values()) - self._teams.keys() - self._missing_teams:
                self.scheduler.set_team(unknown_team(team, self._teams))
                self._missing_teams.add(team)

    def _take_back(self, key: Key, task: str, now: float) -> bool:
        """Undo a placement of this very cycle that is to make room at once. False for an attempt that a status holds."""
        if task not in self.decided.get(key, {}):
            return False
        ask = self.decided[key][task].ask
        self._undo(key, task, now)
        self.scheduler.add(ask)
        self._unexplained[key, task] = None
        return True

    def _undo(self, key: Key, task: str, now: float) -> None:
        place = self.decided[key].pop(task)
        if not self.decided[key]:
            del self.decided[key]
        self.scheduler.release(place.ask.job, task, now)


def _is_where(place: Place, ask: Ask) -> bool:
    """Whether a placement that no status holds yet is one that a task still asks for: its job or template may have changed meanwhile."""
    return (
        place.workers in ask.worlds
        and place.ask.unit == ask.unit
        and (not ask.skus or place.sku in ask.skus)
        and (not ask.clusters or place.cluster in ask.clusters)
        and ask.fewest(place.sku) <= place.workers
    )


def _has_moved(before: float | None, starts: float | None, now: float) -> bool:
    """Whether a predicted start is another than was said, by more than a tenth of the wait and a minute."""
    if before is None or starts is None:
        return before is not starts
    return abs(starts - before) > max(60.0, 0.1 * (starts - now))


def placement_of(place: Place, price_per_gpu_hour: float, sku: str | None = None, guessed_s: float | None = None) -> PlacementStatus:
    """A decision as the JobSpec's status records it. `sku`: what the Cluster calls the kind; default: as the catalog does. `guessed_s`:
    `Placing.guessed_s`."""
    return PlacementStatus(
        cluster=place.cluster,
        sku=sku or place.sku,
        workers=max(1, place.workers // place.ask.unit) if place.ask.engines else max(1, place.workers),
        gpus=place.workers,
        pods=place.pods,
        nodes=dict(place.nodes),
        price_per_gpu_hour=price_per_gpu_hour,
        seconds=round(place.seconds, 1),
        seconds_from=place.ask.basis,
        guessed_seconds=round(guessed_s, 1) if guessed_s is not None else None,
    )


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


def job_key(name: str) -> Key:
    """The key of a job that the scheduler knows by this name."""
    namespace, _, job = name.partition("/")
    return namespace, job


def _number(attempt: Running) -> int:
    """Of an attempt that a status holds (see `attempts_of`)."""
    return int(attempt.task.rpartition("/")[2])
