"""Automatic tensor-parallel plans for any engine: what is sharded, by which rule, what is left whole and why. What `shard_model` does
beyond them is in test_divisions.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tests.ranks.sharded_models import tiny_model
from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel import explain_tensor_parallel, tensor_parallel_plan


def plan_of(model_type: str, degree: int = 2, **changes: object) -> dict[str, str]:
    return tensor_parallel_plan(tiny_model(model_type, changes, meta=True), degree)


def why(model_type: str, name: str, degree: int = 2, **changes: object) -> str:
    rows = explain_tensor_parallel(tiny_model(model_type, changes, meta=True), degree, styles_alone=True).placements
    return next(row.why for row in rows if row.name == name)


class FeedForward(nn.Module):
    """Layers of the given widths with an activation between."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(one, other, device="meta") for one, other in itertools.pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps[:-1]:
            x = torch.relu(step(x))
        return self.steps[-1](x)


class Named(nn.Module):
    """A feed-forward pair whose names say the opposite of what its modules do."""

    def __init__(self) -> None:
        super().__init__()
        self.down_proj = nn.Linear(16, 32, device="meta")
        self.q_proj = nn.Linear(32, 16, device="meta")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.q_proj(torch.relu(self.down_proj(x)))


X = {"x": torch.zeros(3, 16, device="meta")}


def test_llama_has_the_hand_written_plan_and_its_vocabulary_sharded() -> None:
    model = tiny_model("llama", meta=True)

    found = tensor_parallel_plan(model, 2)

    assert found == {**model.tp_plan, "model.embed_tokens": "embedding_rowwise"}


def test_names_are_no_evidence() -> None:
    assert tensor_parallel_plan(Named(), 2, inputs=X) == {"down_proj": "colwise", "q_proj": "rowwise"}


def test_norms_of_single_heads_sum_their_gradients() -> None:
    found = plan_of("qwen3")

    assert found["model.layers.*.self_attn.q_norm"] == found["model.layers.*.self_attn.k_norm"] == "replicated_with_grad_allreduce"


def test_a_norm_over_all_heads_leaves_attention_unpaired() -> None:
    found = plan_of("olmo2")

    assert {found[f"model.layers.*.self_attn.{name}_proj"] for name in "qkvo"} <= {"colwise_gather_output", "rowwise_split_input"}
    assert "mean runs over the sharded dimension" in why("olmo2", "model.layers.*.self_attn.q_proj")


def test_fewer_key_value_heads_than_ranks_leave_attention_unpaired_but_not_the_feed_forward() -> None:
    found = plan_of("llama", 4)

    assert "2 x 16, which 4 ranks cannot divide" in why("llama", "model.layers.*.self_attn.k_proj", 4)
    assert found["model.layers.*.self_attn.q_proj"] == "colwise_gather_output"
    assert found["model.layers.*.mlp.down_proj"] == "rowwise"


def test_fused_gate_and_up_are_cut_as_two_blocks_and_fused_heads_of_unequal_blocks_alone() -> None:
    found = plan_of("phi3")

    assert found["model.layers.*.mlp.gate_up_proj"] == "packed_colwise"
    assert found["model.layers.*.self_attn.qkv_proj"] == "colwise_gather_output"


def test_fused_heads_that_are_interleaved_are_cut_as_they_lie() -> None:
    assert plan_of("gpt_neox")["gpt_neox.layers.*.attention.query_key_value"] == "colwise"


def test_experts_are_cut_inside_and_their_router_is_whole() -> None:
    found = plan_of("mixtral")

    assert found["model.layers.*.mlp.experts"] == "moe_tp_experts"
    assert found["model.layers.*.mlp.experts.gate_up_proj"] == "packed_colwise"
    assert found["model.layers.*.mlp.experts.down_proj"] == "rowwise"
    assert "model.layers.*.mlp.gate" not in found


def test_latent_attention_is_sharded_by_heads() -> None:
    found = plan_of("deepseek_v3")

    assert found["model.layers.*.self_attn.kv_a_proj_with_mqa"] == "mla_kv_a_proj"
    assert found["model.layers.*.self_attn.kv_b_proj"] == found["model.layers.*.self_attn.q_b_proj"] == "colwise"
    assert found["model.layers.*.self_attn.o_proj"] == "rowwise"


def test_a_tied_head_and_its_table_hold_the_same_rows() -> None:
    found = plan_of("gemma")

    assert found["lm_head"] == "colwise_gather_output"
    assert found["model.embed_tokens"] == "embedding_rowwise"


def test_a_fixed_number_of_heads_in_the_code_is_found_by_running_it_with_fewer() -> None:
    assert plan_of("opt")["model.decoder.layers.*.self_attn.q_proj"] == "colwise_gather_output"
    assert "fixes a number of heads" in why("opt", "model.decoder.layers.*.self_attn.q_proj")


def test_weights_that_no_style_can_cut_are_whole_and_say_so() -> None:
    assert "styles of transformers are for torch's own linears" in why("gpt2", "transformer.h.*.mlp.c_fc")


def test_a_bias_with_two_users_keeps_the_head_whole() -> None:
    assert "cls.predictions.decoder" not in plan_of("bert")


def test_a_chain_of_three_pairs_the_first_two() -> None:
    found = explain_tensor_parallel(_Chain(), 2, inputs=X).styles

    assert found == {"first": "colwise", "second": "rowwise", "third": "colwise_gather_output"}


class _Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(16, 16, device="meta") for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(torch.relu(self.second(torch.relu(self.first(x)))))


def test_a_module_reached_with_whole_and_with_sharded_inputs_is_not_paired() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = nn.Linear(16, 16, device="meta")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.step(torch.relu(self.step(x)))

    assert set(tensor_parallel_plan(Twice(), 2, inputs=X).values()) <= {"colwise_gather_output", "rowwise_split_input"}


def test_the_model_is_as_it_was() -> None:
    model = tiny_model("llama").train()
    before = {name: weight.clone() for name, weight in model.named_parameters()}

    tensor_parallel_plan(model, 2)

    assert model.training
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("degree", [0, -2, True, 2.0])
def test_a_degree_that_is_no_number_of_ranks_is_refused(degree: object) -> None:
    with pytest.raises(BadInput, match="no positive whole number"):
        tensor_parallel_plan(tiny_model("llama", meta=True), degree)  # type: ignore[arg-type]


def test_a_degree_that_divides_nothing_is_refused_with_one_that_does() -> None:
    with pytest.raises(BadInput, match=r"7 ranks shard nothing of LlamaForCausalLM(.|\n)*a degree of 4 works"):
        plan_of("llama", 7)


def test_one_rank_shards_nothing() -> None:
    assert plan_of("llama", 1) == {}


def test_a_model_without_linear_modules_is_refused() -> None:
    with pytest.raises(BadInput, match="Conv1d has no linear modules"):
        tensor_parallel_plan(nn.Conv1d(4, 4, 3), 2)


def test_a_model_of_ones_own_needs_its_inputs() -> None:
    with pytest.raises(BadInput, match="pass inputs="):
        tensor_parallel_plan(FeedForward(16, 32, 16), 2)


def test_a_table_that_normalises_what_it_finds_is_whole() -> None:
    assert "more than a lookup" in why("muse_glimmer_text", "embed_tokens")


def test_a_vocabulary_that_the_ranks_do_not_divide_is_cut_into_unequal_shares() -> None:
    assert plan_of("llama", vocab_size=385)["model.embed_tokens"] == "embedding_rowwise"


def test_a_whole_weight_that_meets_shards_in_another_modules_forward_is_not_paired_around() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, device="meta"))

    class Foreign(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down, self.scale = nn.Linear(16, 32, device="meta"), nn.Linear(32, 16, device="meta"), Scale()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.relu(self.up(x)) * self.scale.weight)

    assert set(tensor_parallel_plan(Foreign(), 2, inputs=X).values()) <= {"colwise_gather_output", "rowwise_split_input"}


def _fooling(between: Any, prepare: Any = None) -> Any:
    """Two linears that would be a pair, with something between them that operations alone do not show."""

    class Fooling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
            if prepare is not None:
                prepare(self)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.down(between(self, self.up(x)))
            return found

    return Fooling().to("meta") if prepare is None else Fooling()


def _softmax_after(module: Any) -> None:
    forward = module.up.forward
    module.up.forward = lambda x: forward(x).softmax(-1)


@pytest.mark.parametrize(
    "model",
    [
        _fooling(lambda _, h: h * torch.tensor(h.shape[-1] * 0.01, device=h.device)),
        _fooling(lambda _, h: h * h.new_tensor(float(h.shape[-1]))),
        _fooling(lambda _, h: h.relu() if h.mean() > 0 else h.softmax(-1)),
        _fooling(lambda module, h: h.softmax(-1) if module.training else h),
        _fooling(lambda _, h: h.softmax(-1) if torch.is_grad_enabled() else h),
        _fooling(lambda _, h: h.softmax(-1) if h.shape[1] > 20 else h),
        _fooling(lambda _, h: h.softmax(-1) if h.shape[1] % 2 else h),
        _fooling(lambda _, h: h, _softmax_after),
        _fooling(lambda _, h: h, lambda module: module.up.weight.register_hook(lambda gradient: gradient / gradient.norm())),
    ],
    ids=[
        "tensor of a width",
        "new tensor of a width",
        "mean",
        "training",
        "gradients",
        "long",
        "odd",
        "replaced forward",
        "hook on a weight",
    ],
)
def test_what_operations_alone_do_not_show_leaves_a_pair_apart(model: Any) -> None:
    x = {"x": torch.zeros((2, 16, 16), device="meta")}

    assert not {"colwise", "rowwise"} & set(explain_tensor_parallel(model, 2, inputs=x).styles.values())


@pytest.mark.parametrize("read", [lambda module: module.up.weight.shape[0], lambda module: module.down.weight.numel()])
def test_a_weight_whose_size_is_read_stays_whole(read: Any) -> None:
    model = _fooling(lambda module, h: h.softmax(-1) * read(module))
    x = {"x": torch.zeros((2, 16, 16), device="meta")}

    assert len(explain_tensor_parallel(model, 2, inputs=x).styles) == 1


def test_linears_of_a_sequential_are_not_named_together_with_what_lies_between() -> None:
    model = torch.nn.ModuleDict({"s": torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))})
    model.forward = lambda x: model["s"](x)

    with pytest.raises(BadInput, match="give them names of their own"):
        explain_tensor_parallel(model, 2, inputs={"x": torch.zeros((2, 4, 16), device="meta")})
