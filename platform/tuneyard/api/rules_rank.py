"""Rules about rank tasks only. Rules about the layout of their dense part are those of train tasks (`Rule.of_rankers`)."""

from __future__ import annotations

from tuneyard.api.rules_case import Case, Device, Rule

_DATA_PARALLEL = {"rank.strategy.tensorParallel": 1, "rank.strategy.contextParallel": 1, "rank.strategy.sequenceParallel": False}


def _is_split(case: Case) -> bool:
    layout = case.strategy
    return layout.tensor_parallel > 1 or layout.context_parallel > 1 or layout.sequence_parallel


RANK_RULES = (
    Rule(
        id="ranker-parallel",
        kind="rank",
        refused="a ranker with tensor, context or sequence parallelism",
        why="rankers train data-parallel: tables are sharded over all ranks, and strategy.zero 3 shards the dense part",
        field="rank.strategy",
        breaks=_is_split,
        nearest=lambda _: (_DATA_PARALLEL,),
        example={"rank.strategy": {"tensorParallel": 2}, "resources.workers": 2},
    ),
    Rule(
        id="ranker-open-batch",
        kind="rank",
        refused="`batch.global: auto` of a ranker",
        why="a row of a ranker takes a few kilobytes: the largest batch that fits has millions of rows, and learns little in a pass",
        field="rank.batch.global",
        breaks=lambda c: c.train.batch.is_open,
        nearest=lambda _: ({"rank.batch.global": 4096},),
        example={"rank.batch": {"global": "auto"}},
    ),
    Rule(
        id="ranker-fp16",
        kind="rank",
        refused="a ranker in fp16",
        why="tables get gradients that no loss scaler sees",
        field="rank.strategy.precision",
        breaks=lambda c: c.strategy.precision == "fp16",
        nearest=lambda _: ({"rank.strategy.precision": "fp32"}, {"rank.strategy.precision": "auto"}),
        example={"rank.strategy.precision": "fp16"},
    ),
    Rule(
        id="ranker-bf16",
        kind="rank",
        refused="a ranker in bf16 on a GPU without it",
        why="GPUs before Ampere (T4, V100) have no bf16 arithmetic",
        field="rank.strategy.precision",
        breaks=lambda c: c.strategy.precision == "bf16" and c.device is not None and not c.device.bf16,
        nearest=lambda _: ({"rank.strategy.precision": "fp32"}, {"rank.strategy.precision": "auto"}),
        example={"rank.strategy.precision": "bf16"},
        example_device=Device(sku="t4-16gb", flash=False, bf16=False),
    ),
)
