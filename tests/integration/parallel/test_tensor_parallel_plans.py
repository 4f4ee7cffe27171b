"""Models under Tuneyard's plan in real ranks, through transformers' engine, give the logits and gradients of one process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.ranks.sharded_models import differences_of

MODELS = (
    *("llama", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gpt2", "gpt_neox", "phi3", "gemma", "falcon", "opt", "bloom", "t5"),
    *("deepseek_v3", "bert", "mamba", "bart", "gptj"),
)


FEW = ("llama", "mixtral", "gpt2", "falcon", "t5", "deepseek_v3", "mamba")
"""One of each kind of plan: four ranks on two processors wait for each other many times longer than two."""


@pytest.mark.parametrize(
    ("degree", "models"),
    [(2, MODELS), (4, FEW), pytest.param(4, [name for name in MODELS if name not in FEW], marks=pytest.mark.long)],
    ids=["two ranks", "four ranks", "four ranks, the others"],
)
def test_logits_and_gradients_are_those_of_one_process(degree: int, models: Sequence[str]) -> None:
    found = differences_of([(name, None, None) for name in models], degree)

    assert {row.model_type: row.error for row in found if row.error} == {}
    assert {row.model_type: (row.logits, row.worst, row.gradient) for row in found if row.logits > 1e-5 or row.gradient > 1e-4} == {}


def test_a_plan_of_wrong_blocks_is_seen() -> None:
    """The comparison itself: plain columns of a fused gate and up projection run, and give other numbers."""
    wrong = {"model.layers.*.mlp.gate_up_proj": "colwise", "model.layers.*.mlp.down_proj": "rowwise"}

    (found,) = differences_of([("phi3", None, wrong)], 2)

    assert not found.error
    assert found.logits > 1e-3
