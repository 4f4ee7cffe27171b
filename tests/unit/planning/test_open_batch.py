"""`batch.global: auto`: the plan decides the rows of a step, and a later attempt keeps them on any placement."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.planning.test_sweep import LLAMA_1B, LLAMA_70B, task

from tuneyard.api import BadInput
from tuneyard.catalog import gpu
from tuneyard.planning import check_layout, fits, plan_with_rows, plans, resolve
from tuneyard.planning.open_batch import largest

A100 = gpu("a100-80gb")


@settings(max_examples=30)
@given(
    method=st.sampled_from([{"full": {}}, {"lora": {}}]),
    objective=st.sampled_from(["sft", "dpo"]),
    workers=st.sampled_from([1, 2, 8]),
    strategy=st.sampled_from([{}, {"zero": 3}, {"tensorParallel": 2}, {"recompute": False}]),
)
def test_a_step_has_the_largest_micro_batch_without_accumulation_and_a_resume_there_has_the_same_plan(
    method: dict[str, object], objective: str, workers: int, strategy: dict[str, object]
) -> None:
    asked = task(method=method, objective=objective, strategy=strategy, batch={"global": "auto"})
    if workers % asked.ranks_per_replica:
        return
    plan = resolve(asked, LLAMA_1B, A100, workers)
    of_sweep = largest(asked, LLAMA_1B, A100, workers)
    assert of_sweep is not None
    assert (plan.micro_batch, plan.grad_accum) == (of_sweep.micro_batch, 1)
    assert plan.global_batch == plan.micro_batch * workers // asked.ranks_per_replica
    assert plan_with_rows(asked, plan.global_batch, LLAMA_1B, A100, workers) == plan


@settings(max_examples=30)
@given(rows=st.integers(1, 600), workers=st.sampled_from([1, 2, 3, 4, 8]), sku=st.sampled_from(["a100-80gb", "a100-40gb"]))
def test_a_later_attempt_keeps_the_rows_of_a_step_or_says_why_it_cannot(rows: int, workers: int, sku: str) -> None:
    asked = task(batch={"global": "auto"})
    if rows % workers:
        words = rf"the run began with {rows} rows per step \(batch.global: auto\), and {workers} copies of the model do not divide them"
        with pytest.raises(BadInput, match=words) as refused:
            plan_with_rows(asked, rows, LLAMA_1B, gpu(sku), workers)
        copies = int(refused.value.next_step.split("make ")[1].split()[0])
        assert plan_with_rows(asked, rows, LLAMA_1B, gpu(sku), copies).global_batch == rows
    else:
        assert plan_with_rows(asked, rows, LLAMA_1B, gpu(sku), workers).global_batch == rows


def test_a_micro_batch_of_the_file_is_taken_at_first_and_an_upper_bound_later() -> None:
    asked = task(batch={"global": "auto", "micro": 4})
    first = resolve(asked, LLAMA_1B, A100, 2)
    assert (first.global_batch, first.micro_batch, first.grad_accum) == (8, 4, 1)
    shapes = {workers: plan_with_rows(asked, 8, LLAMA_1B, A100, workers) for workers in (1, 4, 8)}
    assert {workers: (plan.micro_batch, plan.grad_accum) for workers, plan in shapes.items()} == {1: (4, 2), 4: (2, 1), 8: (1, 1)}


def test_where_not_one_row_fits_the_change_that_fits_is_named() -> None:
    asked = task(batch={"global": "auto"})
    assert not fits(asked, LLAMA_70B, A100, 1)
    assert plans(asked, LLAMA_70B, A100, 1) == []
    with pytest.raises(BadInput, match="does not fit on 1 x a100-80gb") as refused:
        resolve(asked, LLAMA_70B, A100, 1)
    assert "train an adapter" in refused.value.next_step
    check_layout(asked, LLAMA_70B, A100, 1)  # regardless of memory, there is a layout
