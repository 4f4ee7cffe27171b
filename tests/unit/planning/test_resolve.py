"""From a train task with `auto` in it to a plan without: what is chosen, what is kept, what is refused and with which words."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, gpu, shape_from_config
from tuneyard.planning import Plan, resolve

LLAMA_8B = shape_from_config(
    {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    | {"intermediate_size": 14336, "vocab_size": 128256}
)
TINY = shape_from_config(
    {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    | {"intermediate_size": 512, "vocab_size": 4096}
)
LAPTOP = Gpu(
    sku="cpu",
    name="a laptop",
    memory_gb=16.0,
    peak_flops={"fp32": 1e11, "bf16": 1e10},
    memory_bandwidth_gb_s=20.0,
    link_gb_s=0.0,
    pcie_gb_s=0.0,
    vendor="cpu",
    architecture="",
    source="made up",
)


def train(method: str = "full", *, strategy: dict[str, Any] | None = None, **fields: Any) -> TrainTask:
    values: dict[str, Any] = {"model": {"name": "m"}, "data": {"source": "d.jsonl"}, "method": {method: {}}, **fields}
    return TrainTask.model_validate(values | ({"strategy": strategy} if strategy is not None else {}))


def test_one_gpu_with_room_needs_neither_zero_nor_recomputation() -> None:
    plan = resolve(train("lora"), LLAMA_8B, gpu("h100"), 1, flash_available=True, liger_available=True)
    assert (plan.zero, plan.recompute, plan.precision, plan.attention, plan.liger) == (0, False, "bf16", "flash", True)


def test_full_training_of_8b_is_sharded_over_eight_gpus() -> None:
    plan = resolve(train(), LLAMA_8B, gpu("h100"), 8)
    assert plan.zero >= 1
    assert plan.memory.total_gb < 80


def test_a_laptop_trains_in_fp32_with_sdpa() -> None:
    plan = resolve(train(), TINY, LAPTOP, 2, flash_available=True, liger_available=True)
    assert (plan.zero, plan.precision, plan.attention, plan.liger) == (0, "fp32", "sdpa", False)


def test_a_model_without_sdpa_gets_what_it_has() -> None:
    gpt_oss = shape_from_config(
        {"model_type": "gpt_oss", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
        | {"vocab_size": 4096}
    )
    assert resolve(train(), gpt_oss, LAPTOP, 1).attention == "eager"
    assert resolve(train(), gpt_oss, gpu("h100"), 1, flash_available=True).attention == "flash"
    with pytest.raises(BadInput, match="a gpt_oss model has no sdpa attention") as refused:
        resolve(train(model={"name": "m", "attention": "sdpa"}), gpt_oss, gpu("h100"), 1)
    assert refused.value.next_step == "set model.attention to auto or eager"


def test_a_gpu_before_ampere_trains_in_fp16_without_flash() -> None:
    plan = resolve(train("lora"), TINY, gpu("v100-32gb"), 1, flash_available=True)
    assert (plan.precision, plan.attention) == ("fp16", "sdpa")


def test_the_micro_batch_is_the_largest_power_of_two_that_divides_the_rows_of_a_rank() -> None:
    plan = resolve(train(batch={"global": 24}), TINY, gpu("h100"), 2)
    assert (plan.micro_batch, plan.grad_accum) == (4, 3)


def test_a_longer_row_than_the_data_has_is_not_planned_for() -> None:
    long = resolve(train(data={"source": "d", "maxLength": 16384}), LLAMA_8B, gpu("h200"), 8)
    short = resolve(train(data={"source": "d", "maxLength": 16384}), LLAMA_8B, gpu("h200"), 8, max_seq=512)
    assert short.micro_batch > long.micro_batch


RIGID = {"recompute": False, "tensorParallel": 1}


@pytest.mark.parametrize(
    ("task", "workers", "cause", "next_step"),
    [
        (train(batch={"global": 10}), 4, "global batch 10 does not divide into 4 workers", "set batch.global to 8"),
        (train(batch={"global": 32, "micro": 3}), 2, "does not divide into 2 workers x micro-batch 3", "set batch.global to 30"),
        (train(), 1, "does not fit on 1 x h100-80gb: a rank takes", "set strategy.zero to 2 and strategy.offload.optimizer to cpu"),
        (train(strategy=RIGID, data={"source": "d", "maxLength": 8192}), 8, "activations", "set strategy.recompute to true"),
        (train("lora", strategy={"zero": 0}, optimizer={"name": "sgd"}, batch={"micro": 32}), 1, "does not fit", "set batch.micro to auto"),
    ],
)
def test_what_cannot_work_is_refused_with_the_nearest_that_can(task: TrainTask, workers: int, cause: str, next_step: str) -> None:
    with pytest.raises(BadInput) as refused:
        resolve(task, LLAMA_8B, gpu("h100"), workers)
    assert cause in refused.value.cause
    assert next_step in refused.value.next_step


def test_a_model_that_never_fits_is_refused_without_false_hope() -> None:
    with pytest.raises(BadInput, match="use a GPU with more memory than t4-16gb"):
        resolve(train("qlora", batch={"global": 1}, data={"source": "d", "maxLength": 100_000}), LLAMA_8B, gpu("t4"), 1)


@pytest.mark.parametrize("settings_", [{"precision": "bf16"}, {}])
def test_flash_is_refused_on_a_gpu_without_it(settings_: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="bf16" if settings_ else "Ampere"):
        resolve(train(strategy=settings_, model={"name": "m", "attention": "flash"}), TINY, gpu("v100-16gb"), 1)


def test_offload_without_room_on_the_host_does_not_fit() -> None:
    offloaded = train(strategy={"offload": {"optimizer": "cpu"}})
    assert resolve(offloaded, LLAMA_8B, gpu("h100"), 2).host_memory_gb > 16
    with pytest.raises(BadInput, match="GB of host memory"):
        resolve(offloaded, LLAMA_8B, gpu("h100"), 2, host_memory_gb=16)


tasks = st.builds(
    train,
    st.sampled_from(["full", "lora", "qlora", "dora"]),
    batch=st.fixed_dictionaries({"global": st.integers(1, 256)}),
    data=st.fixed_dictionaries({"source": st.just("d"), "maxLength": st.sampled_from([128, 2048, 8192])}),
)
skus = st.sampled_from(["a100-40gb", "h100-80gb", "h200-141gb", "l40s-48gb"])


def plan_or_none(task: TrainTask, sku: str, workers: int) -> Plan | None:
    try:
        return resolve(task, LLAMA_8B, gpu(sku), workers)
    except BadInput:
        return None


@settings(deadline=None, max_examples=60)
@given(task=tasks, sku=skus, workers=st.integers(1, 16))
def test_the_global_batch_is_kept_and_the_same_question_gets_the_same_answer(task: TrainTask, sku: str, workers: int) -> None:
    plan = plan_or_none(task, sku, workers)
    assert plan == plan_or_none(task, sku, workers)
    if plan is not None:
        assert plan.global_batch == task.batch.global_
        assert plan.memory.total_gb <= gpu(sku).memory_gb
        assert Plan.from_dict(plan.to_dict()) == plan


@settings(deadline=None, max_examples=60)
@given(
    sku=skus,
    workers=st.sampled_from([1, 2, 4, 8]),
    zero=st.sampled_from([0, 1, 2, 3]),
    recompute=st.booleans(),
    precision=st.sampled_from(["bf16", "fp16", "fp32"]),
    micro=st.sampled_from([1, 2, 4]),
)
def test_explicit_settings_are_always_honoured(sku: str, workers: int, zero: int, recompute: bool, precision: str, micro: int) -> None:
    strategy = {"zero": zero, "recompute": recompute, "precision": precision}
    plan = plan_or_none(train(strategy=strategy, batch={"global": 32, "micro": micro}), sku, workers)
    if plan is not None:
        assert (plan.zero, plan.recompute, plan.precision, plan.micro_batch) == (zero, recompute, precision, micro)
