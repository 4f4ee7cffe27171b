"""Models under Tuneyard's plan in real ranks, through transformers' engine, give the logits and gradients of one process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.integration.parallel.test_tensor_parallel_engine import CASES
from tests.ranks.sharded_models import differences_of
from tests.zoo.proofs import proven_once
from tests.zoo.traits import TENSOR_PARALLEL

MODELS = ("llama", "mixtral", "gpt2", "falcon", "bert", "mamba")
"""Tuneyard's own engine runs the plans of the other classes of a trait: test_tensor_parallel_engine.py."""
OTHERS = ("qwen2", "qwen3", "qwen3_moe", "gpt_neox", "phi3", "gemma", "opt", "bloom", "t5", "deepseek_v3", "bart", "gptj")


def assert_equal(models: Sequence[str], degree: int) -> None:
    found = differences_of([(name, None, None) for name in models], degree)

    assert {row.model_type: row.error for row in found if row.error} == {}
    assert {row.model_type: (row.logits, row.worst, row.gradient) for row in found if row.logits > 1e-5 or row.gradient > 1e-4} == {}


@proven_once
def test_logits_and_gradients_are_those_of_one_process() -> None:
    assert_equal(MODELS, 2)


@pytest.mark.long
@pytest.mark.parametrize(("models", "degree"), [(OTHERS, 2), (MODELS + OTHERS, 4)], ids=["two ranks, the others", "four ranks"])
def test_logits_and_gradients_of_all_models_are_those_of_one_process(models: Sequence[str], degree: int) -> None:
    """The short tests have one class for each trait on two ranks, here and in test_tensor_parallel_engine.py, and Llama on four there."""
    assert_equal(models, degree)


def test_every_trait_has_a_class_in_a_short_test() -> None:
    assert {*MODELS, *(case.model_type for case in CASES)} == set(TENSOR_PARALLEL.values())


def test_a_plan_of_wrong_blocks_is_seen() -> None:
    """The comparison itself: plain columns of a fused gate and up projection run, and give other numbers."""
    wrong = {"model.layers.*.mlp.gate_up_proj": "colwise", "model.layers.*.mlp.down_proj": "rowwise"}

    (found,) = differences_of([("phi3", None, wrong)], 2)

    assert not found.error
    assert found.logits > 1e-3
