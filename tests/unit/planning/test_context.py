"""Plans whose rows are split over ranks: what a rank holds, what is exchanged, which degrees there are, and when one is proposed."""

from __future__ import annotations

from typing import Any

import pytest

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import gpu, known_config, shape_from_config
from tuneyard.planning import Layout, Setup, estimate_memory, estimate_speed, resolve

LLAMA = shape_from_config(known_config("meta-llama/Meta-Llama-3-8B"))
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
