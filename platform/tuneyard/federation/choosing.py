"""Which of the pools with room: a score in seconds, the least wins. Predicted run time, money, distance of data, and what is torn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Indices, Pool, Pools
from tuneyard.federation.shapes import Option
from tuneyard.federation.world import Ask, Place, duration_words

Scores = npt.NDArray[np.float64]


class Chooser:
    """Chooses for one policy. Remembers for each layout of the pools what does not depend on what is free."""

    def __init__(self, policy: Policy, pools: Pools) -> None:
        self._policy = policy
        self._pools = pools
        self._layout = -1
        self._kinds: list[tuple[str, float]] = []
        self._kind_of: Indices = np.zeros(0, np.intp)
        self._distances: dict[tuple[tuple[str, ...], ...], Scores] = {}

    def choose(self, ask: Ask, option: Option, indices: Indices) -> Pool:
        """One of these pools; of equals the first by name."""
        if len(indices) == 1:
            return self._pools.all[int(indices[0])]
        if self._policy.choice == "first":
            candidates: list[Pool] = [self._pools.all[index] for index in indices.tolist()]
            return min(candidates, key=lambda pool: self._first(ask, pool))
        scores = self._scores(ask, option, indices)
        candidates = [self._pools.all[index] for index in indices[scores <= scores.min()].tolist()]
        return min(candidates, key=lambda pool: (pool.member, pool.sku.name))

    def _first(self, ask: Ask, pool: Pool) -> tuple[int, str, int, str]:
        return _place_in(ask.clusters, pool.member), pool.member, _place_in(ask.skus, pool.sku.name), pool.sku.name

    def _scores(self, ask: Ask, option: Option, indices: Indices) -> Scores:
        self._refresh()
        of_kind = np.empty(len(self._kinds))
        for number, (sku, price) in enumerate(self._kinds):
            seconds = self._policy.speed(ask, sku, option.workers)
            of_kind[number] = seconds * (1 + self._policy.seconds_per_price * price * option.workers / 3600)
        scores: Scores = of_kind[self._kind_of[indices]]
        if ask.near or ask.clusters or ask.skus:
            scores += self._distance(ask)[indices]
        if option.size:
            scores += self._torn(option, indices) * self._policy.fragmentation_s
        return scores

    def _refresh(self) -> None:
        if self._layout == self._pools.layout:
            return
        self._layout = self._pools.layout
        self._distances = {}
        kinds = [(pool.sku.name, pool.sku.price_per_gpu_hour) for pool in self._pools.all]
        self._kinds = sorted(set(kinds))
        number = {kind: index for index, kind in enumerate(self._kinds)}
        self._kind_of = np.array([number[kind] for kind in kinds], np.intp)

    def _distance(self, ask: Ask) -> Scores:
        key = (ask.near, ask.clusters, ask.skus)
        found = self._distances.get(key)
        if found is None:
            found = self._distances[key] = np.array([self._distance_s(ask, pool) for pool in self._pools.all])
        return found

    def _distance_s(self, ask: Ask, pool: Pool) -> float:
        back = _place_in(ask.clusters, pool.member) + _place_in(ask.skus, pool.sku.name)
        far = self._policy.far_s if ask.near and not _is_near(ask, pool.near) else 0.0
        return far + back * self._policy.preference_s

    def _torn(self, option: Option, indices: Indices) -> Scores:
        """What the gang would tear: half, unless some node has just what a pod takes; and half the share of the pool's room for such pods
        that would be left, so that large blocks stay together for those who need many."""
        room = (self._pools.room(option.size).take(indices) - option.pods) / self._pools.whole_room(option.size).take(indices)
        torn: Scores = 0.5 * (room + (self._pools.counts[:, option.size].take(indices) == 0))
        return torn


def score(place: Place, pools: Pools) -> str:
    """What spoke for a placement, for people."""
    parts = [f"{place.workers} x {place.sku}", duration_words(place.seconds, place.ask.basis)]
    pool = pools.get(place.cluster, place.sku)
    if pool is not None and pool.sku.price_per_gpu_hour:
        costs = "costs" if place.ask.basis != "assumed" else "would then cost"
        parts.append(f"{costs} {pool.sku.price_per_gpu_hour * place.workers * place.seconds / 3600:.2f}")
    if pool is not None and place.ask.near:
        parts.append("its data is near" if _is_near(place.ask, pool.near) else "its data is far")
    return ", ".join(parts)


def _is_near(ask: Ask, prefixes: Sequence[str]) -> bool:
    return any(uri.startswith(prefix) for uri in ask.near for prefix in prefixes)


def _place_in(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names)
