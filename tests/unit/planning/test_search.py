"""The search for plans: all of them fit and divide the batch, the fastest is first, and nothing better was passed over."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.planning.setups import LLAMA_8B, LLAMA_70B

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import gpu, shape_from_config
from tuneyard.planning import Plan, best, plans, resolve
from tuneyard.planning.change import Question
from tuneyard.planning.refusal import changes
from tuneyard.planning.search import USABLE, Search
from tuneyard.planning.site import search_of


def train(method: str = "full", *, strategy: dict[str, Any] | None = None, **fields: Any) -> TrainTask:
    values: dict[str, Any] = {"model": {"name": "m"}, "data": {"source": "d.jsonl"}, "method": {method: {}}, **fields}
    return TrainTask.model_validate(values | ({"strategy": strategy} if strategy is not None else {}))


def search(task: TrainTask, sku: str, workers: int, **choices: Any) -> Search:
    defaults = {"host_memory_gb": None, "max_seq": None, "flash_available": True, "liger_available": False}
    return search_of(task, LLAMA_8B, gpu(sku), workers, **{**defaults, **choices})


tasks = st.builds(
    train,
    st.sampled_from(["full", "lora", "qlora"]),
    batch=st.fixed_dictionaries({"global": st.sampled_from([8, 24, 32, 128])}),
    data=st.fixed_dictionaries({"source": st.just("d"), "maxLength": st.sampled_from([512, 2048, 16384])}),
)
skus = st.sampled_from(["a100-40gb", "h100-80gb", "h200-141gb", "l40s-48gb"])
degrees = st.sampled_from([(1,), (1, 2), (1, 2, 4, 8)])


def found(task: TrainTask, sku: str, workers: int, **choices: Any) -> list[Plan]:
    try:
        return plans(task, LLAMA_8B, gpu(sku), workers, **choices)
    except BadInput:
        return []


@settings(deadline=None, max_examples=60)
@given(tasks, skus, st.sampled_from([1, 2, 4, 8, 16, 24]), degrees, degrees)
def test_plans_fit_divide_the_batch_and_are_sorted(
    task: TrainTask, sku: str, workers: int, tensor: tuple[int, ...], pipeline: tuple[int, ...]
) -> None:
    ranked = found(task, sku, workers, tensor_parallel=tensor, pipeline_parallel=pipeline)
    for plan in ranked:
        assert plan.fits
        assert plan.memory.total_gb <= USABLE * gpu(sku).memory_gb
        assert plan.global_batch == task.batch.global_
        assert plan.data_parallel * plan.tensor_parallel * plan.pipeline_parallel == workers
        assert plan.tensor_parallel in tensor
        assert plan.pipeline_parallel in pipeline
        assert Plan.from_dict(plan.to_dict()) == plan
    speeds = [plan.speed.tokens_per_s for plan in ranked if plan.speed]
    assert len(speeds) == len(ranked)
    assert speeds == sorted(speeds, reverse=True)


@settings(deadline=None, max_examples=25)
@given(tasks, skus, st.sampled_from([1, 2, 8]))
def test_pruning_passes_over_no_faster_plan(task: TrainTask, sku: str, workers: int) -> None:
    """Against every stage, recomputation and micro-batch, one by one."""
    searched = search(task, sku, workers, tensor_parallel=(1, 2), pipeline_parallel=(1, 2))
    ranked = searched.plans()
    fastest = ranked[0].speed.tokens_per_s if ranked and ranked[0].speed else 0.0
    for grid, recompute in product(searched.layouts(), (False, True)):
        for micro in searched.micro_batches(grid):
            layout = searched.with_batch(replace(grid, recompute=recompute), micro)
            if searched.fits(layout):
                speed = searched.plan(layout).speed
                assert speed is not None
                assert speed.tokens_per_s <= fastest * (1 + 1e-9)


@settings(deadline=None, max_examples=25)
@given(tasks, skus, st.sampled_from([1, 2, 8]))
def test_the_change_that_a_refusal_names_does_fit(task: TrainTask, sku: str, workers: int) -> None:
    searched = search(task, sku, workers)
    if searched.plans():
        return
    with pytest.raises(BadInput) as refused:
        resolve(task, LLAMA_8B, gpu(sku), workers, flash_available=True)
    question = Question(task=task, shape=LLAMA_8B, gpu=gpu(sku), workers=workers, site={"flash_available": True})
    proposed = [change for change in changes(question) if change.words == refused.value.next_step]
    assert proposed or refused.value.next_step.startswith("use a GPU with more memory")
    assert all(change.asked.search().plans() for change in proposed)


def test_pipelines_are_never_chosen_and_a_degree_that_is_named_is_kept() -> None:
    assert all(plan.pipeline_parallel == 1 for plan in found(train(), "h100-80gb", 8))
    for degree in (1, 2):
        asked = found(train(strategy={"tensorParallel": degree}), "h100-80gb", 8)
        assert {(plan.tensor_parallel, plan.data_parallel, plan.global_batch) for plan in asked} == {(degree, 8 // degree, 32)}


def test_matrices_are_cut_inside_a_machine_where_the_network_is_too_slow_for_sharded_weights() -> None:
    task = train("lora", batch={"global": 64}, data={"source": "d", "maxLength": 4096})
    choices: dict[str, Any] = {"network_gb_s": 3.0, "flash_available": True}

    eight = resolve(task, LLAMA_70B, gpu("h100-80gb"), 32, gpus_per_node=8, **choices)
    two = resolve(task, LLAMA_70B, gpu("h200-141gb"), 32, gpus_per_node=2, **choices)

    assert (eight.tensor_parallel, eight.zero, eight.sequence_parallel) == (4, 0, False)
    assert two.tensor_parallel in (1, 2)
    assert resolve(task, LLAMA_8B, gpu("h100-80gb"), 8, flash_available=True).tensor_parallel == 1


def test_groups_that_leave_a_machine_and_degrees_that_cut_nothing_are_refused() -> None:
    with pytest.raises(BadInput, match="machines of 4 h100-80gb hold no whole number") as refused:
        resolve(train(strategy={"tensorParallel": 8}), LLAMA_8B, gpu("h100-80gb"), 8, gpus_per_node=4)
    assert refused.value.next_step == "set strategy.tensorParallel to 1 or 2 or 4"
    with pytest.raises(BadInput, match="would both cut the weights"):
        resolve(train(strategy={"tensorParallel": 2, "zero": 3}), LLAMA_8B, gpu("h100-80gb"), 8)
    sizes = {"n_layer": 2, "n_embd": 63, "n_head": 3, "n_inner": 127, "vocab_size": 387, "n_positions": 1024}
    odd = shape_from_config({"model_type": "gpt2", **sizes})
    with pytest.raises(BadInput, match="can share no matrix"):
        resolve(train(strategy={"tensorParallel": 2}), odd, gpu("h100-80gb"), 8)


def test_fewer_key_heads_than_ranks_are_no_obstacle() -> None:
    asked = resolve(train(strategy={"tensorParallel": 16}), LLAMA_8B, gpu("h100-80gb"), 16, gpus_per_node=16)
    assert LLAMA_8B.kv_heads < asked.tensor_parallel == 16


def test_a_refusal_names_tensor_parallelism_where_that_alone_makes_it_fit() -> None:
    task = train(strategy={"tensorParallel": 1, "zero": 1})
    proposed = {change.words: change for change in changes(Question(task=task, shape=LLAMA_8B, gpu=gpu("a100-40gb"), workers=8))}
    assert proposed["set strategy.tensorParallel to 8 and strategy.zero to auto"].asked.fits()


def test_of_plans_that_are_as_fast_the_simplest_is_taken() -> None:
    ranked = found(train(batch={"global": 64}), "h200-141gb", 8)
    chosen = best(ranked)
    assert chosen.speed is not None
    assert ranked[0].speed is not None
    assert chosen.speed.tokens_per_s >= 0.98 * ranked[0].speed.tokens_per_s
    simpler = [plan for plan in ranked if plan.zero < chosen.zero and plan.recompute <= chosen.recompute and plan.speed]
    assert all(plan.speed and plan.speed.tokens_per_s < 0.98 * ranked[0].speed.tokens_per_s for plan in simpler)


def test_a_slow_network_keeps_a_large_model_in_its_machine() -> None:
    task = train(batch={"global": 64}, data={"source": "d", "maxLength": 4096})
    choices: dict[str, Any] = {"tensor_parallel": (1, 8), "pipeline_parallel": (1, 4), "flash_available": True}
    slow = plans(task, LLAMA_70B, gpu("h100-80gb"), 32, network_gb_s=3.0, **choices)[0]
    fast = plans(task, LLAMA_70B, gpu("h100-80gb"), 32, network_gb_s=400.0, **choices)[0]
    assert slow.pipeline_parallel > 1  # gathering all weights from other machines would take longer than a bubble
    assert slow.speed is not None
    assert fast.speed is not None
    assert fast.speed.tokens_per_s > slow.speed.tokens_per_s


def test_a_batch_that_divides_into_no_layout_is_refused() -> None:
    with pytest.raises(BadInput, match="global batch 10 does not divide into 4 workers"):
        plans(train(batch={"global": 10}), LLAMA_8B, gpu("h100-80gb"), 4)
    with pytest.raises(BadInput, match="cannot hold a llama model of 32 heads, 8 key heads and 32 layers"):
        plans(train(), LLAMA_8B, gpu("h100-80gb"), 4, tensor_parallel=(3,))


def test_nothing_that_fits_is_an_empty_list() -> None:
    assert plans(train(), LLAMA_70B, gpu("a10g-24gb"), 4) == []


def test_compiled_layers_are_planned_where_they_can_be_compiled() -> None:
    wished = {"model": {"name": "m"}, "data": {"source": "d"}, "batch": {"global": 32}, "method": {"lora": {}}}
    task = TrainTask.model_validate({**wished, "strategy": {"compile": "layers"}})

    found = plans(task, LLAMA_8B, gpu("h100-80gb"), 4)
    plain = plans(TrainTask.model_validate(wished), LLAMA_8B, gpu("h100-80gb"), 4)

    assert all(each.compiled and each.zero < 3 and each.tensor_parallel == 1 for each in found)
    assert not any(each.compiled for each in plain)
    assert found[0].speed
    assert plain[0].speed
    assert found[0].speed.compile_s > plain[0].speed.compile_s == 0
    assert found[0].speed.step_s < plain[0].speed.step_s


@pytest.mark.parametrize("workers", [1, 4])
def test_no_plan_compiles_layers_under_zero_3(workers: int) -> None:
    """Where another setting leaves nothing but ZeRO 3, there is no plan."""
    wished = {"model": {"name": "m"}, "data": {"source": "d"}, "batch": {"global": 32}}
    task = TrainTask.model_validate({**wished, "strategy": {"compile": "layers", "offload": {"optimizer": "cpu"}}})

    found = plans(task, LLAMA_8B, gpu("h100-80gb"), workers)

    assert {each.zero for each in found} <= {2}
    only_3 = TrainTask.model_validate({**wished, "strategy": {"compile": "layers", "offload": {"parameters": "cpu", "optimizer": "cpu"}}})
    with pytest.raises(BadInput, match="there is no layout of this strategy"):
        resolve(only_3, LLAMA_8B, gpu("h100-80gb"), workers)
