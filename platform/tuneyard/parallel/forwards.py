"""The forward of a module for each style: the module's own computation on its share of the weights, with collectives around it.

Forwards work on plain tensors, and are part of the module's forward: hooks, PEFT and activation checkpointing see whole inputs and results,
as in the original model. Recomputed layers run their collectives again, in the same order on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tuneyard.parallel.collectives import TensorGroup, copied, gathered, sliced, summed
from tuneyard.parallel.linears import outputs_at
from tuneyard.parallel.shares import share_of
from tuneyard.parallel.trees import mapped


class ShardedForward:
    """The forward of one module on one rank, assigned to `module.forward`. `size`: that of the cut dimension."""

    def __init__(self, module: nn.Module, group: TensorGroup, size: int) -> None:
        self.module: Any = module
        self.group = group
        self.size = size
        self.inner: Callable[..., Any] = module.forward

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError


class Product(ShardedForward):
    """The product with this rank's share of a weight, which may lie as [outputs, inputs] or as [inputs, outputs]."""

    def __init__(self, module: nn.Module, group: TensorGroup, size: int) -> None:
        super().__init__(module, group, size)
        self.turned = outputs_at(module) == 1
        self.bias = module._parameters.get("bias") is not None

    def of(self, input: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        weight = self.module.weight
        return functional.linear(input, weight.t() if self.turned else weight, bias)


class Columns(Product):
    """`colwise`, `packed_colwise`: whole inputs, this rank's outputs."""

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        return self.of(copied(input, self.group), self.module.bias if self.bias else None)


class GatheredColumns(Columns):
    """`colwise_gather_output`: whole inputs and outputs."""

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        return gathered(super().__call__(input), self.group, -1, self.size)


class Rows(Product):
    """`rowwise`: this rank's inputs, whole outputs. The bias is added once, to the sum."""

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        total = summed(self.of(input), self.group)
        return total + self.module.bias.to(total.dtype) if self.bias else total


class SlicedRows(Rows):
    """`rowwise_split_input`: whole inputs and outputs."""

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        return super().__call__(sliced(input, self.group, -1))


class Vocabulary(ShardedForward):
    """`embedding_rowwise`: each rank looks up the tokens whose rows it holds, and the lookups are added."""

    def __init__(self, module: nn.Module, group: TensorGroup, size: int) -> None:
        super().__init__(module, group, size)
        self.first, self.length = share_of(size, group.size, group.rank)
        padding = self.module.padding_idx
        if padding is not None:  # only one rank has the row without gradient
            self.module.padding_idx = padding - self.first if self.first <= padding < self.first + self.length else None

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        self._check(input)
        own = input - self.first
        elsewhere = (own < 0) | (own >= self.length)
        found = self.inner(own.masked_fill(elsewhere, 0))
        return summed(found.masked_fill(elsewhere.unsqueeze(-1), 0), self.group)

    def _check(self, tokens: torch.Tensor) -> None:
        """A token of no rank would silently become zeros, where a whole table refuses it. On a GPU the check does not wait for the
        result.
        """
        inside = ((tokens >= 0) & (tokens < self.size)).all()
        if tokens.is_cuda:
            torch._assert_async(inside)
        elif not inside:
            raise IndexError(f"a token id is outside of the vocabulary of {self.size}")


class Features(ShardedForward):
    """`embedding_colwise`: the features of this rank's heads, for every token."""

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(input)
        return found


class Experts(ShardedForward):
    """`moe_tp_experts`: this rank's share of every expert on whole inputs, and the results are added."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        arguments, keywords = mapped(self._copied, (arguments, keywords))
        return mapped(self._summed, self.inner(*arguments, **keywords))

    def _copied(self, leaf: Any) -> Any:
        return copied(leaf, self.group) if isinstance(leaf, torch.Tensor) else leaf

    def _summed(self, leaf: Any) -> Any:
        return summed(leaf, self.group) if isinstance(leaf, torch.Tensor) else leaf


class Shared(ShardedForward):
    """`replicated_with_grad_allreduce`: whole weights on this rank's activations; the arriving gradient of the weights is summed.

    The sum is taken where the forward pass reads the parameters, so earlier accumulated gradients are not summed again.
    """

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        with _held(self.module, {name: copied(own, self.group) for name, own in _parameters(self.module)}):
            return self.inner(*arguments, **keywords)


class Latent(ShardedForward):
    """`mla_kv_a_proj`: this rank's heads read the last `size` outputs without a linear between, so their gradient is summed."""

    def __call__(self, *arguments: Any, **keywords: Any) -> torch.Tensor:
        latent, position = self.inner(*arguments, **keywords).tensor_split((-self.size,), -1)
        return torch.cat([latent, copied(position, self.group)], -1)


class FactorsOfExperts(ShardedForward):
    """LoRA on a weight of experts, to which PEFT adds the product `B A`. The factor named by `whole` is whole, and its gradient is
    summed.
    """

    whole = ""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        with ExitStack() as stack:
            for factor in getattr(self.module, self.whole).values():
                stack.enter_context(_held(factor, {name: copied(own, self.group) for name, own in _parameters(factor)}))
            return self.inner(*arguments, **keywords)


class WholeFactorA(FactorsOfExperts):
    whole = "lora_A"


class WholeFactorB(FactorsOfExperts):
    whole = "lora_B"


def _parameters(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, own) for name, own in module._parameters.items() if own is not None)


@contextmanager
def _held(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """The module with these tensors in place of its parameters."""
    held: dict[str, Any] = module._parameters
    was = dict(held)
    held.update(tensors)
    try:
        yield
    finally:
        held.update(was)


FORWARDS: Mapping[str, type[ShardedForward]] = {
    "colwise": Columns,
    "packed_colwise": Columns,
    "colwise_gather_output": GatheredColumns,
    "rowwise": Rows,
    "rowwise_split_input": SlicedRows,
    "embedding_rowwise": Vocabulary,
    "embedding_colwise": Features,
    "moe_tp_experts": Experts,
    "replicated_with_grad_allreduce": Shared,
    "mla_kv_a_proj": Latent,
}
"""The forward of each style of a module."""
OF_ADAPTERS: Mapping[str, type[ShardedForward]] = {
    "packed_rowwise": Rows,
    "factors_of_experts:lora_A": WholeFactorA,
    "factors_of_experts:lora_B": WholeFactorB,
}
"""Styles of LoRA's modules, which no plan names."""
