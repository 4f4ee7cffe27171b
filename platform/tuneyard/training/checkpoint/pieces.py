"""The live training state of a rank as pieces: views of parameters and optimizer states, for every ZeRO stage, to copy out and in.

What DeepSpeed keeps where (0.19): stages 1 and 2 flatten each parameter group, and a rank owns one run of it, in fp32, with the
optimizer's states of the same length; a parameter's share is its `_hp_mapping`. Stage 3 flattens and cuts each parameter by itself,
`ceil(numel / ranks)` elements a rank, padded at the end, gathered into flat sub-groups (`grad_position`); with `shardWithin: host` over the
ranks of a host, and each host saves an equal share of every shard. Without DeepSpeed every rank has everything, and saves an equal share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tuneyard.training.checkpoint.layout import Box, whole
from tuneyard.training.distributed import World

WEIGHT = "weight"


@dataclass(frozen=True)
class Saved:
    """What optimizer states there must be, of a parameter or, for opaque ones, of a group."""

    kinds_of: Callable[[str], tuple[str, ...]]
    opaque_under: Callable[[str], Mapping[str, torch.Tensor]]


NOTHING = Saved(lambda _: (), lambda _: {})


@dataclass(frozen=True)
class Piece:
    """Elements `start` … of the flattened `box` of parameter `name`. `tensors`: live views of equal length, by kind."""

    name: str
    shape: tuple[int, ...]
    start: int
    tensors: Mapping[str, torch.Tensor]
    box: Box

    @property
    def stop(self) -> int:
        return self.start + int(self.tensors[WEIGHT].numel())


@dataclass(frozen=True)
class Group:
    """Pieces that are in memory at the same time: states on NVMe come and go by sub-group, and are written back afterwards.

    `opaque`: tensors of the optimizer that are not one value per element, by a key that is unique on this rank.
    """

    pieces: list[Piece]
    opaque: Mapping[str, torch.Tensor]


def groups_of(trainer: Any, world: World, *, saved: Saved = NOTHING, only_own_share: bool) -> Iterator[Group]:
    """The pieces of this rank. `saved`: optimizer states that must exist; they are made where they do not yet.

    `only_own_share`: this rank's share of what several ranks have (all without DeepSpeed, those of equal place in hosts with
    `shardWithin: host`); else all of it.
    """
    if not trainer.is_deepspeed_enabled:
        yield _replicated(trainer, world, saved, only_own_share)
    elif trainer.deepspeed.zero_optimization_stage() == 3:
        yield from _stage_3(trainer.deepspeed, world if only_own_share else None, saved)
    else:
        yield _stage_1_or_2(trainer.deepspeed, saved)


def after_load(trainer: Any) -> None:
    """Bring the weights that the model computes with in line with the fp32 ones that were loaded."""
    if not trainer.is_deepspeed_enabled:
        return
    zero = trainer.deepspeed.optimizer
    if trainer.deepspeed.zero_optimization_stage() != 3:
        zero.update_lp_params()
        return
    for index, flat in enumerate(zero.fp32_partitioned_groups_flat):
        if zero._swappable_optimizer_subgroup(index):
            zero._optimizer_states_and_gradient_swap_in(index)
        if flat.numel():
            zero._reassign_or_swap_out_partitioned_parameters(index)
        if zero._swappable_optimizer_subgroup(index):
            zero._optimizer_states_and_gradient_swap_out(index)
    if zero.persistent_parameters:
        zero.persistent_parameters[0].partition(zero.persistent_parameters)
        zero.persistent_parameters[0].all_gather(zero.persistent_parameters)


def _replicated(trainer: Any, world: World, saved: Saved, only_own_share: bool) -> Group:
    optimizer = _inner(trainer.optimizer)
    trained = [(name, parameter) for name, parameter in trainer.model.named_parameters() if parameter.requires_grad]
    elements = sum(parameter.numel() for _, parameter in trained)
    first, last = (elements * world.rank // world.size, elements * (world.rank + 1) // world.size) if only_own_share else (0, elements)
    pieces: list[Piece] = []
    opaque: dict[str, torch.Tensor] = {}
    place = 0
    for name, parameter in trained:
        start, stop = max(first - place, 0), min(last - place, parameter.numel())
        place += parameter.numel()
        states = _states(optimizer, parameter, saved, [name], name)
        if start < stop:
            views = {WEIGHT: parameter, **{kind: state for kind, state in states.items() if _is_per_element(state, parameter)}}
            cut = _cut(views, start, stop - start)
            pieces.append(Piece(name, tuple(parameter.shape), start, cut, whole(tuple(parameter.shape))))
        if start == 0 and stop > 0:  # who has a parameter's first element keeps what cannot be cut
            opaque |= {f"{name}|{kind}": state for kind, state in states.items() if not _is_per_element(state, parameter)}
    return Group(pieces, opaque)


def _stage_1_or_2(engine: Any, saved: Saved) -> Group:
    zero = engine.optimizer
    flats = getattr(zero, "single_partition_of_fp32_groups", None) or zero.fp32_groups_flat_partition
    groups = getattr(zero, "bit16_groups", None) or zero.bf16_groups
    pieces: list[Piece] = []
    opaque: dict[str, torch.Tensor] = {}
    for index, (flat, parameters) in enumerate(zip(flats, groups, strict=True)):
        states = _states(zero.optimizer, flat, saved, [zero.param_names[each] for each in parameters], f"group {index}")
        opaque |= {f"group {index}|{kind}": state for kind, state in states.items() if not _is_per_element(state, flat)}
        per_element = {kind: state for kind, state in states.items() if _is_per_element(state, flat)}
        for parameter in parameters:
            mapping = parameter._hp_mapping
            if mapping is None:
                continue
            here, there = mapping.hp_fragment_address, mapping.lp_fragment_address
            views = {
                kind: tensor.detach().view(-1)[here.start : here.start + here.numel]
                for kind, tensor in {WEIGHT: flat, **per_element}.items()
            }
            shape = tuple(parameter.shape)
            pieces.append(Piece(zero.param_names[parameter], shape, there.start, views, whole(shape)))
    return Group(pieces, opaque)


def _stage_3(engine: Any, sharing: World | None, saved: Saved) -> Iterator[Group]:
    """`sharing`: where hosts are replicas, this host's share of what all hosts have; None: all of it."""
    zero = engine.optimizer
    for index, (flat, parameters) in enumerate(zip(zero.fp32_partitioned_groups_flat, zero.fp16_groups, strict=True)):
        swaps = zero._swappable_optimizer_subgroup(index)
        if swaps:
            zero._optimizer_states_and_gradient_swap_in(index)
        states = _states(zero.optimizer, flat, saved, [zero.param_names[each] for each in parameters], f"group {index}")
        opaque = {f"group {index}|{kind}": state for kind, state in states.items() if not _is_per_element(state, flat)}
        per_element = {kind: state for kind, state in states.items() if _is_per_element(state, flat)}
        pieces = []
        for parameter in parameters:
            _, offset, elements = zero.grad_position[zero.get_param_id(parameter)]
            start = elements * zero._get_param_partition_rank(parameter)
            own = min(elements, parameter.ds_numel - start)  # the rest is padding
            first, last = _share(own, sharing)
            if first >= last:
                continue
            views = _cut({WEIGHT: flat, **per_element}, offset + first, last - first)
            shape = tuple(parameter.ds_shape)
            pieces.append(Piece(zero.param_names[parameter], shape, start + first, views, whole(shape)))
        yield Group(pieces, opaque)
        if swaps:
            zero._optimizer_states_and_gradient_swap_out(index)


def _share(elements: int, sharing: World | None) -> tuple[int, int]:
    """First and last (exclusive) of `elements` that this host saves."""
    groups = sharing.host_groups if sharing is not None else None
    if groups is None:
        return 0, elements
    return elements * groups.host // groups.hosts, elements * (groups.host + 1) // groups.hosts


def _cut(tensors: Mapping[str, torch.Tensor], start: int, elements: int) -> dict[str, torch.Tensor]:
    return {kind: tensor.detach().view(-1)[start : start + elements] for kind, tensor in tensors.items()}


def _inner(optimizer: Any) -> Any:
    """Without accelerate's wrapper."""
    return getattr(optimizer, "optimizer", optimizer)


def _states(optimizer: Any, parameter: torch.Tensor, saved: Saved, names: Sequence[str], owner: str) -> dict[str, torch.Tensor]:
    """Tensors that the optimizer keeps for `parameter`, its count of steps left out (`state` has that).

    `names`: of the parameter, or of all in its group, which are treated alike; `owner`: of whom opaque ones are.
    """
    kinds = [kind for kind in next(filter(None, map(saved.kinds_of, names)), ()) if kind != WEIGHT]
    opaque = saved.opaque_under(owner)
    state = optimizer.state[parameter] if parameter in optimizer.state or kinds or opaque else {}
    for kind in kinds:
        if kind not in state:
            state[kind] = torch.zeros_like(parameter, dtype=getattr(optimizer, "states_dtype", None), requires_grad=False)
    for kind, tensor in opaque.items():
        if kind not in state:
            state[kind] = tensor.to(parameter.device)
    return {kind: value for kind, value in state.items() if torch.is_tensor(value) and kind != "step"}


def _is_per_element(state: torch.Tensor, parameter: torch.Tensor) -> bool:
    return bool(state.numel() == parameter.numel() and state.is_floating_point())
