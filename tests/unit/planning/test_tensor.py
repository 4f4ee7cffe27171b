"""What tensor parallelism leaves on a rank, read off a shape, against the plan that is proven on the model itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.planning.setups import LLAMA_8B
from tests.zoo.traits import TENSOR_PARALLEL

from tuneyard.api import Method, TrainTask
from tuneyard.catalog import gpu, shape_from_config
from tuneyard.catalog.families import _FAMILIES
from tuneyard.planning import Layout, Setup, plans
from tuneyard.planning.tensor import heads_divide, messages, rank_adapter_parameters, rank_parameters

WHOLE = {"replicated", "replicated_with_grad_allreduce", "mla_kv_a_proj"}
NOT_HERE = {"gemma3": "has a vision tower", "deepseek_v2": "its config class has no defaults that make a model"}


def two_layers(model_type: str) -> Any:
    """The family's usual widths, in two layers, with a vocabulary that divides."""
    from transformers import AutoConfig

    fields = {"n_layer": 2} if model_type == "gpt2" else {"num_hidden_layers": 2}
    return AutoConfig.for_model(model_type, **fields)


def standing_for_their_trait() -> list[Any]:
    """The families; those that stand for no trait of tensor parallelism are long."""
    families = [each for each in _FAMILIES if each not in NOT_HERE]
    return [pytest.param(each, marks=[] if each in TENSOR_PARALLEL.values() else pytest.mark.long) for each in families]


@pytest.mark.parametrize("model_type", standing_for_their_trait())
def test_a_rank_holds_what_the_plan_of_the_model_leaves_it(model_type: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from tuneyard.api import BadInput
    from tuneyard.parallel import explain_tensor_parallel

    config = two_layers(model_type)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = shape_from_config(json.loads(config.to_json_string(use_diff=False)))
    for degree in (2, 8):
        try:
            placements = explain_tensor_parallel(model, degree).placements
        except BadInput:  # nothing can be cut
            assert rank_parameters(shape, degree) == shape.parameters
            continue
        on_a_rank = sum(each.parameters / (1 if each.style in WHOLE else degree) for each in placements)
        assert rank_parameters(shape, degree) == pytest.approx(on_a_rank, rel=2e-3)


@pytest.mark.parametrize("heads", [32, 71, 1])
@pytest.mark.parametrize("model_type", [*_FAMILIES, "nobody-knows"])
def test_a_model_of_any_kind_is_planned_where_nothing_is_cut(model_type: str, heads: int) -> None:
    """Whether heads divide, and whether a family pairs them, says nothing about ranks that hold the whole model."""
    shape = replace(LLAMA_8B, model_type=model_type, heads=heads, kv_heads=heads, exact=model_type in _FAMILIES)
    task = TrainTask.model_validate({"model": {"name": "m"}, "data": {"source": "d"}, "batch": {"global": 8}, "method": {"lora": {}}})

    assert heads_divide(shape, 1)
    for workers in (1, 8):
        assert plans(task, shape, gpu("h100-80gb"), workers)


def test_a_vocabulary_that_does_not_divide_is_cut_into_unequal_shares_where_something_else_divides() -> None:
    odd = shape_from_config({**LLAMA_CONFIG, "vocab_size": 32001, "tie_word_embeddings": True})
    whole = shape_from_config({**LLAMA_CONFIG, "vocab_size": 32001, "tie_word_embeddings": True, "intermediate_size": 14337})

    assert rank_parameters(odd, 2) == pytest.approx(odd.parameters / 2, rel=1e-3)
    assert rank_parameters(whole, 5) == whole.parameters


def test_layers_of_llama_add_up_twice_forward_and_once_per_matrix_that_reads_the_stream_backward() -> None:
    forward, backward = messages(LLAMA_8B, 2)

    assert forward.summed == (2 * LLAMA_8B.layers + 1) * LLAMA_8B.hidden + 3
    assert backward.summed == (5 * LLAMA_8B.layers + 1) * LLAMA_8B.hidden
    assert (forward.gathered, backward.gathered) == (0, 0)  # logits stay in shards


def test_one_factor_of_each_adapter_is_cut() -> None:
    layout = Layout(workers=2, zero=0, precision="bf16", attention="sdpa", micro_batch=1, seq_len=64, tensor_parallel=2)
    method = Method.model_validate({"lora": {"rank": 8, "targets": ["q_proj", "o_proj"]}})
    setup = Setup(shape=LLAMA_8B, gpu=gpu("h100-80gb"), layout=layout, method=method)
    hidden = LLAMA_8B.hidden

    assert rank_adapter_parameters(setup) == LLAMA_8B.layers * 8 * 2 * (hidden + hidden / 2)


LLAMA_CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
}
