"""Carries layouts through a recording. Input: the decision for each linear. Output: every tensor's layout, or the first Conflict.

Column after row is a result, not an assumption: a linear that reads shards of its last dimension is sharded by its inputs (rowwise), one
that reads a whole tensor by its outputs (colwise). These are RedCoast's two rules (Tan et al. 2024), here consequences of a proof.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tuneyard.parallel.layout import (
    CONSTANT,
    TRAINED,
    Conflict,
    Layout,
    OutputOrigin,
    ParameterOrigin,
    Partial,
    Sharded,
    TableOrigin,
    Whole,
    in_runs,
    local_shape,
)
from tuneyard.parallel.modules import pattern
from tuneyard.parallel.operators import Call, Operand, results_of
from tuneyard.parallel.recording import Event, Recording, Ref
from tuneyard.parallel.trees import mapped


class Decision(StrEnum):
    """Possible layouts of a linear, in the order in which they are tried."""

    FREE = "free"
    """Columns if it reads whole tensors, rows if it reads shards."""
    PACKED = "packed"
    """Columns of a weight with several blocks, such as queries, keys and values, each cut separately."""
    APART = "apart"
    """Not paired with another linear: its own result is gathered, or it is replicated."""
    ROTARY = "rotary"
    """Replicated; the gradient of its last outputs is summed over the ranks (multi-head latent attention)."""
    FEATURES = "features"
    """A lookup whose features are cut: each rank has those of its heads (biases by position)."""


class Role(StrEnum):
    COLUMNS = "columns"
    ROWS = "rows"
    APART = "apart"
    FEATURES = "features"
    SHARED = "shared"
    """Whole weights on sharded heads: only their gradient has to be summed."""


@dataclass(frozen=True)
class ExpertLayout:
    """The cut of the three-dimensional weights of an experts module: name -> (dimension, segments)."""

    weights: Mapping[str, tuple[int, int]]


@dataclass
class Layouts:
    """Result of a propagation.

    `layouts`: per tensor. `roles`: per linear (pattern). `fed_by`: per linear, the linears whose shards it reads. `joined`: modules whose
    parameters meet shards, with the sources of the shards. `plain`: modules whose parameters meet whole tensors. `rotary`: see Decision.
    """

    layouts: dict[int, Layout] = field(default_factory=dict)
    roles: dict[str, set[Role]] = field(default_factory=lambda: defaultdict(set))
    fed_by: dict[str, frozenset[str]] = field(default_factory=dict)
    joined: dict[str, frozenset[str]] = field(default_factory=dict)
    plain: set[str] = field(default_factory=set)
    rotary: set[str] = field(default_factory=set)


def refuse_two_gradients(found: Layouts) -> None:
    """Raises Conflict for a parameter that meets shards in one place and whole tensors in another: no style supports both kinds of
    gradient.
    """
    for name, sources in found.joined.items():
        if name in found.plain:
            raise Conflict(f"{name} is used beside shards and beside whole tensors", sources)


class Propagation:
    """One pass over a recording under fixed decisions."""

    def __init__(
        self,
        recording: Recording,
        degree: int,
        decisions: Mapping[str, Decision],
        experts: Mapping[str, ExpertLayout],
        rotary_width: int | None,
        blocks: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self._recording, self._degree, self._decisions, self._experts = recording, degree, decisions, experts
        self._rotary_width = rotary_width
        self._packed = blocks or {}
        self.found = Layouts()
        self._aliases: dict[int, list[int]] = defaultdict(list)
        for number, storage in recording.storages.items():
            self._aliases[storage].append(number)
        self._before_experts: list[dict[int, Layout]] = []
        for number, name in recording.parameters.items():
            self.found.layouts[number] = self._parameter(name)

    def run(self) -> Layouts:
        """Raises Conflict at the first event that shards do not survive."""
        for event in self._recording.events:
            self.step(event)
        for number in self._recording.outputs:
            layout = self._layout(number)
            if not isinstance(layout, Whole):
                raise Conflict("its result is the model's output, which every rank needs whole", layout.sources)
        return self.found

    def step(self, event: Event) -> None:
        steps = {"op": self._op, "linear": self._linear, "embedding": self._embedding, "enter": self._enter, "exit": self._exit}
        {**steps, "guard": self._guard}[event.kind](event)

    def _guard(self, event: Event) -> None:
        for ref in (*event.read, *event.made):
            layout = self._layout(ref.number)
            if not isinstance(layout, Whole):
                raise Conflict("its shards pass through a function or hook whose backward pass cannot be seen", layout.sources)

    def _parameter(self, name: str) -> Layout:
        module, _, own = name.rpartition(".")
        cut = self._experts.get(pattern(module))
        if cut and own in cut.weights:
            return Sharded(*cut.weights[own], frozenset({pattern(module)}))
        return Whole(origin=ParameterOrigin(module))

    def _layout(self, number: int) -> Layout:
        return self.found.layouts.get(number, CONSTANT)

    def _set(self, number: int, layout: Layout) -> None:
        if isinstance(layout, Whole) and number not in self._recording.real:
            layout = replace(layout, constant=True, origin=None)
        if isinstance(layout, Sharded):
            size = self._recording.shapes[number][layout.dimension]
            if not layout.fits(size, self._degree):
                raise Conflict(f"{size} features in {layout.segments} runs are no multiple of {self._degree} ranks", layout.sources)
        self.found.layouts[number] = layout

    def _op(self, event: Event) -> None:
        shapes = self._recording.shapes
        arguments, keywords = mapped(self._operand, (event.arguments, event.keywords))
        made = event.made
        call = Call(
            name=event.function.overloadpacket.__name__,
            pointwise=_is_pointwise(event.function),
            arguments=(*arguments, *keywords.values()),
            results=tuple(shapes[ref.number] for ref in made),
            degree=self._degree,
            join=self._join,
        )
        layouts = results_of(call)
        mutates = event.function._schema.is_mutable
        for ref, layout in zip(made, layouts, strict=True):
            if mutates:
                self._overwrite(ref.number, layout)
            if isinstance(layout, Whole) and isinstance(layout.origin, OutputOrigin) and layout.origin.raw:
                layout = replace(layout, origin=self._cut_out(call, layout.origin, made.index(ref)))
            self._set(ref.number, layout)
        self._note_plain(call, layouts)

    def _operand(self, leaf: Any) -> Any:
        return Operand(self._layout(leaf.number), self._recording.shapes[leaf.number]) if isinstance(leaf, Ref) else leaf

    def _overwrite(self, number: int, layout: Layout) -> None:
        """The layout after an operation in place, also of other tensors with the same storage."""
        before = self._layout(number)
        others = [other for other in self._aliases[self._recording.storages[number]] if other != number and other in self.found.layouts]
        if isinstance(layout, Whole) and isinstance(before, Whole):
            for other in others:
                if isinstance(held := self._layout(other), Whole):
                    self.found.layouts[other] = Whole(constant=held.constant and layout.constant)
        elif isinstance(layout, Sharded) and isinstance(before, Whole) and self._fills(number, layout, before, others):
            self.found.layouts.update(dict.fromkeys(others, layout))
        elif before != layout and others and not (isinstance(before, Sharded) and isinstance(layout, Sharded)):
            sources = frozenset().union(*[held.sources for held in (before, layout) if not isinstance(held, Whole)])
            raise Conflict("shards are written into a view of another tensor", sources)

    def _fills(self, number: int, layout: Sharded, before: Whole, others: list[int]) -> bool:
        """Whether shards are written into a blank tensor whose views all keep the sharded dimension."""
        shape, at = self._recording.shapes[number], layout.dimension
        blank = [before, *[self._layout(other) for other in others]]
        alike = [self._recording.shapes[other] for other in others]
        return all(isinstance(held, Whole) and held.constant and at in held.uniform for held in blank) and all(
            len(other) == len(shape) and other[at] == shape[at] for other in alike
        )

    def _cut_out(self, call: Call, origin: OutputOrigin, index: int) -> OutputOrigin:
        """The features of a linear's raw output that a split or slice holds."""
        shape, last = call.operands[0].shape, len(call.operands[0].shape) - 1
        if call.results[index] == shape or not shape:
            return origin
        if call.name in ("split", "split_with_sizes"):
            start = sum(result[last] for result in call.results[:index])
        elif call.name == "slice" and len(call.arguments) > 1 and call.arguments[1] % len(shape) == last:
            start = slice(*[*call.arguments[2:4], None, None][:2]).indices(shape[last])[0]
        else:
            return replace(origin, raw=False)
        return replace(origin, start=origin.start + start, stop=origin.start + start + call.results[index][last], raw=False)

    def _note_plain(self, call: Call, layouts: Any) -> None:
        """Note parameters, and outputs of a linear, that are used beside whole tensors: their gradient is whole there."""
        if any(isinstance(operand.layout, Sharded | Partial) for operand in call.operands):
            return
        kept = {layout.origin for layout in layouts if isinstance(layout, Whole)}
        for operand in call.operands:
            origin = operand.layout.origin if isinstance(operand.layout, Whole) else None
            if isinstance(origin, ParameterOrigin) and origin not in kept:
                self.found.plain.add(pattern(origin.module))
            elif isinstance(origin, OutputOrigin) and origin.start and not any(isinstance(other, OutputOrigin) for other in kept):
                self.found.plain.add(f"{pattern(origin.module)}[{origin.start}:]")

    def _join(self, whole: Whole, sources: frozenset[str]) -> None:
        """A whole tensor meets shards. Constants may; the gradient of a parameter is summed; other gradients would be lost."""
        if whole.constant:
            return
        if isinstance(whole.origin, ParameterOrigin) and whole.origin.module:
            name = pattern(whole.origin.module)
            self.found.joined[name] = self.found.joined.get(name, frozenset()) | sources
            return
        origin = whole.origin
        if isinstance(origin, OutputOrigin) and origin.start > 0 and origin.stop == origin.width and not origin.raw:
            name = pattern(origin.module)
            if origin.stop - origin.start == self._rotary_width:
                if self._decisions.get(name) is not Decision.ROTARY:
                    raise Conflict("its last outputs are shared by all heads", sources, wants=(name, Decision.ROTARY))
                self.found.rotary.add(name)
                self.found.joined[f"{name}[{origin.start}:]"] = sources
                return
        raise Conflict("shards meet a whole tensor, whose gradient each rank would only know in part", sources)

    def _linear(self, event: Event) -> None:
        name, (read, *_) = pattern(event.module), event.read
        layout, shape = self._layout(read.number), self._recording.shapes[read.number]
        (made,) = event.made
        out = self._recording.shapes[made.number]
        decision = self._decisions.get(name, Decision.APART)
        if isinstance(layout, Partial):
            raise Conflict("a linear reads summands", layout.sources)
        if isinstance(layout, Sharded):
            self._reads_shards(name, decision, layout, len(shape), made.number)
            return
        self._note_read(layout)
        if decision in (Decision.FREE, Decision.PACKED):
            self.found.roles[name].add(Role.COLUMNS)
            blocks = self._packed.get(name, ()) if decision is Decision.PACKED else (out[-1],)
            if len(set(blocks)) == 1:  # as many blocks in each layer, though layers may differ in width
                blocks = (out[-1] // len(blocks),) * len(blocks)
            layout = in_runs(Sharded(len(out) - 1, 1, frozenset({name})), blocks)
            if sum(blocks) != out[-1] or not layout.fits(out[-1], self._degree):
                raise Conflict(f"its {out[-1]} outputs in {len(blocks)} blocks are no multiple of {self._degree} ranks", layout.sources)
            self._set(made.number, layout)
            return
        self.found.roles[name].add(Role.APART)
        self._set(made.number, Whole(origin=OutputOrigin(event.module, 0, out[-1], out[-1])))

    def _reads_shards(self, name: str, decision: Decision, layout: Sharded, rank: int, made: int) -> None:
        if layout.dimension != rank - 1:
            self.found.roles[name].add(Role.SHARED)
            self.found.joined[name] = self.found.joined.get(name, frozenset()) | layout.sources
            self._set(made, layout)
            return
        if layout.segments != 1:
            raise Conflict("a linear reads shards whose order its rows do not have", layout.sources)
        if decision is not Decision.FREE:
            raise Conflict(f"{name} reads its result whole", layout.sources)
        self.found.roles[name].add(Role.ROWS)
        self.found.fed_by[name] = self.found.fed_by.get(name, frozenset()) | layout.sources
        self._set(made, TRAINED)

    def _note_read(self, layout: Whole) -> None:
        if isinstance(layout.origin, OutputOrigin) and layout.origin.start:
            self.found.plain.add(f"{pattern(layout.origin.module)}[{layout.origin.start}:]")

    def _embedding(self, event: Event) -> None:
        for read in event.read:
            if not isinstance(layout := self._layout(read.number), Whole):
                raise Conflict("an embedding reads sharded indices", layout.sources)
        name = pattern(event.module)
        is_cut = self._decisions.get(name) is Decision.FEATURES
        self.found.roles[name].add(Role.FEATURES if is_cut else Role.APART)
        for made in event.made:
            last = len(shape := self._recording.shapes[made.number]) - 1
            whole = Whole(origin=TableOrigin(event.module, shape[last]))
            self._set(made.number, Sharded(last, 1, frozenset({name})) if is_cut else whole)

    def _enter(self, event: Event) -> None:
        """Inside sharded experts, their inputs count as constant: the engine sums the gradients at their boundary."""
        changed: dict[int, Layout] = {}
        if pattern(event.module) in self._experts:
            summed = [leaf for place, leaf in enumerate(event.arguments) if place in (0, 2) and isinstance(leaf, Ref)]
            for ref in summed:
                layout = self._layout(ref.number)
                if not isinstance(layout, Whole):
                    raise Conflict("experts read shards", layout.sources)
                changed[ref.number] = layout
                self.found.layouts[ref.number] = replace(layout, constant=True, origin=None)
        self._before_experts.append(changed)

    def _exit(self, event: Event) -> None:
        self.found.layouts.update(self._before_experts.pop())
        if pattern(event.module) not in self._experts:
            return
        for ref in event.made:
            layout = self._layout(ref.number)
            if not isinstance(layout, Partial):
                raise Conflict("the experts' results are no sum over the ranks", frozenset({pattern(event.module)}))
            self._set(ref.number, TRAINED)


def _is_pointwise(function: Any) -> bool:
    import torch

    return torch.Tag.pointwise in function.tags


def expected_shape(recording: Recording, found: Layouts, number: int, degree: int) -> tuple[int, ...]:
    """The shape of a tensor on each rank."""
    return local_shape(recording.shapes[number], found.layouts.get(number, CONSTANT), degree)
