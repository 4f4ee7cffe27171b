"""Rules for ATen operations: the layouts of an operation's inputs determine the layout of its results. They prove one operation at a time.

A rule returns one layout per result, or raises Conflict. An operation without a rule is proven only for whole tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuneyard.parallel.layout import (
    CONSTANT,
    TRAINED,
    Conflict,
    Layout,
    OutputOrigin,
    Partial,
    Shape,
    Sharded,
    TableOrigin,
    Whole,
    sliced,
    sources_of,
    viewed,
)
from tuneyard.parallel.modules import pattern
from tuneyard.parallel.trees import leaves


@dataclass(frozen=True)
class Operand:
    """A tensor that an operation reads."""

    layout: Layout
    shape: Shape


@dataclass(frozen=True)
class Call:
    """One operation: `arguments` in the order of its schema, with `Operand` for tensors, and the shapes of its results.

    `join` accepts a whole tensor that meets shards (its gradient is a sum over the ranks), or raises Conflict.
    """

    name: str
    pointwise: bool
    arguments: tuple[Any, ...]
    results: tuple[Shape, ...]
    degree: int
    join: Callable[[Whole, frozenset[str]], None]

    @property
    def operands(self) -> list[Operand]:
        return [leaf for leaf in leaves(self.arguments) if isinstance(leaf, Operand)]

    @property
    def sources(self) -> frozenset[str]:
        return sources_of([operand.layout for operand in self.operands])

    def conflict(self, reason: str) -> Conflict:
        return Conflict(reason, self.sources)


Rule = Callable[[Call], Sequence[Layout]]
_KEEPS = {"_to_copy", "detach", "alias", "lift_fresh", "dropout", "contiguous"}
_VIEWS = {"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"}
_MOVES = {
    "view_as_complex",
    "view_as_real",
    "expand",
    "transpose",
    "permute",
    "t",
    "slice",
    "select",
    "unbind",
    "split",
    "split_with_sizes",
    "cat",
}
_FACTORIES = {"zeros_like": True, "new_zeros": True, "zeros": True, "ones_like": False, "full_like": False, "empty_like": False}
_FACTORIES |= {"new_ones": False, "ones": False, "full": False, "new_full": False, "scalar_tensor": False, "new_empty": False}


def results_of(call: Call) -> Sequence[Layout]:
    """The layouts of the call's results. Raises Conflict if shards do not survive the operation."""
    if not any(isinstance(operand.layout, Sharded | Partial) for operand in call.operands):
        return [_whole(call, shape) for shape in call.results]
    rule = _RULES.get(call.name)
    if rule is None and call.name.startswith("_scaled_dot_product"):
        rule = _attention
    if rule is None and call.pointwise:
        rule = _pointwise
    if rule is None:
        raise call.conflict(f"{call.name} is not known to work on shards")
    if rule not in _ON_UNEQUAL and any(isinstance(operand.layout, Sharded) and operand.layout.runs for operand in call.operands):
        raise call.conflict(f"{call.name} is not known to work on blocks of unequal size")
    return rule(call)


def _whole(call: Call, shape: Shape) -> Whole:
    if call.name in _FACTORIES:
        return Whole(constant=True, uniform=frozenset(range(len(shape))), zero=_FACTORIES[call.name])
    found = [operand.layout for operand in call.operands if isinstance(operand.layout, Whole)]
    trained = [layout for layout in found if not layout.constant]
    constant = not trained
    origin = trained[0].origin if trained and all(layout.origin == trained[0].origin for layout in trained) and _preserves(call) else None
    if isinstance(origin, OutputOrigin):
        origin = _narrowed(call, origin, shape)
    return Whole(constant, origin, _uniform(call, shape))


def _preserves(call: Call) -> bool:
    """Whether the result is a value-by-value function of its one trained input."""
    return call.pointwise or call.name in _KEEPS | _VIEWS | _MOVES


def _narrowed(call: Call, origin: OutputOrigin, shape: Shape) -> OutputOrigin | None:
    if not origin.raw:
        return origin
    operand = call.operands[0]
    if call.name in ("split", "split_with_sizes", "slice") and len(shape) == len(operand.shape) and shape[:-1] == operand.shape[:-1]:
        return origin  # `_split` and `_slice` set the range
    return replace(origin, raw=shape == operand.shape)


def _uniform(call: Call, shape: Shape) -> frozenset[int]:
    operands = call.operands
    if call.name == "expand" and operands:
        old = (1,) * (len(shape) - len(operands[0].shape)) + operands[0].shape
        grown = {i for i, size in enumerate(shape) if old[i] == 1 and size != 1}
        return frozenset(grown) | _aligned(operands[0], len(shape))
    if (call.pointwise or call.name in _KEEPS) and operands:
        kept = [_aligned(operand, len(shape)) | _ones(operand.shape, len(shape)) for operand in operands]
        return frozenset.intersection(*kept)
    if call.name == "cat" and operands:
        return frozenset.intersection(*[_aligned(operand, len(shape)) for operand in operands]) - {_axis(call, 1, len(shape))}
    if call.name == "slice" and operands:
        return _aligned(operands[0], len(shape))
    return frozenset()


def _aligned(operand: Operand, rank: int) -> frozenset[int]:
    shift = rank - len(operand.shape)
    return frozenset(i + shift for i in operand.layout.uniform) if isinstance(operand.layout, Whole) else frozenset()


def _ones(shape: Shape, rank: int) -> frozenset[int]:
    shift = rank - len(shape)
    return frozenset(range(shift)) | {i + shift for i, size in enumerate(shape) if size == 1}


def _axis(call: Call, position: int, rank: int, default: int = 0) -> int:
    found = call.arguments[position] if len(call.arguments) > position else default
    return int(found) % max(rank, 1)


def _first(call: Call) -> tuple[Any, Shape]:
    """The layout and shape of the first operand; the others must be whole constants."""
    first, *rest = call.operands
    for operand in rest:
        if not (isinstance(operand.layout, Whole) and operand.layout.constant):
            raise call.conflict(f"{call.name} mixes shards with other tensors")
    if isinstance(first.layout, Whole):
        raise call.conflict(f"{call.name} reads whole values by sharded ones")
    return first.layout, first.shape


def _pointwise(call: Call) -> Sequence[Layout]:
    if any(isinstance(operand.layout, Partial) for operand in call.operands):
        return _linear_in_partials(call)
    rank = len(call.results[0])
    placed = {
        (operand.layout.dimension + rank - len(operand.shape), operand.layout.segments)
        for operand in call.operands
        if isinstance(operand.layout, Sharded)
    }
    if len(placed) > 1:
        raise call.conflict(f"{call.name} joins tensors that are sharded differently")
    ((dimension, segments),) = placed
    for operand in call.operands:
        if isinstance(operand.layout, Whole):
            _meets(call, operand, dimension, rank)
    return [Sharded(dimension, segments, call.sources) for _ in call.results]


def _meets(call: Call, operand: Operand, dimension: int, rank: int) -> None:
    """Check a whole tensor that is joined with shards of `dimension`: it must not vary along it."""
    assert isinstance(operand.layout, Whole)
    if dimension not in _ones(operand.shape, rank) | _aligned(operand, rank):
        reason = f"{call.name} joins shards with a tensor that is whole along the sharded dimension"
        origin, size = operand.layout.origin, operand.shape[dimension + len(operand.shape) - rank]
        table = origin.module if isinstance(origin, TableOrigin) and origin.width == size else None
        raise Conflict(reason, call.sources, wants=None if table is None else (pattern(table), "features"))
    call.join(operand.layout, call.sources)


def _linear_in_partials(call: Call) -> Sequence[Layout]:
    partial = [isinstance(operand.layout, Partial) for operand in call.operands]
    scaled = sum(partial) == 1 and (call.name == "mul" or (call.name in ("mul_", "div", "div_") and partial[0]))
    if scaled:
        for operand in call.operands:
            if isinstance(operand.layout, Whole):
                call.join(operand.layout, call.sources)
            elif isinstance(operand.layout, Sharded):
                raise call.conflict("summands meet shards")
        return [Partial(call.sources)]
    zeros = [isinstance(operand.layout, Whole) and operand.layout.zero for operand in call.operands]
    if call.name in ("add", "add_", "sub") and all(a or b for a, b in zip(partial, zeros, strict=True)) and len(partial) == 2:
        return [Partial(call.sources)]
    if call.name in ("clone", "neg") or (call.name in ("mul", "div") and all(partial) and len(partial) == 1):
        return [Partial(call.sources)]
    raise call.conflict(f"{call.name} needs the sum of the ranks' results")


def _keep(call: Call) -> Sequence[Layout]:
    layout, _ = _first(call)
    if isinstance(layout, Sharded) and any(layout.dimension >= len(shape) for shape in call.results):
        raise call.conflict(f"{call.name} drops the sharded dimension")
    return [layout for _ in call.results]


def _view(call: Call) -> Sequence[Layout]:
    layout, old = _first(call)
    return [layout if isinstance(layout, Partial) else viewed(layout, old, call.results[0], call.degree)]


def _expand(call: Call) -> Sequence[Layout]:
    layout, old = _first(call)
    return [layout if isinstance(layout, Partial) else replace(layout, dimension=layout.dimension + len(call.results[0]) - len(old))]


def _permuted(order: Callable[[Call, int], Sequence[int]]) -> Rule:
    def rule(call: Call) -> Sequence[Layout]:
        layout, old = _first(call)
        places = [i % len(old) for i in order(call, len(old))]
        return [layout if isinstance(layout, Partial) else replace(layout, dimension=places.index(layout.dimension))]

    return rule


def _transposed(call: Call, rank: int) -> list[int]:
    one, other = (call.arguments[1] % rank, call.arguments[2] % rank) if call.name.startswith("transpose") else (0, rank - 1)
    order = list(range(rank))
    order[one], order[other] = order[other], order[one]
    return order


def _slice(call: Call) -> Sequence[Layout]:
    layout, shape = _first(call)
    if isinstance(layout, Partial):
        return [layout]
    at = _axis(call, 1, len(shape))
    if at != layout.dimension:
        return [layout]
    start, stop, step = [*call.arguments[2:5], None, None, None][:3]
    bounds = slice(start, stop, step).indices(shape[at])
    return [sliced(layout, shape[at], *bounds[:2], call.degree, bounds[2])]


def _split(call: Call) -> Sequence[Layout]:
    layout, shape = _first(call)
    at = _axis(call, 2, len(shape))
    if isinstance(layout, Partial) or at != layout.dimension:
        return [layout for _ in call.results]
    ends = [0, *itertools.accumulate(result[at] for result in call.results)]
    try:
        return [sliced(layout, shape[at], start, stop, call.degree) for start, stop in itertools.pairwise(ends)]
    except Conflict as conflict:
        conflict.blocks = tuple(result[at] for result in call.results)
        raise


def _select(call: Call) -> Sequence[Layout]:
    layout, shape = _first(call)
    at = _axis(call, 1, len(shape))
    if isinstance(layout, Partial):
        return [layout for _ in call.results]
    if at == layout.dimension:
        raise call.conflict("one feature of the sharded dimension is picked")
    return [replace(layout, dimension=layout.dimension - (at < layout.dimension)) for _ in call.results]


def _unbind(call: Call) -> Sequence[Layout]:
    return _select(replace(call, arguments=(call.arguments[0], call.arguments[1] if len(call.arguments) > 1 else 0)))


def _cat(call: Call) -> Sequence[Layout]:
    rank = len(call.results[0])
    shards = {(o.layout.dimension, o.layout.segments) for o in call.operands if isinstance(o.layout, Sharded)}
    if any(isinstance(operand.layout, Partial) for operand in call.operands):
        raise call.conflict("cat of summands")
    if len(shards) > 1:
        raise call.conflict("cat joins tensors that are sharded differently")
    ((dimension, segments),) = shards
    at = _axis(call, 1, rank)
    if call.name == "cat" and at == dimension:
        raise call.conflict("cat along the sharded dimension")
    for operand in call.operands:
        if isinstance(operand.layout, Whole):
            if dimension not in operand.layout.uniform:
                raise call.conflict("cat joins shards with a whole tensor")
            call.join(operand.layout, call.sources)
    return [Sharded(dimension + (call.name == "stack" and at <= dimension), segments, call.sources)]


def _matmul(call: Call) -> Sequence[Layout]:
    added, (left, right) = call.operands[:-2], call.operands[-2:]
    found = _product(call, left, right)
    for operand in added:
        if isinstance(found, Partial):
            raise call.conflict(f"{call.name} adds to summands")
        if isinstance(operand.layout, Whole):
            _meets(call, operand, found.dimension, len(call.results[0]))
        elif not (isinstance(operand.layout, Sharded) and operand.layout.dimension == found.dimension):
            raise call.conflict(f"{call.name} joins tensors that are sharded differently")
    return [found]


def _product(call: Call, left: Operand, right: Operand) -> Sharded | Partial:
    rank, a, b = len(left.shape), left.layout, right.layout
    if isinstance(a, Sharded) and isinstance(b, Sharded):
        if a.segments != b.segments:
            raise call.conflict(f"{call.name} joins tensors that are sharded differently")
        if rank == 3 and a.dimension == b.dimension == 0:
            return Sharded(0, a.segments, call.sources)
        if a.dimension == rank - 1 and b.dimension == rank - 2:
            return Partial(call.sources)
        raise call.conflict(f"{call.name} joins tensors that are sharded along dimensions that do not match")
    if isinstance(a, Sharded) and isinstance(b, Whole):
        shard, whole, free = a, b, rank - 2
    elif isinstance(a, Whole) and isinstance(b, Sharded):
        shard, whole, free = b, a, rank - 1
    else:
        raise call.conflict(f"{call.name} needs the sum of the ranks' results")
    if shard.dimension != free:
        raise call.conflict(f"{call.name} joins shards with a whole tensor")
    call.join(whole, call.sources)
    return Sharded(free, shard.segments, call.sources)


def _reduction(call: Call) -> Sequence[Layout]:
    layout, shape = _first(call)
    rank = len(shape)
    if isinstance(layout, Partial):
        if call.name in ("sum", "mean"):
            return [layout]
        raise call.conflict(f"{call.name} needs the sum of the ranks' results")
    named = call.arguments[_DIMENSION_AT.get(call.name, 1)] if len(call.arguments) > _DIMENSION_AT.get(call.name, 1) else None
    if named is None or isinstance(named, bool | float) or (isinstance(named, Sequence) and not named):
        raise call.conflict(f"{call.name} over the sharded dimension")
    over = {int(i) % rank for i in (named if isinstance(named, Sequence) else [named])}
    if layout.dimension in over:
        raise call.conflict(f"{call.name} runs over the sharded dimension")
    found: list[Layout] = []
    for result in call.results:
        dropped = sum(i < layout.dimension for i in over) if len(result) < rank else 0
        found.append(replace(layout, dimension=layout.dimension - dropped))
    return found


_DIMENSION_AT = {"topk": 2, "linalg_vector_norm": 2, "norm": 2}


def _normalised(call: Call) -> Sequence[Layout]:
    first, *rest = call.operands
    if not isinstance(first.layout, Sharded) or first.layout.dimension >= len(first.shape) - len(call.arguments[1]):
        raise call.conflict(f"{call.name} runs over the sharded dimension")
    for operand in rest:
        if not isinstance(operand.layout, Whole):
            raise call.conflict(f"{call.name} with sharded weights")
        call.join(operand.layout, call.sources)
    return [first.layout for _ in call.results]


def _indexed(call: Call) -> Sequence[Layout]:
    layout, shape = _first(call)
    indices = call.arguments[1]
    used = [i for i, found in enumerate(indices) if found is not None]
    if isinstance(layout, Partial):
        return [layout]
    if layout.dimension in used or used != list(range(used[0], used[-1] + 1)):
        raise call.conflict("the sharded dimension is indexed")
    grown = len(call.results[0]) - (len(shape) - len(used))
    shift = grown - len(used) if layout.dimension > used[-1] else 0
    return [replace(layout, dimension=layout.dimension + shift)]


def _like(call: Call) -> Sequence[Layout]:
    (operand,) = call.operands
    if call.results[0] == operand.shape and isinstance(operand.layout, Sharded) and call.name.endswith("_like"):
        return [operand.layout]
    return [Whole(constant=True, uniform=frozenset(range(len(call.results[0]))), zero=_FACTORIES[call.name])]


def _index_add(call: Call) -> Sequence[Layout]:
    onto, dimension, index, values = call.arguments[:4]
    plain = isinstance(index.layout, Whole) and isinstance(values.layout, Partial)
    if plain and (isinstance(onto.layout, Partial) or getattr(onto.layout, "zero", False)):
        return [Partial(call.sources)]
    raise call.conflict(f"{call.name} along dimension {dimension} joins shards")


def _attention(call: Call) -> Sequence[Layout]:
    operands = call.operands[:3]
    placed = {(o.layout.dimension, o.layout.segments) if isinstance(o.layout, Sharded) else None for o in operands}
    if len(placed) != 1 or None in placed:
        raise call.conflict("attention joins heads that are sharded with heads that are whole")
    ((dimension, segments),) = placed  # type: ignore[misc]
    if dimension > 1:
        raise call.conflict("attention over a sharded head dimension")
    for operand in call.operands[3:]:
        if not isinstance(operand.layout, Whole):
            raise call.conflict("attention with a sharded mask")
        _meets(call, operand, dimension, len(operands[0].shape))
    return [Sharded(dimension, segments, call.sources) if len(shape) > dimension else CONSTANT for shape in call.results]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_KEEPS, _keep),
    **dict.fromkeys(_VIEWS, _view),
    **dict.fromkeys(_FACTORIES, _like),
    **dict.fromkeys(("transpose", "t", "transpose_"), _permuted(_transposed)),
    **dict.fromkeys(("split", "split_with_sizes", "unsafe_split"), _split),
    **dict.fromkeys(("cat", "stack"), _cat),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), _matmul),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "var", "_softmax", "_log_softmax", "cumsum", "topk", "sort"), _reduction),
    **dict.fromkeys(("logsumexp", "linalg_vector_norm", "norm", "argmax", "max", "min", "std", "prod"), _reduction),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), _normalised),
    **dict.fromkeys(("index_add", "index_add_"), _index_add),
    "copy_": _pointwise,
    "view_as_complex": _keep,
    "view_as_real": _keep,
    "_conj": _keep,
    "permute": _permuted(lambda call, _: call.arguments[1]),
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "unbind": _unbind,
    "index": _indexed,
}
_ON_UNEQUAL = (_keep, _view, _split, _slice)
"""Rules that look at the sizes of blocks, or leave the sharded dimension as it is."""
__all__ = ["CONSTANT", "TRAINED", "Call", "Operand", "results_of"]
