"""Applies a plan to a model: each rank keeps its share of every weight as a plain tensor, and modules do their share of the work.

    plan = explain_tensor_parallel(model, 4)
    shards = shard_model(model, plan, group)        # from here on, the model is this rank's
    model(**batch).loss.backward()                  # the same batch on every rank of the group
    shards.gather(name, weight.grad)                # the gradient of one process

Parameters stay the same objects, with less data: ties hold, and an optimizer that is made afterwards sees this rank's shares. Attributes
such as `in_features` keep the sizes of the whole model, because the plan was proven with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel.adapters import joined, placed_styles, planned_names
from tuneyard.parallel.collectives import TensorGroup, all_slices
from tuneyard.parallel.divisions import Divisions, divide, is_divisible, number_of
from tuneyard.parallel.forwards import FORWARDS, OF_ADAPTERS, ShardedForward
from tuneyard.parallel.linears import outputs_at
from tuneyard.parallel.modules import gradient_hooks, is_embedding, is_linear, pattern
from tuneyard.parallel.plan import TensorParallelPlan
from tuneyard.parallel.shares import Box, Share, base_style, blocks_of
from tuneyard.parallel.slices import slice_tokens

_LINEAR = ("colwise", "packed_colwise", "colwise_gather_output", "rowwise", "packed_rowwise", "rowwise_split_input")
_PAIRED = ("colwise", "packed_colwise", "rowwise", "packed_rowwise", "embedding_colwise")


@dataclass(frozen=True)
class Shards:
    """This rank's share of each parameter, by its name in the model. A tied parameter has an entry under each of its names."""

    group: TensorGroup
    shares: Mapping[str, Share]

    def __getitem__(self, name: str) -> Share:
        return self.shares[name]

    def boxes(self, name: str) -> tuple[Box, ...]:
        """The parts of the whole parameter in this rank's tensor, in their order there."""
        return self.shares[name].boxes(self.group.rank)

    def replicated(self, name: str) -> bool:
        """Whether every rank of the group holds the whole parameter."""
        return self.shares[name].replicated

    def cut(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        """This rank's share of a tensor with the parameter's whole shape."""
        return self.shares[name].cut(whole, self.group.rank)

    def gather(self, name: str, local: torch.Tensor) -> torch.Tensor:
        """The whole tensor from each rank's share: a parameter, its gradient, or an optimizer's state. All ranks call it."""
        share = self.shares[name]
        if share.dimension is None or self.group.size == 1:
            return local.detach()
        lengths = [share.local_shape(rank)[share.dimension] for rank in range(self.group.size)]
        return share.join(all_slices(local, self.group, share.dimension, lengths))


def shard_model(model: nn.Module, plan: TensorParallelPlan | Mapping[str, str], group: Any) -> Shards:
    """Cut every parameter in place to this rank's share, and give planned modules the forward of their style.

    The model may be on the meta device. PEFT's LoRA may wrap it; the plan is that of the model without adapters. `group` is a torch process
    group. All of its ranks call this function with the same model and plan.

    Raises:
        BadInput: a model that is already sharded; a plan of another model, another degree, or with unknown styles; a dimension
            that the degree must divide, and does not; quantised weights; adapters that cannot be cut.
    """
    place = group if isinstance(group, TensorGroup) else TensorGroup.of(group)
    if any(isinstance(vars(module).get("forward"), ShardedForward) for module in model.modules()):
        raise BadInput(f"{type(model).__name__} is sharded already", "shard a model once, before training")
    if any(weight.grad is not None for weight in model.parameters()):
        raise BadInput(f"{type(model).__name__} has gradients, of whole weights", "shard a model before its first backward pass")
    styles = plan.styles if isinstance(plan, TensorParallelPlan) else dict(plan)
    if isinstance(plan, TensorParallelPlan):
        _check_plan(model, plan, place.size)
    if unknown := sorted({style for style in styles.values() if base_style(style) not in {*FORWARDS, *_PAIRED}}):
        raise BadInput(f"no forward is known for the style {unknown[0]}", f"use one of: {', '.join(sorted(FORWARDS))}")
    placed = placed_styles(model, styles)
    for name in placed:
        if gradient_hooks(model.get_submodule(name)):
            cause = f"hooks on gradients of {name} would see this rank's part alone"
            raise BadInput(cause, "remove them, or make the plan from the model that has them")
    cuts = dict(_cuts(model, styles, placed, place.size))
    forwards = {name: _forward(model, name, style, place, cuts) for name, style in placed.items()}
    shares = _cut_in_place(model, cuts, place)
    for name, forward in forwards.items():
        vars(model.get_submodule(name))["forward"] = forward
    if isinstance(plan, TensorParallelPlan):
        _divide(model, plan.divisions, place.size)
        if plan.sequence is not None:
            slice_tokens(model, plan.sequence, place)
    return Shards(place, shares)


def _forward(model: nn.Module, name: str, style: str, group: TensorGroup, shares: Mapping[str, Share]) -> ShardedForward:
    """The forward of a module under its style, made from the whole module."""
    kind = style if style in OF_ADAPTERS else base_style(style)
    return {**FORWARDS, **OF_ADAPTERS}[kind](model.get_submodule(name), group, _size(model, name, style, shares))


def _divide(model: nn.Module, divisions: Divisions, degree: int) -> None:
    """Give modules this rank's share of their whole numbers, such as the number of heads."""
    for name, own in planned_names(model).items():
        divide(model.get_submodule(name), divisions.get(pattern(own), ()), degree)


def _check_plan(model: nn.Module, plan: TensorParallelPlan, size: int) -> None:
    if plan.degree != size:
        raise BadInput(f"the plan is for {plan.degree} ranks, and the group has {size}", f"make a plan with a degree of {size}")
    for name, own in planned_names(model).items():
        numbers = {each: number_of(model.get_submodule(name), each) for each in plan.divisions.get(pattern(own), ())}
        if lacking := [each for each, value in numbers.items() if not is_divisible(value, size)]:
            raise BadInput(
                f"the plan is that of another model: {size} ranks do not divide {lacking[0]} of {name}, which is {numbers[lacking[0]]}",
                "make the plan from this model with explain_tensor_parallel",
            )
    counts = _parameters_of(model, plan.styles)
    for row in plan.placements:
        here, there = counts.get(row.name, 0), row.parameters
        if here != there:
            raise BadInput(
                f"the plan is that of another model: {row.name} has {here:,} parameters here, and {there:,} there",
                "make the plan from this model with tensor_parallel_plan",
            )


def _parameters_of(model: nn.Module, styles: Mapping[str, str]) -> dict[str, int]:
    """Parameters per row of a plan, without adapters. A parameter of several modules counts once."""
    counts: dict[str, int] = {}
    seen: set[int] = set()
    for name, own in planned_names(model).items():
        if ".modules_to_save." in name:
            continue
        for parameter, weight in model.get_submodule(name).named_parameters(recurse=False):
            key = pattern(joined(own, parameter))
            row = key if key in styles else pattern(own)
            counts.setdefault(row, 0)
            if id(weight) not in seen:
                seen.add(id(weight))
                counts[row] += weight.numel()
    return counts


def _cuts(model: nn.Module, styles: Mapping[str, str], placed: Mapping[str, str], degree: int) -> Iterator[tuple[str, Share]]:
    """The share of each parameter, under each of its names."""
    names = planned_names(model)
    for name, module in model.named_modules():
        for own, weight in module.named_parameters(recurse=False):
            full = joined(name, own)
            of_weight = styles.get(pattern(joined(names[name], own))) if name in names else None
            style = of_weight or placed.get(name, "")
            yield full, _share(full, module, own, weight, style, degree, alone=of_weight is not None)


def _share(name: str, module: nn.Module, own: str, weight: torch.Tensor, style: str, degree: int, *, alone: bool) -> Share:
    shape = tuple(weight.shape)
    at = _dimension(name, module, own, weight, style, alone=alone)
    if at is None:
        return Share(shape, degree)
    size = shape[at]
    blocks = blocks_of(style, size)
    if sum(blocks) != size or min(blocks) < degree or (base_style(style) in _PAIRED and any(each % degree for each in blocks)):
        raise BadInput(
            f"{degree} ranks do not divide the {size} indices of dimension {at} of {name} ({style})",
            f"make a plan for this model with a degree of {degree}: tensor_parallel_plan leaves out weights that do not divide",
        )
    return Share(shape, degree, at, blocks)


def _dimension(name: str, module: nn.Module, own: str, weight: torch.Tensor, style: str, *, alone: bool) -> int | None:
    """The dimension of a parameter that its style cuts. `alone`: the plan names the parameter itself, such as a weight of experts."""
    if alone:
        return int(weight.ndim) - (2 if "colwise" in style else 1)
    if base_style(style) in _LINEAR:
        if not is_linear(module):
            raise BadInput(
                f"{style} is a style of linear modules, and {name} belongs to a {type(module).__name__}", "leave it out of the plan"
            )
        outputs = outputs_at(module) if own == "weight" else 0
        return outputs if "colwise" in style else (1 - (outputs or 0) if own == "weight" else None)
    if style in ("embedding_rowwise", "embedding_colwise"):
        if not is_embedding(module):
            raise BadInput(
                f"{style} is a style of lookup tables, and {name} belongs to a {type(module).__name__}", "leave it out of the plan"
            )
        return 0 if style == "embedding_rowwise" else 1
    return None


def _cut_in_place(model: nn.Module, cuts: Mapping[str, Share], group: TensorGroup) -> dict[str, Share]:
    done: dict[int, tuple[str, Share]] = {}
    every = {id(weight): cuts[name] for name, weight in model.named_parameters(remove_duplicate=False) if name in cuts}
    shares = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        share = shares[name] = cuts.get(name, every[id(weight)])  # a module with a second name has the cut of its first name
        other, before = done.setdefault(id(weight), (name, share))
        if before != share:
            raise BadInput(
                f"{name} and {other} are one tensor, which the plan cuts in two ways", "make the plan after the weights are tied"
            )
    for name, weight in model.named_parameters():
        if not cuts[name].replicated:
            weight.data = cuts[name].cut(weight.data, group.rank)
    return shares


def _size(model: nn.Module, name: str, style: str, shares: Mapping[str, Share]) -> int:
    """The whole size of the dimension that a module's forward cuts or gathers."""
    if style == "mla_kv_a_proj":
        configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
        config = next(found for found in configs if hasattr(found, "get_text_config"))
        return int(config.get_text_config().qk_rope_head_dim)
    share = shares.get(f"{name}.weight")
    return 0 if share is None or share.dimension is None else share.shape[share.dimension]
