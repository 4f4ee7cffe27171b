"""Who is to go, so that a gang finds room: the legal set of attempts that loses least GPU-time since their last checkpoints.

Gangs that span nodes make this a covering problem, which is NP-hard. A greedy choice gives a first answer, branch and bound the best one;
with more than a dozen attempts to choose from the search ends at `_BUDGET` steps, with the best found so far.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tuneyard.federation.pools import Pool
from tuneyard.federation.world import Running

_BUDGET = 4000
_MOST = 24
"""Attempts among which the best set is searched for; of more, those of the greedy answer and the cheapest others."""


@dataclass(frozen=True)
class Deficit:
    """GPUs of `teams` that must become free, whatever node they are on: what is over a quota."""

    teams: frozenset[str]
    gpus: int


@dataclass(frozen=True)
class Search:
    """What is looked for: `pods` pods of `size` GPUs in `pool`, by ending some of `candidates`.

    `claimed`: GPUs by node that are promised to others. `borrowed`: of teams from which GPUs are taken back, how many they have borrowed;
    `taken_back`: the candidates that may go for that reason alone, only as long as their team holds more than its own without those gone
    before.
    """

    pool: Pool
    pods: int
    size: int
    candidates: Sequence[Running]
    now: float
    claimed: Mapping[str, int] = field(default_factory=dict)
    borrowed: Mapping[str, int] = field(default_factory=dict)
    taken_back: frozenset[tuple[str, str]] = frozenset()
    deficits: Sequence[Deficit] = ()

    @cached_property
    def room_now(self) -> int:
        """Pods that find room if nobody goes."""
        return sum(_free(self, name, 0) // self.size for name in self.pool.base)

    @cached_property
    def missing(self) -> int:
        """GPUs that must become free at least."""
        most = sum(min(_free(self, name, 0), gpus // self.size * self.size) for name, gpus in self.pool.base.items())
        return max(1, self.pods * self.size - most, *(deficit.gpus for deficit in self.deficits))


Cost = tuple[float, int, int]
"""GPU-seconds lost, GPUs, attempts."""


@dataclass(frozen=True)
class Victims:
    attempts: tuple[Running, ...]
    cost: Cost


def cheapest_victims(search: Search, below: Cost | None = None) -> Victims | None:
    """The cheapest legal set that makes room, or None where there is none (or none cheaper than `below`)."""
    candidates = sorted(search.candidates, key=by_age)
    best = _greedy(search, candidates)
    if best is not None and below is not None and best.cost >= below:
        best = None
    bound = best.cost if best is not None else below
    if len(candidates) > _MOST:
        kept = {(attempt.job, attempt.task) for attempt in (best.attempts if best is not None else ())}
        others = [attempt for attempt in candidates if (attempt.job, attempt.task) not in kept][: max(0, _MOST - len(kept))]
        kept |= {(attempt.job, attempt.task) for attempt in others}
        candidates = [attempt for attempt in candidates if (attempt.job, attempt.task) in kept][: 4 * _MOST]
    return _BranchAndBound(search, candidates, bound).run() or best


def least_cost_s(by_age: Iterable[Running], missing: int, now: float) -> float:
    """No set that frees so many GPUs costs less GPU-seconds: those whose last checkpoint is youngest (`by_age`), in fractions. This is the
    bound of the fractional knapsack (Dantzig 1957)."""
    cost = 0.0
    for attempt in by_age:
        if missing <= 0:
            return cost
        gpus = attempt.gpus
        cost += attempt.lost_s(now) * min(1.0, missing / gpus) if gpus else 0.0
        missing -= gpus
    return cost if missing <= 0 else math.inf


def by_age(attempt: Running) -> tuple[float, int, str, str]:
    """Youngest checkpoint first."""
    return (-attempt.saved, attempt.gpus, attempt.job, attempt.task)


def cost_of(attempts: Sequence[Running], now: float) -> Cost:
    return sum(attempt.lost_s(now) for attempt in attempts), sum(attempt.gpus for attempt in attempts), len(attempts)


def is_legal(search: Search, attempts: Sequence[Running]) -> bool:
    """Whether no team is left with less than its own by more than the last of its attempts to go."""
    for team, borrowed in search.borrowed.items():
        gone = [attempt.gpus for attempt in attempts if attempt.team == team and (attempt.job, attempt.task) in search.taken_back]
        if gone and sum(gone) - max(gone) >= borrowed:
            return False
    return True


def makes_room(search: Search, attempts: Sequence[Running]) -> bool:
    """Whether the gang fits once these are gone."""
    freed: Counter[str] = Counter()
    for attempt in attempts:
        freed.update(attempt.nodes)
    if any(sum(a.gpus for a in attempts if a.team in deficit.teams) < deficit.gpus for deficit in search.deficits):
        return False
    room = search.room_now
    for name, gpus in freed.items():
        if name in search.pool.base:
            room += _free(search, name, gpus) // search.size - _free(search, name, 0) // search.size
    return room >= search.pods


def _free(search: Search, name: str, freed: int) -> int:
    pool = search.pool
    return max(0, pool.base[name] - max(0, pool.held.get(name, 0) - freed) - search.claimed.get(name, 0))


def _greedy(search: Search, candidates: Sequence[Running]) -> Victims | None:
    """Cheapest first until there is room, then without those that it turns out not to need; and once more node by node."""
    answers = []
    for chosen in (_cheapest_first(search, candidates), _node_by_node(search, candidates)):
        if chosen is not None:
            kept = _without_needless(search, chosen)
            answers.append(Victims(tuple(kept), cost_of(kept, search.now)))
    return min(answers, key=lambda answer: answer.cost, default=None)


def _cheapest_first(search: Search, candidates: Sequence[Running]) -> list[Running] | None:
    chosen: list[Running] = []
    step = max(1, len(candidates) // 16)
    for number, attempt in enumerate(candidates, 1):
        if is_legal(search, [*chosen, attempt]):
            chosen.append(attempt)
        if (number % step == 0 or number == len(candidates)) and makes_room(search, chosen):
            return chosen
    return None


def _node_by_node(search: Search, candidates: Sequence[Running]) -> list[Running] | None:
    """Clear the cheapest nodes, each of as much as one pod needs."""
    on_node: dict[str, list[Running]] = {}
    for attempt in candidates:
        for name in attempt.nodes:
            on_node.setdefault(name, []).append(attempt)
    prices: list[tuple[Cost, str, list[Running]]] = []
    for name, attempts in on_node.items():
        if name not in search.pool.base:
            continue
        going: list[Running] = []
        freed = 0
        for attempt in attempts:
            if _free(search, name, freed) >= search.size:
                break
            going.append(attempt)
            freed += attempt.nodes[name]
        if _free(search, name, freed) >= search.size:
            prices.append((cost_of(going, search.now), name, going))
    chosen: dict[tuple[str, str], Running] = {}
    for _, _, going in sorted(prices, key=lambda price: price[:2]):
        added = {(attempt.job, attempt.task): attempt for attempt in going}
        if not is_legal(search, [*{**chosen, **added}.values()]):
            continue
        chosen |= added
        if makes_room(search, [*chosen.values()]):
            return [*chosen.values()]
    return None


def _without_needless(search: Search, chosen: Sequence[Running]) -> list[Running]:
    kept = list(chosen)
    for attempt in sorted(chosen, key=lambda attempt: (-attempt.lost_s(search.now), -attempt.gpus, attempt.job, attempt.task)):
        fewer = [each for each in kept if each is not attempt]
        if makes_room(search, fewer):
            kept = fewer
    return kept


class _BranchAndBound:
    """Depth first over who goes and who stays, youngest checkpoints first; cut where not even the fractional bound beats the best, or where
    not even all that are left would do."""

    def __init__(self, search: Search, candidates: Sequence[Running], bound: Cost | None) -> None:
        self._search = search
        self._candidates = candidates
        self._bound = bound
        self._best: Victims | None = None
        self._left = _BUDGET

    def run(self) -> Victims | None:
        if makes_room(self._search, self._candidates):
            self._branch(0, [], (0.0, 0, 0))
        return self._best

    def _branch(self, at: int, chosen: list[Running], cost: Cost) -> None:
        self._left -= 1
        if self._left < 0 or (self._bound is not None and cost >= self._bound) or not is_legal(self._search, chosen):
            return
        if makes_room(self._search, chosen):
            self._best = Victims(tuple(chosen), cost)
            self._bound = cost
            return
        rest = self._candidates[at:]
        if not rest or self._cannot_beat(rest, cost) or not makes_room(self._search, [*chosen, *rest]):
            return
        attempt = rest[0]
        lost_s, gpus, count = cost
        self._branch(at + 1, [*chosen, attempt], (lost_s + attempt.lost_s(self._search.now), gpus + attempt.gpus, count + 1))
        self._branch(at + 1, chosen, cost)

    def _cannot_beat(self, rest: Sequence[Running], cost: Cost) -> bool:
        if self._bound is None:
            return False
        missing = max(1, self._search.missing - cost[1])
        least = cost[0] + least_cost_s(rest, missing, self._search.now)
        return (least, cost[1] + missing, cost[2] + 1) >= self._bound
