"""Victims: the attempts that stop so that a gang fits into a pool.

`cheapest_victims` finds the legal set that loses the least GPU-time. An attempt loses its work since its last checkpoint, and the time of
its stop and its next start; earlier preemptions of its task count as hours of lost work (`Running.counted_saved`). With gangs over several
nodes this is a covering problem, which is NP-hard. A greedy search gives a first answer, and branch and bound improves it for at most
`_STEPS` steps.

`youngest_victims` is the rule of Kueue and Slurm: candidates by priority and age, without regard to lost work.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from tuneyard.federation.pools import Key, Pool
from tuneyard.federation.world import PRIORITIES, Running

_STEPS = 4000
_MOST = 24
"""The most candidates of branch and bound: the greedy answer, and the cheapest others."""

Cost = tuple[float, int, int]
"""GPU-seconds lost, GPUs, attempts."""


@dataclass(frozen=True)
class Deficit:
    """GPUs that `teams` must return, on any node, so that a quota is met."""

    teams: frozenset[str]
    gpus: int


@dataclass(frozen=True)
class Search:
    """A search for `pods` pods of `size` GPUs in `pool`, with victims among `candidates`. Candidates in other pools return quota only.

    `claimed`: GPUs by node that are reserved or avoided. `leaving`: GPUs by node of attempts that stop already. `reclaimed`: candidates
    that are legal only while their teams still borrow without the other victims. `borrowed`: GPUs that these teams borrow. `overhead_s`:
    time of the stop and the next start of each GPU of a victim.
    """

    pool: Pool
    pods: int
    size: int
    candidates: Sequence[Running]
    now: float
    claimed: Mapping[str, int] = field(default_factory=dict)
    leaving: Mapping[str, int] = field(default_factory=dict)
    borrowed: Mapping[str, int] = field(default_factory=dict)
    reclaimed: frozenset[Key] = frozenset()
    deficits: Sequence[Deficit] = ()
    overhead_s: float = 0.0

    def lost_s(self, attempt: Running) -> float:
        """GPU-seconds that a victim counts as losing."""
        return _counted_s(attempt, self.now, self.overhead_s)

    def cost_of(self, attempts: Iterable[Running]) -> Cost:
        lost_s, gpus, count = 0.0, 0, 0
        for attempt in attempts:
            lost_s, gpus, count = lost_s + self.lost_s(attempt), gpus + attempt.gpus, count + 1
        return lost_s, gpus, count

    @cached_property
    def room_now(self) -> int:
        """Pods that fit without victims."""
        return sum(_free(self, name, 0) // self.size for name in self.pool.base)

    @cached_property
    def missing(self) -> int:
        """The least number of GPUs that victims must free."""
        most = sum(min(_free(self, name, 0), gpus // self.size * self.size) for name, gpus in self.pool.base.items())
        return max(1, self.pods * self.size - most, *(deficit.gpus for deficit in self.deficits))


@dataclass(frozen=True)
class Victims:
    attempts: tuple[Running, ...]
    cost: Cost


def cheapest_victims(search: Search, below: Cost | None = None) -> Victims | None:
    """The cheapest legal set of victims that makes room. None: there is no such set, or none cheaper than `below`."""
    candidates = sorted(search.candidates, key=by_checkpoint)
    if not Going(search, candidates).makes_room():
        return None
    best = _greedy(search, candidates)
    if best is not None and below is not None and best.cost >= below:
        best = None
    bound = best.cost if best is not None else below
    if len(candidates) > _MOST:
        kept = {attempt.key for attempt in (best.attempts if best is not None else ())}
        others = [attempt for attempt in candidates if attempt.key not in kept][: max(0, _MOST - len(kept))]
        kept |= {attempt.key for attempt in others}
        candidates = [attempt for attempt in candidates if attempt.key in kept][: 4 * _MOST]
    return _BranchAndBound(search, candidates, bound).run() or best


def youngest_victims(search: Search) -> Victims | None:
    """The legal set by priority and age: reclaimed candidates first, then the lowest priority, then the latest start. Superfluous victims
    are spared, the last first (Kueue's `minimalPreemptions`). None: candidates in this order make no room."""

    def order(attempt: Running) -> tuple[bool, int, float, str, str]:
        return attempt.key not in search.reclaimed, PRIORITIES[attempt.priority], -attempt.started, attempt.job, attempt.task

    going = _first_of(search, sorted(search.candidates, key=order))
    if going is None:
        return None
    for attempt in reversed(going.attempts):
        going.drop(attempt)
        if not going.makes_room():
            going.add(attempt)
    return Victims(tuple(going.attempts), search.cost_of(going.attempts))


def least_cost_s(attempts: Iterable[Running], missing: int, now: float, overhead_s: float) -> float:
    """A lower bound of the GPU-seconds lost by any victims that free `missing` GPUs: the attempts with the youngest checkpoints, in
    fractions (fractional knapsack; Dantzig 1957). The attempts come sorted by `by_checkpoint`."""
    cost = 0.0
    for attempt in attempts:
        if missing <= 0:
            return cost
        gpus = attempt.gpus
        cost += _counted_s(attempt, now, overhead_s) * min(1.0, missing / gpus) if gpus else 0.0
        missing -= gpus
    return cost if missing <= 0 else math.inf


def by_checkpoint(attempt: Running) -> tuple[float, int, str, str]:
    """Youngest checkpoint first; attempts of tasks that were preempted before count as older."""
    return (-attempt.counted_saved, attempt.gpus, attempt.job, attempt.task)


def _counted_s(attempt: Running, now: float, overhead_s: float) -> float:
    return attempt.gpus * max(0.0, now - attempt.counted_saved) + attempt.gpus * overhead_s


class Going:
    """A set of victims, its room and its legality. Adding or dropping an attempt costs time in proportion to its nodes alone."""

    def __init__(self, search: Search, attempts: Iterable[Running] = ()) -> None:
        self._search = search
        self._attempts: dict[Key, Running] = {}
        self._freed: Counter[str] = Counter()
        self._of_team: Counter[str] = Counter()
        self._reclaimed: dict[str, list[int]] = {}
        self._room = search.room_now
        for attempt in attempts:
            self.add(attempt)

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, attempt: Running) -> bool:
        return attempt.key in self._attempts

    @property
    def attempts(self) -> list[Running]:
        return list(self._attempts.values())

    def add(self, attempt: Running) -> None:
        self._attempts[attempt.key] = attempt
        self._count(attempt, 1)
        if attempt.key in self._search.reclaimed:
            insort(self._reclaimed.setdefault(attempt.team, []), attempt.gpus)

    def drop(self, attempt: Running) -> None:
        del self._attempts[attempt.key]
        self._count(attempt, -1)
        if attempt.key in self._search.reclaimed:
            self._reclaimed[attempt.team].remove(attempt.gpus)

    def makes_room(self) -> bool:
        """Whether the gang fits without the victims."""
        return self._room >= self._search.pods and all(
            sum(self._of_team[team] for team in deficit.teams) >= deficit.gpus for deficit in self._search.deficits
        )

    def is_legal(self) -> bool:
        """Whether no team returns more than it borrows, except by the last of its victims. Subsets of a legal set are legal."""
        return all(
            not back or self._of_team[team] - back[-1] < self._search.borrowed.get(team, 0) for team, back in self._reclaimed.items()
        )

    def _count(self, attempt: Running, sign: int) -> None:
        search = self._search
        self._of_team[attempt.team] += sign * attempt.gpus
        if not _is_in(search.pool, attempt):
            return
        for name, gpus in attempt.nodes.items():
            if name in search.pool.base:
                before = self._freed[name]
                after = self._freed[name] = before + sign * gpus
                self._room += _free(search, name, after) // search.size - _free(search, name, before) // search.size


def _free(search: Search, name: str, freed: int) -> int:
    pool = search.pool
    held = pool.held.get(name, 0) - search.leaving.get(name, 0) - freed
    return max(0, pool.base[name] - max(0, held) - search.claimed.get(name, 0))


def _is_in(pool: Pool, attempt: Running) -> bool:
    return attempt.cluster == pool.member and attempt.sku == pool.sku.name


def _greedy(search: Search, candidates: Sequence[Running]) -> Victims | None:
    """The cheaper of two greedy sets, without superfluous victims."""
    answers = []
    for going in (_first_of(search, candidates), _node_by_node(search, candidates)):
        if going is not None:
            _drop_needless(search, going)
            answers.append(Victims(tuple(going.attempts), search.cost_of(going.attempts)))
    return min(answers, key=lambda answer: answer.cost, default=None)


def _first_of(search: Search, candidates: Sequence[Running]) -> Going | None:
    """Legal candidates in their order, until they make room."""
    going = Going(search)
    for attempt in candidates:
        if going.makes_room():
            break
        going.add(attempt)
        if not going.is_legal():
            going.drop(attempt)
    return going if going.makes_room() else None


def _node_by_node(search: Search, candidates: Sequence[Running]) -> Going | None:
    """Clear the cheapest nodes, each for one pod."""
    on_node: dict[str, list[Running]] = {}
    for attempt in candidates:
        for name in attempt.nodes if _is_in(search.pool, attempt) else ():
            on_node.setdefault(name, []).append(attempt)
    prices: list[tuple[Cost, str, list[Running]]] = []
    for name, attempts in on_node.items():
        if name not in search.pool.base:
            continue
        cleared: list[Running] = []
        freed = 0
        for attempt in attempts:
            if _free(search, name, freed) >= search.size:
                break
            cleared.append(attempt)
            freed += attempt.nodes[name]
        if _free(search, name, freed) >= search.size:
            prices.append((search.cost_of(cleared), name, cleared))
    going = Going(search)
    for _, _, cleared in sorted(prices, key=lambda price: price[:2]):
        if going.makes_room():
            break
        added = [attempt for attempt in cleared if attempt not in going]
        for attempt in added:
            going.add(attempt)
        if not going.is_legal():
            for attempt in added:
                going.drop(attempt)
    return going if going.makes_room() else None


def _drop_needless(search: Search, going: Going) -> None:
    for attempt in sorted(going.attempts, key=lambda attempt: (-search.lost_s(attempt), -attempt.gpus, attempt.job, attempt.task)):
        going.drop(attempt)
        if not going.makes_room():
            going.add(attempt)


class _BranchAndBound:
    """Depth first over candidates, youngest checkpoints first. A branch is cut where its lower bound does not beat the best set, or where
    all of its remaining candidates make no room."""

    def __init__(self, search: Search, candidates: Sequence[Running], bound: Cost | None) -> None:
        self._search = search
        self._candidates = candidates
        self._bound = bound
        self._best: Victims | None = None
        self._left = _STEPS
        self._chosen = Going(search)
        self._possible = Going(search, candidates)
        self._largest = max((attempt.gpus for attempt in candidates), default=1) or 1

    def run(self) -> Victims | None:
        self._branch(0, (0.0, 0, 0))
        return self._best

    def _branch(self, at: int, cost: Cost) -> None:
        self._left -= 1
        if self._left < 0 or (self._bound is not None and cost >= self._bound) or not self._chosen.is_legal():
            return
        if self._chosen.makes_room():
            self._best = Victims(tuple(self._chosen.attempts), cost)
            self._bound = cost
            return
        if at == len(self._candidates) or not self._possible.makes_room() or self._cannot_beat(at, cost):
            return
        attempt = self._candidates[at]
        lost_s, gpus, count = cost
        self._chosen.add(attempt)
        self._branch(at + 1, (lost_s + self._search.lost_s(attempt), gpus + attempt.gpus, count + 1))
        self._chosen.drop(attempt)
        self._possible.drop(attempt)
        self._branch(at + 1, cost)
        self._possible.add(attempt)

    def _cannot_beat(self, at: int, cost: Cost) -> bool:
        if self._bound is None:
            return False
        missing = max(1, self._search.missing - cost[1])
        least = cost[0] + least_cost_s(islice(self._candidates, at, None), missing, self._search.now, self._search.overhead_s)
        return (least, cost[1] + missing, cost[2] + math.ceil(missing / self._largest)) >= self._bound
