"""A plan is proven once, from the configuration, and used for the loaded model if that is the model that was proven."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders.models import cpu_plan
from tests.ranks.tensor_training import write_any_model
from transformers import AutoConfig, AutoModelForCausalLM

from tuneyard.api import BadInput
from tuneyard.parallel import Mesh
from tuneyard.training.distributed import World
from tuneyard.training.tensor_plan import ProvenPlan, fingerprint, prove_on_first, tensor_plan

ALONE = World(0, 1, 0, 1, torch.device("cpu"), Mesh(data=1))
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 16}
HALVES = cpu_plan(workers=2, tensor_parallel=2)
SLICED = cpu_plan(workers=2, tensor_parallel=2, sequence_parallel=True)


def proven(folder: Path, plan: Any = HALVES, dtype: torch.dtype = torch.float32) -> ProvenPlan:
    return prove_on_first(AutoConfig.from_pretrained(folder), plan, ALONE, dtype=dtype, trust_remote_code=False)


@pytest.mark.parametrize(
    ("kind", "changes", "plan", "dtype"),
    [
        ("llama", {}, SLICED, torch.float32),
        ("gemma", {"head_dim": 16}, HALVES, torch.bfloat16),
        ("qwen3_moe", EXPERTS, HALVES, torch.float32),
        ("gpt2", {"n_layer": 2, "n_embd": 64, "n_head": 4}, HALVES, torch.float32),
    ],
)
def test_a_loaded_model_has_the_plan_of_its_configuration(
    kind: str, changes: dict[str, Any], plan: Any, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = write_any_model(tmp_path, kind, **changes)
    before = proven(folder, plan, dtype)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    model.config.use_cache = False

    assert tensor_plan(model, plan, before) is before.plan
    assert tensor_plan(model, plan) == before.plan


def fewer_heads(model: Any) -> None:
    model.config.num_attention_heads = 2


def other_forward(model: Any) -> None:
    model.lm_head.forward = lambda x: x @ model.lm_head.weight.T


def hook(model: Any) -> None:
    model.lm_head.register_forward_hook(lambda *_: None)


def tied(model: Any) -> None:
    model.lm_head.weight = model.model.embed_tokens.weight


def other_activation(model: Any) -> None:
    model.model.layers[1].mlp.act_fn = torch.nn.GELU()


def fewer_layers(model: Any) -> None:
    del model.model.layers[1]


def other_type(model: Any) -> None:
    model.bfloat16()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[ProvenPlan, Any]:
    folder = write_any_model(tmp_path_factory.mktemp("llama"), "llama")
    return proven(folder), AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize("change", [fewer_heads, other_forward, hook, tied, other_activation, fewer_layers, other_type])
def test_a_change_of_the_model_changes_its_fingerprint(change: Callable[[Any], None], llama: tuple[ProvenPlan, Any]) -> None:
    before, model = llama[0], copy.deepcopy(llama[1])
    assert fingerprint(model) == before.fingerprint
    change(model)

    assert fingerprint(model) != before.fingerprint


def test_a_model_with_more_rows_gets_a_proof_of_its_own(llama: tuple[ProvenPlan, Any]) -> None:
    before, model = llama[0], copy.deepcopy(llama[1])
    model.resize_token_embeddings(401)

    own = tensor_plan(model, HALVES, before)

    assert own == tensor_plan(model, HALVES)
    assert own != before.plan


def test_another_layout_gets_a_proof_of_its_own(llama: tuple[ProvenPlan, Any]) -> None:
    before, model = llama

    four = tensor_plan(model, cpu_plan(workers=4, tensor_parallel=4), before)
    assert four is not None
    assert four.degree == 4
    sliced = tensor_plan(model, SLICED, before)
    assert sliced is not None
    assert sliced.sequence is not None


def test_a_model_that_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="shard nothing"):
        proven(write_any_model(tmp_path, "llama"), cpu_plan(workers=7, tensor_parallel=7))
