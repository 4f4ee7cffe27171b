"""The choice among plans that fit: the simplest of those that are as fast as the fastest."""

from __future__ import annotations

from collections.abc import Iterable

from tuneyard.planning.plan import Plan

_AS_FAST = 0.98
"""A plan at this share of the fastest plan's speed counts as equally fast: predictions are no more exact."""
_AS_FAST_ON_CPU = 0.7
"""The same on `cpu`, where ranks share cores, caches and bandwidth, and the estimate lacks DeepSpeed's overhead over DDP."""


def best(ranked: Iterable[Plan]) -> Plan:
    """The simplest plan within 2 % of the fastest (on `cpu`, 30 %). Raises ValueError for no plans."""
    candidates = list(ranked)
    fastest = max(_tokens_per_s(plan) for plan in candidates)
    as_fast = [plan for plan in candidates if _tokens_per_s(plan) >= (_AS_FAST_ON_CPU if plan.sku == "cpu" else _AS_FAST) * fastest]
    return min(as_fast, key=_complexity)


def _tokens_per_s(plan: Plan) -> float:
    return plan.speed.tokens_per_s if plan.speed else 0.0


def _complexity(plan: Plan) -> tuple[int, int, bool, int, bool, int]:
    within_host = plan.shard_within == "host"
    return plan.pipeline_parallel, plan.tensor_parallel, plan.recompute, plan.zero, within_host, -plan.micro_batch
