"""A tensor-parallel plan is made from the evaluation pass: a model that trains otherwise is refused, dropout and dropped layers aside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, PretrainedConfig, PreTrainedModel

from tuneyard.api import BadInput
from tuneyard.training.training_pass import refuse_other_training_pass

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
FAMILIES: dict[str, dict[str, Any]] = {
    **{kind: {} for kind in ("llama", "gpt_neox", "mixtral", "phi3", "deepseek_v3", "qwen2_moe", "bloom")},
    "gpt2": {"attn_pdrop": 0.1},
    "opt": {"layerdrop": 0.1, "attention_dropout": 0.1},
}


class Branching(PreTrainedModel):
    """Centres what it has inside in one of its modes."""

    config_class = PretrainedConfig

    def __init__(self, centres: str) -> None:
        super().__init__(PretrainedConfig())
        self.table, self.up, self.down = nn.Embedding(16, 8), nn.Linear(8, 32), nn.Linear(32, 16)
        self.dropout = nn.Dropout(0.1)
        self.centres = centres

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        inside = self.dropout(self.up(self.table(input_ids)))
        asked = {"training": self.training, "gradients": torch.is_grad_enabled(), "never": False}
        if asked[self.centres]:
            inside = inside - inside.mean(-1, keepdim=True)
        result: torch.Tensor = self.down(inside)
        return result


@pytest.mark.parametrize("asks", ["training", "gradients"])
def test_a_model_that_branches_on_its_mode_is_refused(asks: str) -> None:
    with pytest.raises(BadInput, match=r"computes something else in training .*aten.mean.dim.* than in the evaluation") as refused:
        refuse_other_training_pass(Branching(asks))

    assert "strategy.tensorParallel to 1" in refused.value.next_step


def test_dropout_is_no_difference_and_the_mode_stays() -> None:
    model = Branching("never").train()
    refuse_other_training_pass(model)

    assert model.training


@pytest.mark.parametrize("kind", FAMILIES)
def test_families_of_transformers_train_as_they_evaluate(kind: str) -> None:
    with torch.device("meta"):
        refuse_other_training_pass(AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SMALL, **FAMILIES[kind])))


def test_an_encoder_and_decoder_train_as_they_evaluate() -> None:
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model("t5", d_model=64, d_ff=128, num_layers=2, dropout_rate=0.1))
    refuse_other_training_pass(model)
