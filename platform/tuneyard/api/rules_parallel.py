"""Rules about layouts: tensor and context parallelism, hybrid sharding, compressed collectives."""

from __future__ import annotations

from tuneyard.api.rules_case import Case, Rule


def _whole_groups(case: Case) -> bool:
    workers = case.resources.workers
    return not isinstance(workers, int) or workers % case.train.ranks_per_replica == 0


def _averages_itself(case: Case) -> bool:
    """Gradients are averaged by Tuneyard, over groups that know of data parallelism alone."""
    return case.strategy.shard_within == "host" or case.strategy.quantised_all_reduce != "none"


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
        breaks=lambda c: c.strategy.context_parallel > 1 and _whole_groups(c) and not _averages_itself(c),
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
)
