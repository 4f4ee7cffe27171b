"""Rules about layouts: tensor and context parallelism, hybrid sharding, compressed collectives."""

from __future__ import annotations

from collections.abc import Iterator

from tuneyard.api.rules_case import Case, Fix, Rule
from tuneyard.api.tasks import WorkerRange

_USUAL_DEGREES = (2, 4, 8)


def _whole_groups(case: Case) -> bool:
    workers, ranks = case.resources.workers, case.train.ranks_per_replica
    if isinstance(workers, WorkerRange):
        return workers.max // ranks * ranks >= workers.min
    return workers == "auto" or workers % ranks == 0


def _whole_groups_instead(case: Case) -> tuple[Fix, ...]:
    """Fixes: degrees that divide the workers; the nearest numbers of workers that form whole groups and divide the batch; no groups."""
    ranks, workers = case.train.ranks_per_replica, case.resources.workers
    wanted = workers.min if isinstance(workers, WorkerRange) else workers
    near = [] if not isinstance(wanted, int) else [count for count in (wanted // ranks * ranks, -(-wanted // ranks) * ranks) if count]
    fitting = [count for count in dict.fromkeys(near) if case.train.divides_over(count)]
    groups = {"train.strategy.tensorParallel": 1, "train.strategy.contextParallel": 1}
    return (*_degrees(case), *({"resources.workers": count} for count in fitting), groups)


def _degrees(case: Case) -> Iterator[Fix]:
    """Powers of two in place of the degree that does not divide, if the task has only one kind of group."""
    asked, workers = case.strategy, case.resources.workers
    if not isinstance(workers, int) or (asked.tensor_parallel > 1 and asked.context_parallel > 1):
        return
    field = "train.strategy.tensorParallel" if asked.tensor_parallel > 1 else "train.strategy.contextParallel"
    for degree in _USUAL_DEGREES:
        if workers % degree == 0 and case.train.batch.divides_over(workers // degree):
            yield {field: degree}


def _splits_rows(case: Case) -> bool:
    return case.strategy.context_parallel > 1 and _whole_groups(case) and not _averages_itself(case)


def _averages_itself(case: Case) -> bool:
    """Whether Tuneyard averages gradients, over groups that are formed for data parallelism alone."""
    return case.strategy.shard_within == "host" or case.strategy.quantised_all_reduce != "none"


PARALLEL_RULES = (
    Rule(
        id="sequence-parallel",
        kind="train",
        refused="sequence parallelism without tensor parallelism",
        why="the ranks that share each matrix also split the tokens between the matrices, and here no ranks share a matrix",
        field="train.strategy.sequenceParallel",
        breaks=lambda c: c.strategy.sequence_parallel and c.strategy.tensor_parallel == 1,
        nearest=lambda _: ({"train.strategy.sequenceParallel": False},),
        example={"train.strategy.sequenceParallel": True},
    ),
    Rule(
        id="sequence-of-program",
        kind="train",
        refused="a program with sequence parallelism",
        why="the dimension of tokens in a program's batch is not known",
        field="train.strategy.sequenceParallel",
        breaks=lambda c: c.strategy.sequence_parallel and c.strategy.tensor_parallel > 1 and c.train.program is not None,
        nearest=lambda _: ({"train.strategy.sequenceParallel": False},),
        example={
            "train.strategy.sequenceParallel": True,
            "train.strategy.tensorParallel": 2,
            "resources.workers": 2,
            "train.program": "captions:Captions",
        },
    ),
    Rule(
        id="context-of-program",
        kind="train",
        refused="a program with context parallelism",
        why="the dimension of tokens in a program's batch is not known",
        field="train.strategy.contextParallel",
        breaks=lambda c: _splits_rows(c) and c.train.program is not None,
        nearest=lambda _: ({"train.strategy.contextParallel": 1},),
        example={"train.strategy.contextParallel": 2, "resources.workers": 2, "train.program": "captions:Captions"},
    ),
    Rule(
        id="context-attention",
        kind="train",
        refused="flash or eager attention with context parallelism",
        why="ranks exchange tokens for heads around torch's attention (sdpa), which has a flash kernel of its own",
        field="train.model.attention",
        breaks=lambda c: _splits_rows(c) and c.train.model.attention in ("flash", "eager"),
        nearest=lambda _: ({"train.model.attention": "auto"}, {"train.strategy.contextParallel": 1}),
        example={"train.strategy.contextParallel": 2, "resources.workers": 2, "train.model.attention": "eager"},
    ),
    Rule(
        id="context-liger",
        kind="train",
        refused="Liger kernels with context parallelism",
        why="their fused loss takes labels of whole rows",
        field="train.strategy.liger",
        breaks=lambda c: _splits_rows(c) and c.strategy.liger is True,
        nearest=lambda _: ({"train.strategy.liger": "auto"}, {"train.strategy.contextParallel": 1}),
        example={"train.strategy.contextParallel": 2, "resources.workers": 2, "train.strategy.liger": True},
    ),
    Rule(
        id="context-and-tensor",
        kind="train",
        refused="context parallelism with tensor parallelism",
        why="in this version, heads are exchanged over ranks that hold all of them",
        field="train.strategy.contextParallel",
        breaks=lambda c: _splits_rows(c) and c.strategy.tensor_parallel > 1,
        nearest=lambda _: ({"train.strategy.contextParallel": 1, "train.strategy.tensorParallel": 1},),
        example={"train.strategy.contextParallel": 2, "train.strategy.tensorParallel": 2, "resources.workers": 4},
    ),
    Rule(
        id="uneven-groups",
        kind="train",
        refused="workers that make no whole number of groups",
        why="tensorParallel x contextParallel ranks hold one copy of the model and share its rows",
        field="resources.workers",
        breaks=lambda c: not _whole_groups(c),
        nearest=_whole_groups_instead,
        example={"train.strategy.tensorParallel": 2, "resources.workers": 3, "train.batch.global": 30},
    ),
)
