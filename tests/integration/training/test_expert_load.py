"""The load of experts is what the routers chose, without padding. Ranks, stages and recomputation: test_router_loss.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.builders.models import tiny_config, train_request, train_task, write_model, write_text
from transformers import AutoConfig, AutoModelForCausalLM

from tuneyard.training import TrainResult, train
from tuneyard.training.expert_load import ExpertLoad, busiest, relative_load

SIZE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16}
GROUPS = {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
OTHERS = {
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
    "deepseek_v3": {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, **GROUPS, **LATENT},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
LAYERS_WITH_EXPERTS = {"deepseek_v3": 2}


@pytest.mark.parametrize("kind", OTHERS)
def test_every_choice_counts_once_and_padding_does_not(kind: str) -> None:
    config = AutoConfig.for_model(kind, vocab_size=64, **SIZE, **OTHERS[kind])
    model = AutoModelForCausalLM.from_config(config)
    load = ExpertLoad.of(model)
    assert load is not None
    ids, mask = torch.randint(0, 64, (2, 6)), torch.tensor([[1] * 6, [1] * 4 + [0] * 2])

    model(input_ids=ids, attention_mask=mask)
    assert load.take() is None, "nothing counts before it is asked for"
    load.begin(mask)
    model(input_ids=ids, attention_mask=mask)
    load.end()
    model(input_ids=ids, attention_mask=mask)

    counts = load.take()
    assert counts is not None
    assert counts.shape[0] == LAYERS_WITH_EXPERTS.get(kind, 3)
    assert counts.sum(dim=1).tolist() == [10 * config.num_experts_per_tok] * counts.shape[0]
    assert load.take() is None


def test_a_dense_model_has_none() -> None:
    assert ExpertLoad.of(AutoModelForCausalLM.from_config(tiny_config())) is None


def test_relative_load() -> None:
    assert relative_load(np.array([[3.0, 1.0], [2.0, 2.0], [0.0, 0.0]])).tolist() == [[1.5, 0.5], [1.0, 1.0], [0.0, 0.0]]
    assert busiest(np.array([[1.5, 0.5], [1.0, 1.0]])) == 1.25


def test_an_adapter_and_a_resumed_run_have_it_too(tmp_path: Path) -> None:
    model, text = write_model(tmp_path / "model", "qwen3_moe"), write_text(tmp_path / "text.jsonl")

    def run(steps: int, **changes: Any) -> TrainResult:
        task = train_task(model, text, method={"lora": {"rank": 4}}, steps=steps, checkpoint={"everySteps": 2})
        return train(train_request(tmp_path, task, **changes))

    first = run(2).details["experts"]["busiest"]
    resumed = run(4, resume=True)

    assert resumed.resumed_from == 2
    assert resumed.details["experts"]["busiest"][:2] == first
    assert len(resumed.details["experts"]["busiest"]) == resumed.steps == 4
