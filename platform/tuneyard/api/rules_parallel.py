"""Rules about layouts: tensor and context parallelism, hybrid sharding, compressed collectives."""

from __future__ import annotations

from tuneyard.api.rules_case import Case, Rule


def _whole_groups(case: Case) -> bool:
    workers = case.resources.workers
    return not isinstance(workers, int) or workers % case.train.ranks_per_replica == 0


PARALLEL_RULES = (
    Rule(
        id="sequence-parallel",
        kind="train",
        refused="sequence parallelism",
        why="what lies between the matrices is whole on each rank of a tensor-parallel group in this version",
        field="train.strategy.sequenceParallel",
        breaks=lambda c: c.strategy.sequence_parallel,
        nearest=lambda _: ({"train.strategy.sequenceParallel": False},),
        example={"train.strategy.sequenceParallel": True},
    ),
    Rule(
        id="context-parallel",
        kind="train",
        refused="context parallelism",
        why="rows are not split over ranks in this version",
        field="train.strategy.contextParallel",
        breaks=lambda c: c.strategy.context_parallel > 1 and _whole_groups(c),
        nearest=lambda _: ({"train.strategy.contextParallel": 1},),
        example={"train.strategy.contextParallel": 2, "resources.workers": 2},
    ),
    Rule(
        id="uneven-groups",
        kind="train",
        refused="workers that make no whole number of groups",
        why="tensorParallel x contextParallel ranks hold one copy of the model and share its rows",
        field="resources.workers",
        breaks=lambda c: not _whole_groups(c),
        nearest=lambda _: ({"train.strategy.tensorParallel": 1, "train.strategy.contextParallel": 1},),
        example={"train.strategy.tensorParallel": 2, "resources.workers": 3, "train.batch.global": 30},
    ),
    Rule(
        id="shard-within-host",
        kind="train",
        refused="hybrid sharding (shardWithin: host)",
        why="training shards over all ranks in this version",
        field="train.strategy.shardWithin",
        breaks=lambda c: c.strategy.shard_within == "host",
        nearest=lambda _: ({"train.strategy.shardWithin": "none"},),
        example={"train.strategy.shardWithin": "host"},
    ),
    Rule(
        id="quantised-all-reduce",
        kind="train",
        refused="a quantised all-reduce of gradients",
        why="gradients are reduced as they are in this version",
        field="train.strategy.quantisedAllReduce",
        breaks=lambda c: c.strategy.quantised_all_reduce != "none",
        nearest=lambda _: ({"train.strategy.quantisedAllReduce": "none"},),
        example={"train.strategy.quantisedAllReduce": "int8"},
    ),
)
