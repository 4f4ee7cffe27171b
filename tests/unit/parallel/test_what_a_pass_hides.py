"""What one recorded forward pass cannot see (backward passes of one's own, hooks, weights kept elsewhere) is left whole or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tuneyard.api import BadInput
from tuneyard.parallel import tensor_parallel_plan

X = {"x": torch.zeros(3, 16, device="meta")}


class Shrinking(torch.autograd.Function):
    """The identity, with a gradient that depends on all features."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] / (1 + gradients[0].norm())


class Pair(nn.Module):
    """Two linears with a step between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.first, self.between, self.second = nn.Linear(16, 32), between, nn.Linear(32, 16)
        self.step = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.step(self.between(self.first(x))))


def pairs(model: Pair) -> bool:
    return "rowwise" in tensor_parallel_plan(model, 2, inputs=X).values()


def test_without_anything_hidden_they_are_paired() -> None:
    assert pairs(Pair())


def test_a_backward_pass_of_ones_own_needs_whole_tensors() -> None:
    assert not pairs(Pair(Shrinking.apply))


@pytest.mark.parametrize("of", ["first", "second", "step"])
def test_a_backward_hook_needs_whole_tensors(of: str) -> None:
    model = Pair()
    model.get_submodule(of).register_full_backward_pre_hook(lambda _, gradients: (gradients[0] / gradients[0].norm(),))

    assert not pairs(model)


def test_a_forward_hook_on_a_linear_sees_its_whole_result() -> None:
    model = Pair()
    model.first.register_forward_hook(lambda _module, _inputs, output: output.softmax(-1))

    assert "first" not in tensor_parallel_plan(model, 2, inputs=X)


def test_a_weight_whose_gradient_has_a_hook_is_whole() -> None:
    model = Pair()
    model.first.weight.register_hook(lambda gradient: gradient / gradient.norm())

    assert "first" not in tensor_parallel_plan(model, 2, inputs=X)


def test_a_weight_that_is_kept_elsewhere_is_refused() -> None:
    model = Pair()
    kept = model.first.weight
    model.between = lambda h: h * kept.mean()

    with pytest.raises(BadInput, match=r"first\.weight is read past its module"):
        tensor_parallel_plan(model, 2, inputs=X)


def test_a_weight_that_is_computed_is_whole() -> None:
    model = Pair()
    model.first = torch.nn.utils.parametrizations.weight_norm(model.first)

    assert set(tensor_parallel_plan(model, 2, inputs=X)) <= {"second"}


def test_recording_leaves_autograd_as_it_was() -> None:
    pairs(Pair(Shrinking.apply))
    x = torch.ones(3, requires_grad=True)
    Shrinking.apply(x).sum().backward()
    assert x.grad is not None
