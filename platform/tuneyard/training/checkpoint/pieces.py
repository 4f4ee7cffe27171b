"""The live training state of a rank as pieces: views of parameters and optimizer states, for every ZeRO stage, to copy out and in.

Where the engine keeps the state (DeepSpeed 0.19):

- Stages 1 and 2 flatten each parameter group. A rank owns one run of it, in fp32, with optimizer states of the same length. A parameter's
  share is its `_hp_mapping`.
- Stage 3 flattens and cuts each parameter separately, `ceil(numel / ranks)` elements a rank, padded at the end, gathered into flat
  sub-groups (`grad_position`). With `shardWithin: host` it cuts over the ranks of a host, and each host saves an equal share of every
  shard.
- Without DeepSpeed every rank has everything, and saves an equal share.

A parameter that is cut over a tensor group consists of several runs (`runs_of`). Each is one box of the whole parameter, and contiguous in
this rank's tensor. A parameter that all ranks of the group hold whole is saved by the first of them, or in equal shares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tuneyard.parallel import Shards, Share
from tuneyard.training.checkpoint.layout import Box, whole
from tuneyard.training.distributed import World

WEIGHT = "weight"


@dataclass(frozen=True)
class Saved:
    """Optimizer states that must exist: of a parameter or, for opaque ones, of a group."""

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
class Run:
    """Elements of this rank's flattened tensor from `first` on, which are one flattened box of the whole parameter."""

    first: int
    box: Box

    @property
    def elements(self) -> int:
        return math.prod(length for _, length in self.box)


def runs_of(share: Share, rank: int) -> list[Run]:
    """The runs of the tensor of `rank`, in order. If a later dimension is cut in several blocks, there is a run for each block at each
    index of the dimensions before it.
    """
    boxes, at = share.boxes(rank), share.dimension
    if at is None or len(boxes) == 1:
        return [Run(0, boxes[0])]
    found: list[Run] = []
    first = 0
    for index in itertools.product(*(range(length) for length in share.shape[:at])):
        for box in boxes:
            found.append(Run(first, (*((each, 1) for each in index), *box[at:])))
            first += found[-1].elements
    return found


@dataclass(frozen=True)
class Holding:
    """A rank's part of a parameter: the whole shape, its runs, and whether all ranks of its tensor group hold the same."""

    shape: tuple[int, ...]
    runs: Sequence[Run]
    is_whole: bool

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], shards: Shards | None) -> Holding:
        """`shape`: of this rank's tensor."""
        if shards is None or shards.replicated(name):
            return cls(shape, [Run(0, whole(shape))], True)
        share = shards[name]
        return cls(share.shape, runs_of(share, shards.group.rank), False)

    def pieces(self, name: str, start: int, views: Mapping[str, torch.Tensor]) -> Iterator[Piece]:
        """Pieces of `views`: elements of this rank's flattened tensor from `start` on, by kind."""
        stop = start + int(views[WEIGHT].numel())
        for run in self.runs:
            first, last = max(start, run.first), min(stop, run.first + run.elements)
            if first < last:
                yield Piece(name, self.shape, first - run.first, _cut(views, first - start, last - first), run.box)


@dataclass(frozen=True)
class Group:
    """Pieces that are in memory at the same time. States on NVMe are loaded by sub-group, and written back afterwards.

    `opaque`: tensors of the optimizer that are not one value per element, by a key that is unique on this rank.
    """

    pieces: list[Piece]
    opaque: Mapping[str, torch.Tensor]
    stays: bool = False
    """Whether the views show the same values until the next step: a save with `wait` then needs no copy of them."""


def groups_of(trainer: Any, world: World, *, saved: Saved = NOTHING, only_own_share: bool) -> Iterator[Group]:
    """The pieces of this rank. `saved`: optimizer states that must exist; missing ones are created.

    `only_own_share`: of a state that several ranks hold, only this rank's share.
    """
    if trainer.tables is not None:  # each table shard is on one rank
        yield Group(
            [Piece(each.name, each.shape, 0, {WEIGHT: each.tensor.view(-1)}, each.box) for each in trainer.tables.pieces()], {}, stays=True
        )
    if not trainer.is_deepspeed_enabled:
        yield _replicated(trainer, world, saved, only_own_share)
    elif trainer.deepspeed.zero_optimization_stage() == 3:
        yield from _stage_3(trainer.deepspeed, world if only_own_share else None, saved)
    else:
        yield _stage_1_or_2(trainer, world, saved, only_own_share)


def after_load(trainer: Any) -> None:
    """Update the weights of the forward pass from the fp32 weights that were loaded."""
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
    held = {name: Holding.of(name, tuple(parameter.shape), trainer.shards) for name, parameter in trained}
    places = {True: (world.rank, world.size), False: (world.gradient_rank, world.gradient_size)}
    bounds = {}
    for is_whole, (rank, ranks) in places.items():
        elements = sum(parameter.numel() for name, parameter in trained if held[name].is_whole is is_whole)
        bounds[is_whole] = (elements * rank // ranks, elements * (rank + 1) // ranks) if only_own_share else (0, elements)
    pieces: list[Piece] = []
    opaque: dict[str, torch.Tensor] = {}
    place = {True: 0, False: 0}
    for name, parameter in trained:
        is_whole = held[name].is_whole
        first, last = (bound - place[is_whole] for bound in bounds[is_whole])
        start, stop = max(first, 0), min(last, parameter.numel())
        place[is_whole] += parameter.numel()
        states = _states(optimizer, parameter, saved, [name], name)
        if start < stop:
            views = {WEIGHT: parameter, **{kind: state for kind, state in states.items() if _is_per_element(state, parameter)}}
            pieces += held[name].pieces(name, start, _cut(views, start, stop - start))
        if start == 0 and stop > 0:  # the rank with a parameter's first element saves its opaque states
            opaque |= {f"{name}|{kind}": state for kind, state in states.items() if not _is_per_element(state, parameter)}
    return Group(pieces, opaque)


def _stage_1_or_2(trainer: Any, world: World, saved: Saved, only_own_share: bool) -> Group:
    zero = trainer.deepspeed.optimizer
    flats = getattr(zero, "single_partition_of_fp32_groups", None) or zero.fp32_groups_flat_partition
    groups = getattr(zero, "bit16_groups", None) or zero.bf16_groups
    pieces: list[Piece] = []
    opaque: dict[str, torch.Tensor] = {}
    for index, (flat, parameters) in enumerate(zip(flats, groups, strict=True)):
        states = _states(zero.optimizer, flat, saved, [zero.param_names[each] for each in parameters], f"group {index}")
        opaque |= {f"group {index}|{kind}": state for kind, state in states.items() if not _is_per_element(state, flat)}
        per_element = {kind: state for kind, state in states.items() if _is_per_element(state, flat)}
        for parameter in parameters:
            mapping, name = parameter._hp_mapping, zero.param_names[parameter]
            held = Holding.of(name, tuple(parameter.shape), trainer.shards)
            if mapping is None or (only_own_share and held.is_whole and world.tensor_index > 0):
                continue
            here, there = mapping.hp_fragment_address, mapping.lp_fragment_address
            pieces += held.pieces(name, there.start, _cut({WEIGHT: flat, **per_element}, here.start, here.numel))
    return Group(pieces, opaque)


def _stage_3(engine: Any, sharing: World | None, saved: Saved) -> Iterator[Group]:
    """`sharing`: if hosts are replicas, restrict pieces to this host's share; None: all pieces."""
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
    """The optimizer without accelerate's wrapper."""
    return getattr(optimizer, "optimizer", optimizer)


def _states(optimizer: Any, parameter: torch.Tensor, saved: Saved, names: Sequence[str], owner: str) -> dict[str, torch.Tensor]:
    """Tensors that the optimizer keeps for `parameter`, without its step count (which is in `state`).

    `names`: of the parameter, or of all parameters in its group, which are treated alike; `owner`: the owner of opaque ones.
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
