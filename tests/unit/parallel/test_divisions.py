"""Pairs for which a rank needs its share of a module's numbers, blocks of any size, and linears of any class."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.ranks.sharded_models import tiny_model
from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel import TensorParallelPlan, explain_tensor_parallel, shard_model, tensor_parallel_plan
from tuneyard.parallel.collectives import TensorGroup
from tuneyard.parallel.divisions import ConfigOnRank
from tuneyard.parallel.linears import features_of, outputs_at

X = {"x": torch.zeros((2, 6, 32), device="meta")}


def plan_of(model_type: str, degree: int = 2, **changes: object) -> TensorParallelPlan:
    return explain_tensor_parallel(tiny_model(model_type, changes, meta=True), degree)


def styles_in(plan: TensorParallelPlan, module: str) -> dict[str, str]:
    return {name.removeprefix(f"{module}."): style for name, style in plan.styles.items() if name.startswith(f"{module}.")}


@pytest.mark.parametrize(
    ("model_type", "attention", "number"),
    [("gptj", "transformer.h.*.attn", "num_attention_heads"), ("opt", "model.decoder.layers.*.self_attn", "num_heads")],
)
def test_a_number_of_heads_that_the_module_keeps_is_divided(model_type: str, attention: str, number: str) -> None:
    found = plan_of(model_type)

    assert styles_in(found, attention) == {f"{name}_proj": "rowwise" if name == "out" else "colwise" for name in ("q", "k", "v", "out")}
    assert found.divisions == {attention: frozenset({number})}
    row = next(each for each in found.placements if each.name == f"{attention}.out_proj")
    assert row.why.endswith(f"each rank has 1/2 of {attention}.{number}")


def test_a_model_whose_code_asks_for_no_number_keeps_all() -> None:
    assert plan_of("llama").divisions == {}


def test_biases_by_position_are_cut_by_heads() -> None:
    found = plan_of("t5")

    for attention in ("encoder.block.*.layer.*.SelfAttention", "decoder.block.*.layer.*.SelfAttention"):
        table = {"relative_attention_bias": "embedding_colwise"}
        assert styles_in(found, attention) == {**dict.fromkeys("qkv", "colwise"), "o": "rowwise", **table}


def test_queries_keys_and_values_of_one_weight_are_cut_as_three_blocks() -> None:
    assert styles_in(plan_of("gpt2"), "transformer.h.*.attn") == {"c_attn": "packed_colwise:3", "c_proj": "rowwise"}
    found = plan_of("phi3")
    assert styles_in(found, "model.layers.*.self_attn") == {"qkv_proj": "packed_colwise:64,32,32", "o_proj": "rowwise"}
    assert "config.num_attention_heads" in found.divisions["model.layers.*.self_attn"]


def test_other_engines_get_styles_of_transformers_alone() -> None:
    for model_type in ("opt", "gpt2", "phi3", "t5"):
        found = set(tensor_parallel_plan(tiny_model(model_type, {"vocab_size": 384}, meta=True), 2).values())
        assert found <= {"colwise", "rowwise", "packed_colwise", "colwise_gather_output", "rowwise_split_input", "embedding_rowwise"}
    assert "packed_colwise" not in tensor_parallel_plan(tiny_model("gpt2", meta=True), 2).values()


class Heads(nn.Module):
    """Attention without attention: heads are made and merged again. `literal` heads stand in the code, not in the module."""

    def __init__(self, make: Any, **numbers: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 32, device="meta"), nn.Linear(32, 32, device="meta")
        self._make = make
        vars(self).update(numbers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, _ = x.shape
        found: torch.Tensor = self.down(self._make(self, self.up(x), rows, tokens).reshape(rows, tokens, -1))
        return found


class Model(nn.Module):
    def __init__(self, make: Any, **numbers: int) -> None:
        super().__init__()
        self.block = Heads(make, **numbers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.block(x)
        return found


def divisions_of(make: Any, **numbers: int) -> Any:
    plan = explain_tensor_parallel(Model(make, **numbers), 2, inputs=X)
    return plan.divisions if "rowwise" in plan.styles.values() else None


def test_two_numbers_that_belong_together_are_divided_together() -> None:
    found = divisions_of(lambda m, h, rows, tokens: h.view(rows, tokens, m.heads, m.width // m.heads).tanh(), heads=4, width=32, other=8)

    assert found == {"block": frozenset({"heads", "width"})}


def test_a_number_that_stands_in_the_code_leaves_a_pair_apart() -> None:
    assert divisions_of(lambda _, h, rows, tokens: h.view(rows, tokens, 4, 8).tanh(), heads=4) is None


def test_a_number_that_the_degree_does_not_divide_leaves_a_pair_apart() -> None:
    model = Model(lambda m, h, rows, tokens: h.view(rows, tokens, m.heads, 8).tanh(), heads=4)

    assert "rowwise" not in explain_tensor_parallel(model, 8, inputs=X).styles.values()


@pytest.mark.parametrize(
    "make",
    [
        # Shapes are those of the proof, and other features are read.
        lambda m, h, rows, tokens: h.view(rows, tokens, m.heads, 8)[..., m.heads : m.heads + 4].repeat(1, 1, 1, 2),
        # The number is an amount as well as a size.
        lambda m, h, rows, tokens: h.view(rows, tokens, m.heads, 8) * m.heads,
        lambda m, h, rows, tokens: h.view(rows, tokens, m.heads, 8) / (m.heads * 8) ** 0.5,
        lambda m, h, rows, tokens: h.view(rows, tokens, m.heads, 8) * torch.tensor(float(m.heads)),
        lambda m, h, rows, tokens: h.view(rows, tokens, m.heads, 8).roll(m.heads, 1),
        lambda m, h, rows, tokens: h.view(rows, tokens, m.heads, 8).sum(2, keepdim=True).expand(rows, tokens, 4, 8),
    ],
    ids=["first feature", "factor", "scale", "tensor", "roll", "sum"],
)
def test_a_number_that_results_depend_on_leaves_a_pair_apart(make: Any) -> None:
    assert divisions_of(make, heads=4) is None


def test_the_model_has_its_numbers_back_after_a_plan_and_a_rank_has_its_share() -> None:
    model = tiny_model("phi3")
    before = [dict(vars(module)) for module in model.modules()]

    plan = explain_tensor_parallel(model, 2)

    assert all(vars(module) == was for module, was in zip(model.modules(), before, strict=True))
    shard_model(model, plan, TensorGroup(None, 0, 2))
    attention = model.model.layers[0].self_attn
    assert attention.config.num_attention_heads == 2
    assert attention.num_key_value_heads == 1
    assert model.config.num_attention_heads == 4
    assert copy.deepcopy(attention.config).num_attention_heads == 2
    model.config._attn_implementation = "eager"
    assert attention.config._attn_implementation == "eager"


def test_what_is_set_on_the_view_of_a_configuration_is_set_there() -> None:
    config = tiny_model("llama", meta=True).config
    view = ConfigOnRank(config, {"num_attention_heads": 2})

    view.use_cache = False

    assert config.use_cache is False
    assert (view.num_attention_heads, view.hidden_size, config.num_attention_heads) == (2, 64, 4)
    assert not hasattr(view, "absent")


def test_a_plan_whose_number_another_model_does_not_have_is_refused() -> None:
    plan = plan_of("gptj")
    model = tiny_model("gptj", {"n_layer": 2})
    model.transformer.h[1].attn.num_attention_heads = 3

    with pytest.raises(BadInput, match=r"2 ranks do not divide num_attention_heads of transformer\.h\.1\.attn, which is 3"):
        shard_model(model, plan, TensorGroup(None, 0, 2))


def test_linears_are_known_by_what_they_compute() -> None:
    from transformers.models.falcon.modeling_falcon import FalconLinear
    from transformers.pytorch_utils import Conv1D

    class Squared(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return (input @ self.weight.T) ** 2

    class Twice(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input @ self.weight.T + self.bias + self.bias

    class WithoutBias(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input @ self.weight.T

    assert [outputs_at(each) for each in (nn.Linear(4, 8), FalconLinear(4, 8), FalconLinear(4, 8, bias=False))] == [0, 0, 0]
    assert [outputs_at(each) for each in (Conv1D(8, 4), Conv1D(4, 4))] == [1, 1]
    assert [outputs_at(each) for each in (Squared(4, 8), Twice(4, 8), WithoutBias(4, 8))] == [None] * 3
    assert [outputs_at(each) for each in (nn.Embedding(4, 8), nn.Bilinear(4, 4, 4), nn.LayerNorm(4), nn.Conv1d(4, 4, 1))] == [None] * 4
    assert (features_of(Conv1D(8, 4)), features_of(FalconLinear(4, 8))) == ((4, 8), (4, 8))
