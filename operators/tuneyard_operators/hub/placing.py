"""The scheduling cycle: who waits, what is held, and the decisions that have not been recorded in a JobSpec yet.

The scheduler is told of changes alone; whatever it knows comes from JobSpecs, Clusters and Teams, so that the next leader knows the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuneyard.api import JobStatus, PlacementStatus
from tuneyard.federation import Ask, Place, Policy, Preempt, Scheduler, Team, Wait, attempts_of, member_of, unknown_team
from tuneyard.federation import Member as MemberFacts
from tuneyard_operators.hub.member import Member
from tuneyard_operators.kube import Key

_REFRESH_S = 30.0
"""Reasons for waiting change with every job that ends: they are worked out again no more often than this."""
_REFRESHED_AT_ONCE = 100


@dataclass(frozen=True)
class Verdict:
    """Why a task waits. `starts`: when it is predicted to start, in seconds since the epoch; `at`: as of when."""

    reason: str
    starts: float | None
    at: float


class Placing:
    """Bookkeeping around a `Scheduler`; one cycle at a time."""

    def __init__(self, policy: Policy) -> None:
        self.scheduler = Scheduler(policy)
        self.asks: dict[Key, dict[str, Ask]] = {}
        self.decided: dict[Key, dict[str, Place]] = defaultdict(dict)
        """Placements that no status holds yet: they count as taken."""
        self.going: dict[Key, dict[int, str]] = defaultdict(dict)
        """Attempts, by number, that are to make room for others, and for whom; none of which is in a status yet."""
        self.verdicts: dict[Key, dict[str, Verdict]] = defaultdict(dict)
        self._held: dict[Key, set[str]] = {}
        self._facts: dict[str, tuple[tuple[int, ...], MemberFacts, Any]] = {}
        self._teams: set[str] = set()
        self._named: dict[Key, str] = {}
        self._keys: dict[str, Key] = {}

    # --- what is known

    def want(self, key: Key, asks: Mapping[str, Ask], *, names_team: bool = False) -> bool:
        """Set what a job waits for. True if that is new, so that a cycle is worth while. `names_team`: its team is no default."""
        before = self.asks.get(key, {})
        for task in before.keys() - asks.keys():
            self.scheduler.withdraw(_name(key), task)
            self.verdicts.get(key, {}).pop(task, None)
        if asks:
            self.asks[key] = dict(asks)
            self._keys[_name(key)] = key
            if names_team:
                self._named[key] = next(iter(asks.values())).team
        else:
            self.asks.pop(key, None)
            self.verdicts.pop(key, None)
            self._named.pop(key, None)
        for task in [task for task in self.decided.get(key, {}) if task not in asks]:
            self._undo(key, task)
        new = {task: ask for task, ask in asks.items() if before.get(task) != ask}
        for task, ask in new.items():
            if task not in self.decided.get(key, {}):
                self.scheduler.add(ask)
        return bool(new)

    def recorded(self, key: Key, task: str) -> None:
        """A status holds the placement now: neither decided nor wanted any more."""
        if task in self.decided.get(key, {}):
            self._undo(key, task)
        self.asks.get(key, {}).pop(task, None)

    def hold(self, key: Key, spec: Mapping[str, Any], status: JobStatus | None, now: float) -> bool:
        """Set what a job's attempts hold, by its status as stored (None: it is gone). True if that has freed something."""
        name = _name(key)
        held = set()
        if status is not None and status.attempts:
            for attempt in attempts_of(name, spec, key[0], status, now, self.scheduler.policy.grace_s):
                self.scheduler.hold(attempt, now)
                held.add(attempt.task)
        before = self._held.pop(key, set())
        for task in before - held:
            self.scheduler.release(name, task, now)
        if held:
            self._held[key] = held
            self._keys[name] = key
        going = self.going.get(key)
        if going:
            over = {a.number for a in status.attempts if a.stopping or a.ended_at} if status is not None else set(going)
            for number in over & going.keys():
                del going[number]
        return bool(before - held)

    def set_teams(self, teams: Iterable[Team]) -> None:
        """All teams that there are."""
        known = {team.name: team for team in teams}
        for name in self._teams - known.keys():
            self.scheduler.set_team(Team(name=name))
        for team in known.values():
            self.scheduler.set_team(team)
        self._teams = set(known)

    def forget(self, key: Key) -> None:
        """A JobSpec is gone, or over for good."""
        self.want(key, {})
        self.decided.pop(key, None)
        self.going.pop(key, None)

    # --- the cycle

    def cycle(self, members: Iterable[Member], away: Mapping[str, str], now: float) -> list[Key]:
        """Decide for all who wait. `away`: why members cannot be used that cannot. Returns the keys of jobs that have news."""
        self._look_at_members(members, away)
        self._look_at_teams()
        news: list[Key] = []
        for decision in self.scheduler.cycle(now):
            if isinstance(decision, Place):
                key = self._keys[decision.ask.job]
                self.decided[key][decision.ask.task] = decision
                placed = self.scheduler.attempt(decision.ask.job, decision.ask.task)
                if placed is not None:  # whoever has no attempt yet cannot be asked to stop it
                    self.scheduler.hold(replace(placed, preemptible=False), now)
                self.verdicts[key].pop(decision.ask.task, None)
                news.append(key)
            elif isinstance(decision, Preempt):
                key = self._keys[decision.victim.job]
                if self._take_back(key, decision.victim.task):
                    continue
                self.going[key][int(decision.victim.task.rpartition("/")[2])] = f"makes room for {decision.ask.job}: {decision.reason}"
                news.append(key)
            else:  # a place that is too small today may grow, so nobody is failed for it; but it is said at once
                self.verdicts[self._keys[decision.ask.job]].pop(decision.ask.task, None)
        return news + self._explain(now)

    def _explain(self, now: float) -> list[Key]:
        """Say why the others wait: at once of those that are new, of some of the rest anew."""
        news, anew = [], 0
        for key, asks in self.asks.items():
            for task in asks:
                known = self.verdicts[key].get(task)
                if task in self.decided.get(key, {}) or (known is not None and (now - known.at < _REFRESH_S or anew >= _REFRESHED_AT_ONCE)):
                    continue
                anew += known is not None
                try:
                    decision = self.scheduler.wait(_name(key), task, now)
                except KeyError:
                    continue
                if self._judge(key, decision, now):
                    news.append(key)
        return news

    def _judge(self, key: Key, decision: Wait, now: float) -> bool:
        """Remember why a task waits. True if that is another reason than before."""
        before = self.verdicts[key].get(decision.ask.task)
        self.verdicts[key][decision.ask.task] = Verdict(decision.reason, decision.starts, now)
        return before is None or before.reason != decision.reason

    def _look_at_members(self, members: Iterable[Member], away: Mapping[str, str]) -> None:
        present = set()
        for member in members:
            present.add(member.name)
            nodes = member.inventory()
            why_not = away.get(member.name, "")
            mark = (id(nodes), id(member.cluster), hash(why_not))
            known = self._facts.get(member.name)
            if known is None or known[0] != mark:
                facts = member_of(member.cluster, nodes, why_not=why_not)
                self._facts[member.name] = (mark, facts, (nodes, member.cluster))  # kept, so that no other object gets their ids
                self.scheduler.set_member(facts)
        for name in self._facts.keys() - present:
            del self._facts[name]
            self.scheduler.remove_member(name)

    def _look_at_teams(self) -> None:
        """Jobs that name a team which does not exist wait for it, where there are teams at all."""
        if self._teams:
            for team in set(self._named.values()) - self._teams:
                self.scheduler.set_team(unknown_team(team, self._teams))

    def _take_back(self, key: Key, task: str) -> bool:
        """Undo a placement of this very cycle that is to make room at once. False for an attempt that a status holds."""
        if task not in self.decided.get(key, {}):
            return False
        ask = self.decided[key][task].ask
        self._undo(key, task)
        self.scheduler.add(ask)
        return True

    def _undo(self, key: Key, task: str) -> None:
        place = self.decided[key].pop(task)
        self.scheduler.release(place.ask.job, task, 0.0)


def placement_of(place: Place, price_per_gpu_hour: float) -> PlacementStatus:
    """A decision as the JobSpec's status records it."""
    return PlacementStatus(
        cluster=place.cluster,
        sku=place.sku,
        workers=max(1, place.workers // place.ask.unit),
        gpus=place.workers,
        pods=place.pods,
        nodes=dict(place.nodes),
        price_per_gpu_hour=price_per_gpu_hour,
        seconds=round(place.seconds, 1),
    )


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]}"
