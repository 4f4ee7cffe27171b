"""The scheduling cycle: who waits, what is free, and the decisions that have not been recorded in a JobSpec yet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from tuneyard.api import Attempt, JobStatus
from tuneyard.federation import Ask, Fail, Node, Place, SkuFacts, World, schedule
from tuneyard.federation import Member as MemberFacts
from tuneyard_operators.hub.member import Member
from tuneyard_operators.kube import Key

Slot = tuple[str, str]
"""Cluster and node."""


class Placing:
    """Pure bookkeeping around `federation.schedule`; one cycle at a time."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self.asks: dict[Key, dict[str, Ask]] = {}
        self.decided: dict[Key, dict[str, Place]] = defaultdict(dict)
        """Placements that no status holds yet: they count as taken."""
        self.verdicts: dict[Key, dict[str, str]] = defaultdict(dict)
        """Why the tasks wait that the last cycle did not place."""
        self._held: dict[Key, Counter[Slot]] = {}

    def want(self, key: Key, asks: Mapping[str, Ask]) -> bool:
        """Set what a job waits for. True if that is new, so that a cycle is worth while."""
        before = self.asks.get(key, {})
        if asks:
            self.asks[key] = dict(asks)
        else:
            self.asks.pop(key, None)
            self.verdicts.pop(key, None)
        decided = self.decided.get(key, {})
        for task in [task for task in decided if task not in asks]:
            del decided[task]
        return any(task not in before or before[task] != ask for task, ask in asks.items())

    def recorded(self, key: Key, task: str) -> None:
        """A status holds the placement now: neither decided nor wanted any more."""
        self.decided.get(key, {}).pop(task, None)
        self.asks.get(key, {}).pop(task, None)

    def hold(self, key: Key, status: JobStatus | None) -> bool:
        """Set what a job's attempts hold, by its status as stored (None: it is gone). True if that has freed something."""
        before = self._held.pop(key, Counter())
        held = _held_by(status.attempts if status is not None else ())
        if held:
            self._held[key] = held
        return bool(before - held)

    def cycle(self, members: Iterable[Member], now: float) -> list[Key]:
        """Decide for all who wait. Returns the keys of jobs that have news."""
        world = World(members=tuple(self._facts(member) for member in members), asks=tuple(self._undecided()))
        keys = {f"{namespace}/{name}": (namespace, name) for namespace, name in self.asks}
        news: list[Key] = []
        for decision in schedule(world, self._policy, now):
            key, task = keys[decision.ask.job], decision.ask.task
            if isinstance(decision, Place):
                self.decided[key][task] = decision
                self.verdicts[key].pop(task, None)
                news.append(key)
                continue
            # A place that is too small today may grow, so nobody is failed for it; but it is said at once.
            reason = f"no cluster could ever run it: {decision.reason}" if isinstance(decision, Fail) else decision.reason
            if self.verdicts[key].get(task) != reason:
                self.verdicts[key][task] = reason
                news.append(key)
        return news

    def _undecided(self) -> Iterable[Ask]:
        for key, asks in self.asks.items():
            decided = self.decided.get(key, {})
            yield from (ask for task, ask in asks.items() if task not in decided)

    def _facts(self, member: Member) -> MemberFacts:
        taken: Counter[Slot] = Counter()
        for held in self._held.values():
            taken.update({slot: gpus for slot, gpus in held.items() if slot[0] == member.name})
        for places in self.decided.values():
            for place in places.values():
                if place.cluster == member.name:
                    taken.update({(member.name, node): gpus for node, gpus in place.nodes.items()})
        usable, why_not = member.reachable, member.error
        if usable and member.cluster.spec.cordoned:
            usable, why_not = False, "cordoned"
        skus = tuple(SkuFacts(sku.name, sku.gpus_per_node, sku.price_per_gpu_hour) for sku in member.cluster.spec.skus)
        nodes = (Node(n.name, n.sku, n.gpus, max(0, n.free - taken[member.name, n.name])) for n in member.inventory() if n.ready)
        return MemberFacts(name=member.name, skus=skus, nodes=tuple(nodes), usable=usable, why_not=why_not)


def _held_by(attempts: Iterable[Attempt]) -> Counter[Slot]:
    """GPUs by node that attempts hold until nothing is left of them on their member."""
    held: Counter[Slot] = Counter()
    for attempt in attempts:
        if attempt.placement is not None and not attempt.cleaned:
            for node, gpus in attempt.placement.nodes.items():
                held[attempt.placement.cluster, node] += gpus
    return held
