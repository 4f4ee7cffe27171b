"""The second half of the proof: the model's own code, run with each rank's shapes, must do the same operations on exactly the shards.

An engine runs a module's forward on local tensors. A forward that reshapes to a fixed number of heads, or cuts at a fixed feature, then
fails or, worse, computes other numbers. So the recording with local weights is compared with the proven one, event by event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from tuneyard.parallel.layout import CONSTANT, Conflict, Sharded, Whole, sources_of
from tuneyard.parallel.linears import outputs_at
from tuneyard.parallel.modules import pattern
from tuneyard.parallel.propagation import ExpertLayout, Layouts, Role, expected_shape
from tuneyard.parallel.recording import MAX_EVENTS, Event, Recording, Ref, record_again
from tuneyard.parallel.trees import leaves

_COPIES = {"view", "_unsafe_view", "reshape", "clone"}


class Departure(Conflict):
    """The forward pass on local shapes departs from the shards of the whole one, at an event (by its index) of a module."""

    def __init__(self, reason: str, sources: frozenset[str], position: int, module: str) -> None:
        super().__init__(reason, sources)
        self.position, self.module = position, module


def replayed(
    model: nn.Module,
    whole: Recording,
    found: Layouts,
    experts: Mapping[str, ExpertLayout],
    degree: int,
    *,
    limit: int = MAX_EVENTS,
) -> None:
    """Raises Departure if the forward pass on local shapes departs from the shards of the whole one, or has more operations than
    `limit`.
    """
    local = record_again(model, whole, local_weights(model, found, experts, degree), limit=limit)
    here = there = 0
    while there < len(local.events):
        if not _same_call(whole, local, here, there):
            # `reshape` copies where a view is impossible, which depends on the strides: both sides skip such copies.
            here, there = _past_copies(whole.events, here), _past_copies(local.events, there)
            if there == len(local.events) and local.error is not None:
                break
            if here == len(whole.events) or not _same_call(whole, local, here, there):
                raise _departure(whole, found, here, "its forward takes another path with each rank's heads")
        ours, theirs = whole.events[here], local.events[there]
        if ours.kind == "op" and not (same_numbers(ours, theirs) and _same_places(whole, local, found, degree, ours, theirs)):
            raise _departure(whole, found, here, "its forward computes with the number of features or heads, and each rank has fewer")
        pairs = list(zip(ours.read, theirs.read, strict=False)) + list(zip(ours.made, theirs.made, strict=True))
        if not all(_as_expected(whole, found, one.number, local.shapes[other.number], degree) for one, other in pairs):
            raise _departure(whole, found, here, "its forward fixes a number of heads or features, and each rank has fewer")
        if _adds_up_repeats(whole, local, found, ours, theirs):
            raise _departure(whole, found, here, "its forward adds up a value that is repeated over heads or features")
        here, there = here + 1, there + 1
    if local.error is not None or here != len(whole.events):
        raise _departure(whole, found, here, _words(local.error))


def _same_call(whole: Recording, local: Recording, here: int, there: int) -> bool:
    if here >= len(whole.events) or there >= len(local.events):
        return False
    ours, theirs = whole.events[here], local.events[there]
    same = ours.kind == theirs.kind and ours.module == theirs.module and ours.function == theirs.function
    return same and len(ours.made) == len(theirs.made) and len(ours.read) == len(theirs.read)


def same_numbers(ours: Event, theirs: Event) -> bool:
    """Whether both events compute with the same numbers, such as a scale. Sizes, which are ATen's whole numbers, may differ: layouts
    determine them. A tensor that Python made from numbers must hold the same numbers, unless its shape differs.
    """
    if any(one.shape == other.shape and not torch.equal(one, other) for one, other in zip(ours.constants, theirs.constants, strict=False)):
        return False
    return _numbers(ours) == _numbers(theirs)


def _numbers(event: Event) -> list[Any]:
    schema = event.function._schema.arguments
    given = [*zip(schema, event.arguments, strict=False), *((each, event.keywords.get(each.name)) for each in schema)]
    fixed = [value for argument, value in given if argument.name.startswith("dim") or "int" not in str(argument.type)]
    return [leaf for leaf in leaves(fixed) if not isinstance(leaf, Ref)]


_SIZES = {"size", "shape", "repeats", "split_size", "split_sizes", "k", "end", "stride", "normalized_shape", "length"}
"""Whole numbers that the shapes of an operation's results determine."""


def _same_places(whole: Recording, local: Recording, found: Layouts, degree: int, ours: Event, theirs: Event) -> bool:
    """Whether both events read the same places: a slice of shards begins at the rank's share of its first index. Other whole numbers that
    shapes do not determine, such as the index that is picked, are equal.
    """
    mine, yours = _whole_numbers(ours), _whole_numbers(theirs)
    if mine.get("start") and yours.get("start") and ours.read and theirs.read:
        first, other = ours.read[0].number, theirs.read[0].number
        at = mine.get("dim", 0) % len(whole.shapes[first])
        layout = found.layouts.get(first, CONSTANT)
        is_cut = isinstance(layout, Sharded) and layout.dimension == at and mine.get("step", 1) == 1
        mine["start"] = slice(mine["start"], None).indices(whole.shapes[first][at])[0] // (degree if is_cut else 1)
        yours["start"] = slice(yours["start"], None).indices(local.shapes[other][at])[0]
    return mine == yours


def _whole_numbers(event: Event) -> dict[str, Any]:
    """Whole numbers that an operation is given, by the names of its arguments, without sizes."""
    schema = event.function._schema.arguments
    given = {argument.name: value for argument, value in zip(schema, event.arguments, strict=False)} | dict(event.keywords)
    kinds = {argument.name: str(argument.type) for argument in schema}
    return {name: value for name, value in given.items() if name not in _SIZES and "int" in kinds.get(name, "") and value is not None}


def _past_copies(events: list[Event], position: int) -> int:
    while position < len(events) and events[position].kind == "op" and events[position].function.overloadpacket.__name__ in _COPIES:
        position += 1
    return position


def local_weights(model: nn.Module, found: Layouts, experts: Mapping[str, ExpertLayout], degree: int) -> dict[str, torch.Size]:
    """The shapes of each rank's weights that differ from the model's."""
    shapes: dict[str, torch.Size] = {}
    for name, module in model.named_modules():
        roles = found.roles.get(pattern(name), set())
        cuts: dict[str, int] = {}
        outputs = outputs_at(module) or 0
        if Role.COLUMNS in roles:
            cuts = {"weight": outputs, "bias": 0}
        elif roles & {Role.ROWS, Role.FEATURES}:
            cuts = {"weight": 1 - outputs}
        elif pattern(name) in experts:
            cuts = {own: cut[0] for own, cut in experts[pattern(name)].weights.items()}
        for own, weight in module.named_parameters(recurse=False):
            if own in cuts:
                shape = list(weight.shape)
                shape[cuts[own]] //= degree
                shapes[f"{name}.{own}" if name else own] = torch.Size(shape)
    return shapes


def _as_expected(whole: Recording, found: Layouts, number: int, shape: tuple[int, ...], degree: int) -> bool:
    expected = expected_shape(whole, found, number, degree)
    if shape == expected:
        return True
    layout = found.layouts.get(number, CONSTANT)
    if not isinstance(layout, Whole) or len(shape) != len(expected):
        return False
    # A value repeated over the heads is repeated over each rank's heads.
    return all(a == b or (i in layout.uniform and a == b // degree) for i, (a, b) in enumerate(zip(shape, expected, strict=True)))


def _adds_up_repeats(whole: Recording, local: Recording, found: Layouts, ours: Event, theirs: Event) -> bool:
    """Whether results of whole shape are made from a constant that is repeated fewer times on each rank: a count would differ."""
    read = [
        one.number for one, other in zip(ours.read, theirs.read, strict=False) if whole.shapes[one.number] != local.shapes[other.number]
    ]
    repeats = any(isinstance(found.layouts.get(number, CONSTANT), Whole) for number in read)
    same = [whole.shapes[one.number] == local.shapes[other.number] for one, other in zip(ours.made, theirs.made, strict=True)]
    return repeats and ours.kind == "op" and bool(same) and all(same)


def _departure(whole: Recording, found: Layouts, position: int, reason: str) -> Departure:
    position = min(position, len(whole.events) - 1)
    return Departure(reason, _blamed(whole.events, found, position), position, whole.events[position].module)


def _blamed(events: list[Event], found: Layouts, position: int) -> frozenset[str]:
    """The sharded linears whose shards the event reads or makes, else those of the nearest module around it."""
    direct = _sources(found, events[position])
    module = events[position].module
    while not direct and module:
        module = module.rpartition(".")[0]
        inside = [event for event in events if event.module == module or event.module.startswith(f"{module}." if module else "")]
        direct = frozenset().union(*[_sources(found, event) for event in inside])
    return direct


def _sources(found: Layouts, event: Event) -> frozenset[str]:
    return sources_of([found.layouts.get(ref.number, CONSTANT) for ref in (*event.read, *event.made)])


def _words(error: Exception | None) -> str:
    first = str(error).splitlines()[0] if error and str(error) else "it ends early"
    return f"its forward does not run with each rank's heads ({first})"
