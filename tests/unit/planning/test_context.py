"""Plans whose rows are split over ranks: what a rank holds, what is exchanged, which degrees there are, and when one is proposed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tuneyard.api import BadInput, Task, TrainTask, check_task
from tuneyard.catalog import ModelShape, gpu, known_config
from tuneyard.planning import Layout, Setup, estimate_memory, estimate_speed, resolve

LLAMA = ModelShape.from_config(known_config("meta-llama/Meta-Llama-3-8B"))
H100 = gpu("h100-80gb")


def task_of(**changes: Any) -> TrainTask:
    fields = {"model": {"name": "model"}, "data": {"source": "data.jsonl", "maxLength": 131072}, "batch": {"global": 8}, "steps": 10}
    return TrainTask.model_validate({**fields, **changes})


def setup_of(context: int, **changes: Any) -> Setup:
    layout: dict[str, Any] = {"workers": 8, "zero": 3, "precision": "bf16", "attention": "sdpa", "micro_batch": 1, "seq_len": 65536}
    return Setup(shape=LLAMA, gpu=H100, layout=Layout(**{**layout, "context_parallel": context, **changes}))


def test_activations_fall_with_the_degree_and_states_stay() -> None:
    one, four = (estimate_memory(setup_of(context)).device for context in (1, 4))

    assert four.activations_gb == pytest.approx(one.activations_gb / 4, rel=1e-3)
    assert (four.weights_gb, four.optimizer_gb) == (one.weights_gb, one.optimizer_gb)


def test_ranks_that_share_a_row_take_its_work_and_exchange_it() -> None:
    one, four = (estimate_speed(setup_of(context, recompute=True)).terms for context in (1, 4))

    assert four.attention_s == pytest.approx(one.attention_s / 4)
    assert one.context_parallel_s == 0 < four.context_parallel_s


def test_rows_that_do_not_fit_are_split_as_the_refusal_says() -> None:
    """One row of 131,072 tokens in each of 8 ranks."""
    task = task_of(strategy={"liger": False})
    with pytest.raises(BadInput) as refused:
        resolve(task, LLAMA, H100, 8)
    assert "set strategy.contextParallel to " in refused.value.next_step

    degree = int(refused.value.next_step.rpartition(" ")[2])
    plan = resolve(task_of(strategy={"liger": False, "contextParallel": degree}), LLAMA, H100, 8)

    assert plan.context_parallel == degree
    assert plan.attention == "sdpa"
    assert plan.global_batch == 8


@pytest.mark.parametrize(
    ("strategy", "workers", "cause", "next_step"),
    [
        ({"contextParallel": 3}, 8, "8 workers make no whole number of groups of 3", "contextParallel to 1 or 2 or 4 or 8"),
        ({"contextParallel": 64}, 64, "64 ranks cannot share 32 attention heads", "contextParallel to 1 or 2 or 4 or 8 or 16 or 32"),
    ],
)
def test_degrees_that_cannot_be_are_refused(strategy: dict[str, int], workers: int, cause: str, next_step: str) -> None:
    with pytest.raises(BadInput) as refused:
        resolve(task_of(strategy=strategy, batch={"global": 64}), LLAMA, H100, workers)
    assert cause in refused.value.cause
    assert next_step in refused.value.next_step


def test_a_model_without_sdpa_is_refused() -> None:
    from dataclasses import replace

    with pytest.raises(BadInput, match="a bloom model has no sdpa attention"):
        resolve(task_of(strategy={"contextParallel": 2}), replace(LLAMA, model_type="bloom"), H100, 8)


HUGE = ModelShape.from_config(known_config("meta-llama/Llama-3.1-70B"))


@pytest.mark.parametrize(
    ("shape", "workers", "length", "strategy"),
    [
        (HUGE, 32, 8192, {"shardWithin": "host"}),
        (HUGE, 16, 8192, {"quantisedAllReduce": "int8"}),
        (LLAMA, 8, 131072, {"contextParallel": 2, "zero": 3}),
        (LLAMA, 8, 65536, {"tensorParallel": 2}),
        (LLAMA, 8, 65536, {"tensorParallel": 2, "sequenceParallel": True}),
        (HUGE, 64, 131072, {"contextParallel": 4}),
    ],
)
def test_advice_can_be_followed(shape: ModelShape, workers: int, length: int, strategy: dict[str, Any]) -> None:
    task = task_of(strategy=strategy, data={"source": "data.jsonl", "maxLength": length}, batch={"global": 64})
    with pytest.raises(BadInput, match="does not fit") as refused:
        resolve(task, shape, H100, workers, gpus_per_node=8)

    advice = refused.value.next_step
    settings = dict(re.findall(r"([\w.]+) to ([\w.]+)", advice.partition("set ")[2]))
    changed: dict[str, Any] = {"strategy": dict(strategy), "optimizer": {}, "method": {"full": {}}}
    for name, value in settings.items():
        group, _, field = name.partition(".")
        if group == "strategy":
            changed["strategy"][field] = yaml.safe_load(value)
        elif group == "method":
            changed["method"] = {value: {}}
        else:
            changed.setdefault(group, {})[field] = yaml.safe_load(value)
    if not settings:
        return  # another device, length or model
    followed = task_of(data={"source": "data.jsonl", "maxLength": length}, batch={"global": 64}, **changed)
    whole = Task.model_validate({"name": "task", "train": followed, "resources": {"workers": workers}})
    assert check_task(whole, device=H100.device, model_type=shape.model_type) == []
    assert resolve(followed, shape, H100, workers, gpus_per_node=8).workers == workers
