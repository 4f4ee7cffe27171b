"""Builders for scheduling: members, nodes, asks, attempts, in a line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.federation import Ask, Decision, Member, Node, Place, Policy, Running, SkuFacts, Team, World, schedule

H100 = SkuFacts("h100-80gb", 8)
A100 = SkuFacts("a100-80gb", 8)
CPU = SkuFacts("cpu", 4)
HOUR = 3600.0


def member(name: str = "east", *free: int, sku: SkuFacts = H100, **more: Any) -> Member:
    """Nodes `<name>-0`, `<name>-1` … of the SKU's size, with so many GPUs free."""
    nodes = tuple(Node(f"{name}-{n}", sku.name, sku.gpus_per_node, amount) for n, amount in enumerate(free))
    return Member(name=name, skus=(sku,), nodes=nodes, **more)


def ask(job: str = "a", *worlds: int, **more: Any) -> Ask:
    """An ask for 8 GPUs for an hour, of team `t`, unless said otherwise."""
    fields: dict[str, Any] = {"task": "train", "team": "t", "priority": "normal", "created": 0.0, "seconds": HOUR}
    return Ask(job=job, worlds=worlds or (8,), **{**fields, **more})


def running(job: str, nodes: Mapping[str, int], *, cluster: str = "east", ends: float = HOUR, **more: Any) -> Running:
    """An attempt for two hours before 0, with a checkpoint of 0, of team `t`, on h100-80gb, unless said otherwise."""
    fields: dict[str, Any] = {"task": "train", "team": "t", "priority": "normal", "sku": H100.name, "started": -2 * HOUR, "saved": 0.0}
    return Running(job=job, cluster=cluster, nodes=nodes, ends=ends, **{**fields, **more})


def decide(
    members: list[Member],
    *asks: Ask,
    running: tuple[Running, ...] = (),
    teams: tuple[Team, ...] = (),
    policy: Policy | str = "tuneyard",
    now: float = 0.0,
) -> list[Decision]:
    return schedule(World(members=tuple(members), asks=asks, running=running, teams=teams), policy, now)


def placed(decisions: list[Decision]) -> dict[str, str]:
    """Job -> cluster of those that were placed."""
    return {decision.ask.job: decision.cluster for decision in decisions if isinstance(decision, Place)}
