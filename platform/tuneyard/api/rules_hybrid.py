"""Rules about hybrid sharding, compressed collectives and bf16 optimizer states."""

from __future__ import annotations

from tuneyard.api.rules_case import Case, Rule

_WITHIN_NONE = {"train.strategy.shardWithin": "none"}
_PLAIN = {"train.strategy.quantisedAllReduce": "none"}
_FEWEST = 4
"""Two hosts with two ranks each."""


def _within_host(case: Case) -> bool:
    return case.strategy.shard_within == "host"


def _quantised(case: Case) -> bool:
    return case.strategy.quantised_all_reduce != "none"


def _offloads(case: Case) -> bool:
    return case.strategy.offload.optimizer != "none" or case.strategy.offload.parameters != "none"


def _splits_replicas(case: Case) -> bool:
    return case.strategy.tensor_parallel > 1 or case.strategy.context_parallel > 1


HYBRID_RULES = (
    Rule(
        id="shard-within-host-zero",
        kind="train",
        of_rankers=True,
        refused="hybrid sharding (shardWithin: host) below ZeRO-3",
        why="it shards parameters, gradients and optimizer states over the ranks of a host, as ZeRO-3 does over all",
        field="train.strategy.shardWithin",
        breaks=lambda c: _within_host(c) and c.strategy.zero in (0, 1, 2),
        nearest=lambda _: ({"train.strategy.zero": 3}, _WITHIN_NONE),
        example={"train.strategy": {"shardWithin": "host", "zero": 1}},
    ),
    Rule(
        id="shard-within-host-qlora",
        kind="train",
        refused="hybrid sharding (shardWithin: host) of 4-bit weights (qlora)",
        why="it is ZeRO-3 inside a host, which cannot shard 4-bit weights",
        field="train.strategy.shardWithin",
        breaks=lambda c: _within_host(c) and c.train.method.name == "qlora" and c.strategy.zero == "auto",
        nearest=lambda _: (_WITHIN_NONE, {"train.method": {"lora": {}}}),
        example={"train.method": {"qlora": {"rank": 16}}, "train.strategy.shardWithin": "host"},
    ),
    Rule(
        id="shard-within-host-offload",
        kind="train",
        of_rankers=True,
        refused="hybrid sharding (shardWithin: host) with offload",
        why="offloaded gradients leave the GPU before they are averaged across hosts",
        field="train.strategy.offload",
        breaks=lambda c: _within_host(c) and _offloads(c) and c.strategy.zero in (3, "auto"),
        nearest=lambda _: ({"train.strategy.offload": None}, _WITHIN_NONE),
        example={"train.strategy": {"shardWithin": "host", "offload": {"optimizer": "cpu"}}},
    ),
    Rule(
        id="shard-within-host-alone",
        kind="train",
        of_rankers=True,
        refused="hybrid sharding (shardWithin: host) over fewer than four workers",
        why="it needs two hosts with two ranks each; on one host it is plain ZeRO-3, with one rank per host plain replication",
        field="train.strategy.shardWithin",
        breaks=lambda c: _within_host(c) and isinstance(c.resources.workers, int) and c.resources.workers < _FEWEST,
        nearest=lambda _: (_WITHIN_NONE, {"resources.workers": _FEWEST}),
        example={"train.strategy.shardWithin": "host", "resources.workers": 2},
    ),
    Rule(
        id="hybrid-replicas",
        kind="train",
        refused="hybrid sharding or a quantised all-reduce with tensor or context parallelism",
        why="both average gradients over groups that are formed for data parallelism alone",
        field="train.strategy",
        breaks=lambda c: (_within_host(c) or _quantised(c)) and _splits_replicas(c),
        nearest=lambda _: ({"train.strategy.tensorParallel": 1, "train.strategy.contextParallel": 1},),
        example={"train.strategy": {"quantisedAllReduce": "int8", "contextParallel": 2}, "resources.workers": 4},
    ),
    Rule(
        id="quantised-all-reduce-zero",
        kind="train",
        of_rankers=True,
        refused="a quantised all-reduce under ZeRO 1, 2 or 3 over all ranks",
        why="there, DeepSpeed reduce-scatters gradients itself; only replicas (ZeRO 0, or hosts with shardWithin: host) all-reduce them",
        field="train.strategy.quantisedAllReduce",
        breaks=lambda c: _quantised(c) and not _within_host(c) and c.strategy.zero in (1, 2, 3),
        nearest=lambda _: ({"train.strategy.zero": 3, "train.strategy.shardWithin": "host"}, {"train.strategy.zero": 0}, _PLAIN),
        example={"train.strategy": {"quantisedAllReduce": "int8", "zero": 2}},
    ),
    Rule(
        id="quantised-all-reduce-alone",
        kind="train",
        of_rankers=True,
        refused="a quantised all-reduce with one worker",
        why="it has no other worker to average gradients with",
        field="train.strategy.quantisedAllReduce",
        breaks=lambda c: _quantised(c) and not _within_host(c) and c.resources.workers == 1,
        nearest=lambda _: (_PLAIN, {"resources.workers": 2}),
        example={"train.strategy.quantisedAllReduce": "int8", "resources.workers": 1},
    ),
    Rule(
        id="bf16-states-adamw",
        kind="train",
        of_rankers=True,
        refused="bf16 states of an optimizer other than adamw",
        why="only adamw has two running means to round: those of adamw-8bit are smaller, and adafactor and sgd have next to none",
        field="train.optimizer.states",
        breaks=lambda c: c.train.optimizer.states == "bf16" and c.train.optimizer.name != "adamw",
        nearest=lambda _: ({"train.optimizer.states": "fp32"}, {"train.optimizer.name": "adamw"}),
        example={"train.optimizer": {"states": "bf16", "name": "sgd"}},
    ),
    Rule(
        id="bf16-states-offload",
        kind="train",
        of_rankers=True,
        refused="bf16 states of an offloaded optimizer",
        why="the step on offloaded states runs in DeepSpeed's CPU Adam, which keeps them in fp32",
        field="train.optimizer.states",
        breaks=lambda c: (
            c.train.optimizer.states == "bf16" and c.train.optimizer.name == "adamw" and c.strategy.offload.optimizer != "none"
        ),
        nearest=lambda _: ({"train.optimizer.states": "fp32"}, {"train.strategy.offload.optimizer": "none"}),
        example={"train.optimizer.states": "bf16", "train.strategy": {"zero": 2, "offload": {"optimizer": "cpu"}}},
    ),
)
