"""`schedule`: who is placed where, now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tuneyard.federation.fitting import Gang, fit, pod_sizes
from tuneyard.federation.world import PRIORITIES, Ask, Decision, Fail, Member, Node, Place, SkuFacts, Wait, World


def schedule(world: World, policy: str = "fifo-first-fit", now: float = 0.0) -> list[Decision]:
    """A decision for each ask of `world`, in the order in which they were considered. `now`: seconds since the epoch.

    Raises KeyError on an unknown policy.
    """
    return POLICIES[policy](world, now)


def _first_fit(world: World, _now: float) -> list[Decision]:
    """By priority, then age; each takes the first place with room. One that waits holds nobody back (so large gangs may starve)."""
    free = {member.name: {node.name: node for node in member.nodes} for member in world.members}
    decisions: list[Decision] = []
    for ask in sorted(world.asks, key=lambda ask: (-PRIORITIES[ask.priority], ask.created, ask.job, ask.task)):
        decision = _place(ask, world, free)
        if isinstance(decision, Place):
            nodes = free[decision.cluster]
            for name, gpus in decision.nodes.items():
                nodes[name] = replace(nodes[name], free=nodes[name].free - gpus)
        decisions.append(decision)
    return decisions


def _place(ask: Ask, world: World, free: Mapping[str, Mapping[str, Node]]) -> Decision:
    candidates = [member for member in world.members if not ask.clusters or member.name in ask.clusters]
    if ask.clusters:
        candidates.sort(key=lambda member: ask.clusters.index(member.name))
    if not candidates and world.members:
        return Wait(ask=ask, reasons=dict.fromkeys(ask.clusters, "there is no such cluster"))
    reasons: dict[str, str] = {}
    possible = False
    for avoid in (True, False):
        for member in candidates:
            found = _on(ask, member, free[member.name].values(), avoid=avoid)
            if isinstance(found, Place):
                return found
            reasons[member.name] = found
            possible = possible or not member.usable or _ever(ask, member)
        if not ask.avoid:
            break
    if candidates and not possible:
        return Fail(ask=ask, reason=_why_never(ask, candidates))
    return Wait(ask=ask, reasons=reasons)


def _on(ask: Ask, member: Member, nodes: Iterable[Node], *, avoid: bool) -> Place | str:
    """The place on this member, or why there is none."""
    if not member.usable:
        return member.why_not
    here: list[Node] = [node for node in nodes if not (avoid and (member.name, node.name) in ask.avoid)]
    skus = list(_skus(ask, member))
    if not skus:
        return f"has none of {', '.join(ask.skus)}"
    for workers in ask.worlds:
        for sku in skus:
            gang = _fit(ask, workers, sku, [node for node in here if node.sku == sku.name])
            if gang is not None:
                return Place(ask=ask, cluster=member.name, sku=sku.name, workers=workers, pods=gang.pods, nodes=gang.nodes)
    least = ask.worlds[-1]
    return "; ".join(f"{sum(node.free for node in here if node.sku == sku.name)} of {least} {sku.name} free" for sku in skus)


def _fit(ask: Ask, workers: int, sku: SkuFacts, nodes: list[Node]) -> Gang | None:
    return fit(workers, pod_sizes(workers, sku.gpus_per_node, cpu=sku.name == "cpu", unit=ask.unit), nodes)


def _skus(ask: Ask, member: Member) -> Iterator[SkuFacts]:
    if not ask.skus:
        yield from member.skus
    for name in ask.skus:
        sku = member.sku(name)
        if sku is not None:
            yield sku


def _ever(ask: Ask, member: Member) -> bool:
    """Whether the member would do if nothing ran there."""
    empty = [replace(node, free=node.gpus) for node in member.nodes]
    return not isinstance(_on(ask, replace(member, usable=True), empty, avoid=False), str)


def _why_never(ask: Ask, members: list[Member]) -> str:
    most = {
        sku.name: max(sum(node.gpus for node in member.nodes if node.sku == sku.name) for member in members if member.sku(sku.name))
        for member in members
        for sku in _skus(ask, member)
    }
    wanted = f"{ask.worlds[-1]} x {' or '.join(ask.skus) or 'any SKU'}"
    have = ", ".join(f"{count} {name}" for name, count in sorted(most.items())) or f"none of {', '.join(ask.skus)}"
    return f"task {ask.task} needs {wanted} in one cluster, and the most that one has is {have}"


POLICIES: Mapping[str, Callable[[World, float], list[Decision]]] = {"fifo-first-fit": _first_fit}
