"""A plan applied to a model on one rank: what each rank holds, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.builders.models import cpu_plan
from tests.ranks.applied_models import Case, with_lora

from tuneyard.api import BadInput
from tuneyard.parallel import Shards, explain_tensor_parallel, keep_logits_sharded, shard_model, tensor_parallel_plan
from tuneyard.parallel.collectives import TensorGroup
from tuneyard.training.tensor_parallel import keep_logits
from tuneyard.training.tensor_plan import tensor_plan


def sharded(model: Any, plan: Any = None, *, rank: int = 0, degree: int = 2) -> Shards:
    plan = explain_tensor_parallel(model, degree) if plan is None else plan
    return shard_model(model, plan, TensorGroup(None, rank, degree))


def test_parameters_are_plain_tensors_with_this_ranks_share() -> None:
    model = Case("llama").model()
    whole = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    shards = sharded(model, rank=1)

    assert all(type(weight) is torch.nn.Parameter for weight in model.parameters())
    assert torch.equal(model.model.layers[0].mlp.gate_proj.weight, whole["model.layers.0.mlp.gate_proj.weight"][64:])
    assert shards.boxes("model.layers.0.mlp.down_proj.weight") == (((0, 64), (64, 64)),)
    assert shards.replicated("model.norm.weight")
    assert all(torch.equal(weight, shards.cut(name, whole[name])) for name, weight in model.named_parameters())


def test_a_model_on_the_meta_device_is_cut_without_memory() -> None:
    model = Case("llama").model(meta=True)

    sharded(model, degree=4)

    assert model.lm_head.weight.is_meta
    assert model.lm_head.weight.shape == (384 // 4, 64)


def test_a_tied_head_stays_one_tensor_with_its_table() -> None:
    model = Case("gemma").model()

    shards = sharded(model)

    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert shards.boxes("lm_head.weight") == shards.boxes("model.embed_tokens.weight") == (((0, 192), (0, 64)),)


def test_the_padding_row_is_that_of_the_rank_that_holds_it() -> None:
    models = [Case("llama", {"pad_token_id": 200}).model() for _ in range(2)]

    for rank, model in enumerate(models):
        sharded(model, rank=rank)

    assert [model.model.embed_tokens.padding_idx for model in models] == [None, 200 - 192]


def test_lora_is_cut_with_the_weight_it_adapts() -> None:
    plan = explain_tensor_parallel(Case("phi3").model(meta=True), 2)
    model = with_lora(Case("phi3").model(), 4)

    shards = sharded(model, plan)

    layer = "base_model.model.model.layers.0.mlp"
    assert shards.replicated(f"{layer}.gate_up_proj.lora_A.default.weight")
    assert len(shards.boxes(f"{layer}.gate_up_proj.lora_B.default.weight")) == 2
    assert shards[f"{layer}.down_proj.lora_A.default.weight"].dimension == 1
    assert shards.replicated(f"{layer}.down_proj.lora_B.default.weight")


def test_a_sharded_model_is_refused() -> None:
    model = Case("llama").model()
    sharded(model)

    with pytest.raises(BadInput, match="sharded already"):
        sharded(model, tensor_parallel_plan(Case("llama").model(meta=True), 2))


def test_a_plan_of_other_names_is_refused() -> None:
    with pytest.raises(BadInput, match="plan is that of another model: LlamaForCausalLM has no"):
        sharded(Case("llama").model(meta=True), tensor_parallel_plan(Case("gptj").model(meta=True), 2))


def test_a_plan_of_other_sizes_is_refused() -> None:
    plan = explain_tensor_parallel(Case("llama", {"intermediate_size": 256}).model(meta=True), 2)

    with pytest.raises(BadInput, match="plan is that of another model"):
        sharded(Case("llama").model(meta=True), plan)


def test_a_plan_of_another_degree_is_refused() -> None:
    plan = explain_tensor_parallel(Case("llama").model(meta=True), 2)

    with pytest.raises(BadInput, match="plan is for 2 ranks, and the group has 4"):
        sharded(Case("llama").model(meta=True), plan, degree=4)


def test_a_dimension_that_the_ranks_do_not_divide_is_refused() -> None:
    styles = tensor_parallel_plan(Case("llama").model(meta=True), 2)

    with pytest.raises(BadInput, match="3 ranks do not divide the 64 indices of dimension 0 of model"):
        sharded(Case("llama").model(meta=True), styles, degree=3)


def test_a_tied_weight_that_is_cut_at_one_of_its_users_alone_is_refused() -> None:
    with pytest.raises(BadInput, match="are one tensor"):
        sharded(Case("gemma").model(meta=True), {"lm_head": "colwise_gather_output"})


def test_a_style_without_a_forward_is_refused() -> None:
    with pytest.raises(BadInput, match="no forward is known for the style sequence_parallel"):
        sharded(Case("llama").model(meta=True), {"model.norm": "sequence_parallel"})


def test_dora_on_a_weight_that_is_cut_is_refused() -> None:
    plan = explain_tensor_parallel(Case("llama").model(meta=True), 2)

    with pytest.raises(BadInput, match="DoRA norms whole weights"):
        sharded(with_lora(Case("llama").model(), 4, use_dora=True), plan)


def test_logits_that_are_returned_as_they_are_may_stay_in_shards() -> None:
    assert explain_tensor_parallel(Case("gemma2").model(meta=True), 2).ends == {"lm_head"}


def test_logits_to_which_the_model_adds_a_vector_of_the_whole_vocabulary_may_not() -> None:
    model = Case("bart").model(meta=True)
    plan = explain_tensor_parallel(model, 2)

    with pytest.raises(BadInput, match="cannot stay in shards"):
        keep_logits_sharded(model, plan, sharded(model, plan))


def test_a_model_with_a_loss_of_its_own_gathers_its_logits() -> None:
    model = Case("t5", {"tie_word_embeddings": False}).model(meta=True)
    plan = explain_tensor_parallel(model, 2)

    with pytest.raises(BadInput, match="cannot stay in shards: its loss is not that"):
        keep_logits_sharded(model, plan, sharded(model, plan))


def test_training_leaves_logits_in_shards_under_adapters_and_gathers_them_where_the_head_has_one() -> None:
    kept = {}
    for targets in ("q_proj", "lm_head"):
        model = Case("llama").model(meta=True)
        plan = explain_tensor_parallel(model, 2)
        adapted = with_lora(model, 4, target_modules=[targets])
        kept[targets] = keep_logits(adapted, plan, sharded(adapted, plan))
    assert kept == {"q_proj": True, "lm_head": False}


def test_training_slices_tokens_where_its_plan_says_so() -> None:
    model = Case("llama").model(meta=True)
    plans = {sliced: tensor_plan(model, cpu_plan(workers=2, tensor_parallel=2, sequence_parallel=sliced)) for sliced in (False, True)}

    assert plans[False] is not None
    assert plans[False].sequence is None
    assert plans[True] is not None
    assert plans[True].sequence is not None
