"""Which models may have slices of the tokens between their blocks, and what the plan then says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.ranks.applied_models import Case
from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel import TensorParallelPlan, explain_tensor_parallel, tensor_parallel_plan

WIDTH, TOKENS = 8, {"ids": torch.zeros((3, 16), dtype=torch.long, device="meta")}


def planned(model: nn.Module) -> TensorParallelPlan:
    return explain_tensor_parallel(model, 2, inputs=None if hasattr(model, "config") else TOKENS, sequence=True)


class _FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.down(self.up(x).relu())
        return found


class _Layer(nn.Module):
    """`between`: what it does to the residual stream between its blocks."""

    between = staticmethod(lambda x: x)

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.dropout = nn.LayerNorm(WIDTH), _FeedForward(), nn.Dropout(0.0)

    def forward(self, x: torch.Tensor, first: torch.Tensor | None = None) -> torch.Tensor:
        x = x if first is None else x + first
        found: torch.Tensor = x + self.dropout(self.inner(self.norm(type(self).between(x))))
        return found


class _Stack(nn.Module):
    def __init__(self, layer: type[nn.Module] = _Layer) -> None:
        super().__init__()
        self.table, self.layers, self.head = nn.Embedding(32, WIDTH), nn.ModuleList(layer() for _ in range(2)), nn.Linear(WIDTH, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(x)
        return logits


def test_blocks_work_on_whole_rows_and_norms_between_them_on_slices() -> None:
    plan = planned(Case("llama").model(meta=True))

    assert plan.sequence is not None
    assert set(plan.sequence.blocks) == {f"model.layers.{layer}.{block}" for layer in (0, 1) for block in ("self_attn", "mlp")}
    assert (plan.sequence.first, plan.sequence.last) == ("model.layers.0", "model.layers.1")
    norms = {"model.layers.*.input_layernorm", "model.layers.*.post_attention_layernorm"}
    assert plan.sequence.summed == norms
    assert {name for name, style in plan.styles.items() if style == "replicated_with_grad_allreduce"} == norms


def test_without_being_asked_for_a_plan_slices_nothing() -> None:
    model = Case("llama").model(meta=True)

    assert explain_tensor_parallel(model, 2).sequence is None
    assert "replicated_with_grad_allreduce" not in tensor_parallel_plan(model, 2).values()


def test_a_model_that_is_not_of_transformers_is_sliced_by_what_it_does() -> None:
    plan = planned(_Stack())

    assert plan.sequence is not None
    assert set(plan.sequence.blocks) == {"layers.0.inner", "layers.1.inner"}


def _dropping() -> nn.Module:
    model = _Stack()
    for layer in model.layers:
        layer.dropout = nn.Dropout(0.1)
    return model


def _stack_of(**changes: Any) -> nn.Module:
    return _Stack(type("_Changed", (_Layer,), {name: staticmethod(change) for name, change in changes.items()}))


class _InPlace(_FeedForward):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.mul_(2))


def _writing() -> nn.Module:
    model = _Stack()
    for layer in model.layers:
        layer.inner = _InPlace()
    return model


class _Apart(_Layer):
    """Both matrices are its own, so that shards lie between its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = self.inner.up, self.inner.down
        del self.inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x + self.down(self.up(self.norm(x)).relu())
        return found


class _FirstInput(_Stack):
    """A later layer is given what the first one was given, too."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = first = self.table(ids)
        for at, layer in enumerate(self.layers):
            x = layer(x, first if at else None)
        logits: torch.Tensor = self.head(x)
        return logits


class _OneNorm(_Stack):
    """The norm of the first layer is the last one, too."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(self.layers[0].norm(x))
        return logits


def _hooked() -> nn.Module:
    model = _Stack()
    model.layers[0].inner.register_forward_hook(lambda _, __, result: result + result.roll(1, 1))
    return model


class _Unchained(_Stack):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        logits: torch.Tensor = self.head(sum((layer(x) for layer in self.layers), x))
        return logits


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (_dropping, "its dropout has to be 0"),
        (lambda: _stack_of(between=lambda x: x - x.mean(1, keepdim=True)), "runs over the sharded dimension"),
        (lambda: _stack_of(between=lambda x: x.cumsum(1)), "runs over the sharded dimension"),
        (lambda: _stack_of(between=lambda x: x.roll(1, 1)), "roll is not known to work on shards"),
        (lambda: _stack_of(between=lambda x: x / x.shape[1]), "computes with the number of tokens"),
        (lambda: _stack_of(between=lambda x: x + torch.arange(x.shape[1], device="meta")[:, None]), "whole along the sharded dimension"),
        (lambda: _stack_of(between=lambda x: x * 2 if x.shape[1] == 1 else x), "its dropout has to be 0"),
        (lambda: _stack_of(between=lambda x: x * 2 if x.shape[1] > 40 else x), "its dropout has to be 0"),
        (_FirstInput, "a later layer reads the first layer's input"),
        (_OneNorm, "is used beside shards and beside whole tensors"),
        (_hooked, "hooks are on layers.0.inner, and see whole rows only"),
        (_writing, "changes its input in place"),
        (lambda: _Stack(_Apart), "is in shards, which the next module reads"),
        (_Unchained, "its layers form no chain"),
    ],
    ids=[
        "dropout",
        "mean",
        "sum",
        "shift",
        "count",
        "positions",
        "one token",
        "long",
        "first input",
        "one norm",
        "hook",
        "in place",
        "apart",
        "no chain",
    ],
)
def test_what_cannot_be_sliced_is_refused(model: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=r"tokens of .* cannot be sliced between its blocks") as refused:
        planned(model())
    assert reason in str(refused.value)
    assert refused.value.next_step == "set strategy.sequenceParallel to false"
