"""The advice of a refusal, followed to the letter: the rules that `tuneyard validate` has accept it, and a plan fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import yaml
from tests.unit.planning.setups import LLAMA_8B, LLAMA_70B

from tuneyard.api import BadInput, Task, TrainTask, check_task
from tuneyard.catalog import ModelShape, gpu, rules_device, shape_from_config
from tuneyard.planning import Plan, Site, resolve

H100 = "h100-80gb"
STRATEGIES: tuple[dict[str, Any], ...] = (
    {},
    {"shardWithin": "host"},
    {"shardWithin": "host", "quantisedAllReduce": "int8"},
    {"quantisedAllReduce": "fp8"},
    {"contextParallel": 2},
    {"contextParallel": 4, "recompute": False},
    {"tensorParallel": 2},
    {"tensorParallel": 4, "sequenceParallel": True},
    {"zero": 0, "recompute": False},
    {"zero": 3, "liger": True},
    {"offload": {"optimizer": "cpu"}},
)


_WIDE = {"num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "vocab_size": 32064}
APART: tuple[ModelShape, ...] = (
    shape_from_config({"model_type": "phi3", **_WIDE, "num_key_value_heads": 10, "intermediate_size": 17920}),
    shape_from_config({"model_type": "opt", **_WIDE, "ffn_dim": 20480}),
    shape_from_config({"model_type": "gpt2", "n_layer": 48, "n_embd": 6400, "n_head": 25, "vocab_size": 50257, "n_positions": 1024}),
    replace(LLAMA_8B, model_type="falcon", heads=71, kv_heads=1, exact=False),
)
"""Heads that are not paired, or that no usual degree divides."""


def fields_of(strategy: dict[str, Any], length: int, **changes: Any) -> dict[str, Any]:
    data = {"source": "d.jsonl", "maxLength": length}
    return {"model": {"name": "m"}, "data": data, "batch": {"global": 64}, "strategy": strategy, **changes}


def asked(fields: dict[str, Any], shape: ModelShape, workers: int, site: Site) -> Plan:
    """As `tuneyard plan` asks: the rules first."""
    task = Task.model_validate({"name": "t", "train": fields, "resources": {"sku": [H100], "workers": workers}})
    broken = check_task(task, device=rules_device(H100), model_type=shape.model_type)
    assert not broken, broken[0].reason
    return resolve(TrainTask.model_validate(fields), shape, gpu(H100), workers, **site)


def followed(advice: str, fields: dict[str, Any], shape: ModelShape, workers: int) -> Plan:
    """The plan after exactly the named fields were set."""
    site: Site = {"liger_available": advice.startswith("install liger-kernel")}
    fields, words = deepcopy(fields), advice.partition("set ")[2]
    for setting in re.split(r", | and ", words) if words else ():
        name, _, value = setting.partition(" to ")
        *groups, last = name.split(".")
        if groups == ["resources"]:
            workers = int(value)
            continue
        inner = fields
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = yaml.safe_load(value)
    return asked(fields, shape, workers, site)


def refusal_of(ask: Callable[[], Plan]) -> BadInput | None:
    try:
        ask()
    except BadInput as error:
        return error
    return None


def advice(fields: dict[str, Any], shape: ModelShape, workers: int) -> str:
    """What the refusal says to do; empty where a plan fits, or the question itself is refused."""
    try:
        asked(fields, shape, workers, {})
    except BadInput as refused:
        return refused.next_step if refused.cause.startswith("does not fit") else ""
    return ""


def is_allowed(fields: dict[str, Any], workers: int) -> bool:
    task = Task.model_validate({"name": "t", "train": fields, "resources": {"sku": [H100], "workers": workers}})
    return not check_task(task, device=rules_device(H100))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_advice_that_is_followed_is_accepted_and_fits(strategy: dict[str, Any]) -> None:
    models = [(LLAMA_8B, "full"), (LLAMA_8B, "lora"), (LLAMA_70B, "full"), (LLAMA_70B, "qlora")]
    followed_ones = 0
    for (shape, method), workers, length in product(models, [1, 8, 32], [2048, 8192, 131072]):
        fields = fields_of(strategy, length, method={method: {}})
        words = advice(fields, shape, workers) if is_allowed(fields, workers) else ""
        if words and not words.startswith("use a GPU"):
            assert followed(words, fields, shape, workers).fits
            followed_ones += 1
    assert followed_ones


@pytest.mark.parametrize("shape", APART, ids=lambda shape: f"{shape.model_type} {shape.heads} heads")
def test_advice_can_be_followed_where_heads_do_not_divide(shape: ModelShape) -> None:
    """Each number that a refusal names, whatever it refuses: then a plan fits, or memory alone is left to say."""
    followed_ones = 0
    strategies: tuple[dict[str, Any], ...] = ({}, {"contextParallel": 2}, {"contextParallel": 8}, {"tensorParallel": 2})
    for strategy, method, workers, length in product(strategies, ["full", "lora"], [1, 8], [2048, 131072]):
        fields = fields_of(strategy, length, method={method: {}})
        if not is_allowed(fields, workers):
            continue
        refused = refusal_of(partial(asked, fields, shape, workers, {}))
        if refused is None or refused.next_step.startswith("use a GPU"):
            continue
        named, *others = refused.next_step.split(" or ")
        for words in (named, *(f"{named.rpartition(' ')[0]} {other}" for other in others)):
            left = refusal_of(partial(followed, words, fields, shape, workers))
            assert left is None or (left.cause.startswith("does not fit") and not refused.cause.startswith("does not fit")), words
            followed_ones += 1
    assert followed_ones


def test_states_that_are_too_large_inside_hosts_are_sharded_over_all_ranks() -> None:
    fields = fields_of({"shardWithin": "host"}, 8192)
    assert advice(fields, LLAMA_70B, 32) == "set strategy.shardWithin to none"


def test_liger_is_not_proposed_for_rows_that_are_split() -> None:
    assert "liger" not in advice(fields_of({"contextParallel": 2}, 131072, batch={"global": 8}), LLAMA_8B, 8)


def test_rows_that_are_split_instead_of_matrices_name_both_degrees() -> None:
    words = advice(fields_of({"tensorParallel": 2}, 131072), LLAMA_8B, 8)
    assert "strategy.contextParallel to " in words
    assert "strategy.tensorParallel to 1" in words


def test_rows_that_are_split_too_little_are_split_further() -> None:
    words = advice(fields_of({"contextParallel": 4}, 131072), LLAMA_70B, 32)
    assert words == "split rows over 8 workers: set strategy.contextParallel to 8"


def test_what_the_optimizer_step_takes_is_named_and_shorter_rows_do_not_help_it() -> None:
    model = {"name": "m", "init": "scratch"}
    with pytest.raises(BadInput, match=r"optimizer step \d.*activations 0.0, other 1\.") as refused:
        asked(fields_of({"zero": 1}, 512, batch={"global": 1}, model=model), LLAMA_70B, 1, {"host_memory_gb": 1.0})
    assert refused.value.next_step == "use a GPU with more memory than h100-80gb or a smaller model"
