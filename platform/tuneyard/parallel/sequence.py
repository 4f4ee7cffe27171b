"""Sequence parallelism, proven: between the blocks of a model's layers each rank has a slice of the tokens (Korthikanti et al. 2022).

From the first layer's input to the last layer's result, the residual stream is cut along its tokens. A block, such as attention or a
feed-forward, gathers its inputs, works on whole rows as before, and slices its results. Operations between blocks (norms, additions) must
work on each token separately: slices are carried through the recording by the rules that prove shards.

Recordings with other numbers of tokens, in training mode, must do the same outside of blocks: no operation there may depend on the number
of tokens, and none may drop values at random, because each rank would drop values of other tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel.layout import TRAINED, Conflict, Layout, Sharded, Whole
from tuneyard.parallel.modules import hooked, pattern
from tuneyard.parallel.propagation import Layouts, Propagation, refuse_two_gradients
from tuneyard.parallel.recording import Call, Event, Recording, Ref, of_length, record
from tuneyard.parallel.replay import same_numbers
from tuneyard.parallel.search import read_elsewhere
from tuneyard.parallel.trees import leaves

_TOKENS = 1
"""The dimension of tokens: [rows, tokens, features]."""
_SLICED = Sharded(_TOKENS, 1, frozenset({"the slices of the tokens"}))
_LENGTHS = (9, 1, 48)
"""Tokens of the other recordings: an odd number, one (a slice may be one token long), and many."""
_RANKS = 2
"""The proof holds for any number of ranks, since slices may be unequal."""

Place = int | str
"""A positional argument's index, or a keyword."""


@dataclass(frozen=True)
class Block:
    """The arguments of a module that are slices, and the results that it slices: None is the result itself, a number its index in a
    tuple.
    """

    given: tuple[Place, ...]
    results: tuple[int | None, ...]


@dataclass(frozen=True)
class SequencePlan:
    """The places at which activations are slices of the tokens.

    `first`: the layer that slices its argument `place`; `last`: the layer that gathers its result `result`; `blocks`: by name; `summed`:
    modules (as patterns) whose weights meet slices, so that their gradient is a sum over the ranks.
    """

    first: str
    place: Place
    last: str
    result: int | None
    blocks: Mapping[str, Block]
    summed: frozenset[str]


def sequence_plan(model: nn.Module, inputs: Mapping[str, Any], recording: Recording, found: Layouts) -> SequencePlan:
    """The plan of a recorded model. `found`: the layouts of its tensors under tensor parallelism.

    Raises:
        BadInput: layers that form no chain, or whose modules exchange shards; operations between blocks that mix tokens, drop values at
            random or depend on the number of tokens.
    """
    try:
        layers = _layers(model, recording)
        others = [record(model, of_length(inputs, length), {}, training=True) for length in _LENGTHS]
        if others[0].error is not None:
            raise _refused(f"its training pass cannot be recorded on the meta device ({others[0].error})")
        return _Slices(model, recording, [other for other in others if other.error is None], found, layers).plan()
    except Conflict as conflict:
        cause = f"the tokens of {type(model).__name__} cannot be sliced between its blocks: {conflict.reason}"
        raise BadInput(cause, "set strategy.sequenceParallel to false") from conflict


def _refused(reason: str) -> Conflict:
    return Conflict(reason, frozenset())


def _layers(model: nn.Module, recording: Recording) -> list[str]:
    """The layers: the largest list of modules that forms a chain. In a chain, the result of each module is an argument of the next."""
    lists = [
        (sum(weight.numel() for weight in module.parameters()), [f"{name}.{i}" if name else f"{i}" for i in range(len(module))])
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
    ]
    for _, names in sorted(lists, key=lambda found: -found[0]):
        calls = [recording.calls.get(name, []) for name in names]
        if names and all(len(call) == 1 for call in calls) and _is_chain([call for (call,) in calls]):
            return names
    raise _refused("its layers form no chain, in which the result of each is an argument of the next")


def _is_chain(calls: list[Call]) -> bool:
    pairs = pairwise(calls)
    return all(one.stop <= other.start and _numbers(one.results) & _numbers((other.arguments, other.keywords)) for one, other in pairs)


def _numbers(tree: Any) -> set[int]:
    return {leaf.number for leaf in leaves(tree) if isinstance(leaf, Ref)}


class _Slices(Propagation):
    """Carries slices of the tokens from the first layer to the last."""

    def __init__(self, model: nn.Module, recording: Recording, others: list[Recording], found: Layouts, layers: list[str]) -> None:
        super().__init__(recording, _RANKS, {}, {}, None)
        self._others, self._under_tensor, self._layer_names = others, found, layers
        self._hooked = hooked(model)
        self._calls = {name: recording.calls[name][0] for name in layers}
        self._blocks = dict(_blocks_of(model, recording, layers))
        self._start, self._stop = self._calls[layers[0]].start, self._calls[layers[-1]].stop
        self._sliced: set[int] = set()

    def plan(self) -> SequencePlan:
        first, last = self._calls[self._layer_names[0]], self._calls[self._layer_names[-1]]
        for name in (*self._layer_names, *self._blocks):
            if pattern(name) in self._hooked:
                raise _refused(f"hooks are on {name}, and see whole rows only")
        place, stream = self._stream(first, self._layer_names)
        by_start = {call.start: (name, call) for name, call in self._blocks.items()}
        events = self._recording.events
        for event in events[: self._start]:
            self.step(event)
        self._set(stream, _SLICED)
        blocks: dict[str, Block] = {}
        position = self._start
        while position < self._stop:
            if position in by_start:
                name, call = by_start[position]
                blocks[name] = self._through_block(name, call)
                position = call.stop
            else:
                self.step(events[position])
                position += 1
        result = self._result(last)
        self._refuse_leaks(last, result)
        self._refuse_other_readers(stream, first)
        self.found.layouts.update({number: TRAINED for place, number in _results(last) if place == result})
        for event in events[self._stop :]:
            self.step(event)
        refuse_two_gradients(self.found)
        self._at_home()
        for other in self._others:
            self._depends_on_tokens_alone(list(self._outside(self._recording)), list(self._outside(other)))
        summed = frozenset(self.found.joined)
        return SequencePlan(self._layer_names[0], place, self._layer_names[-1], result, blocks, summed)

    def _stream(self, first: Call, layers: list[str]) -> tuple[Place, int]:
        """The argument of the first layer that carries the stream: the second layer gets it as the first layer's result."""
        following = self._calls[layers[1]] if len(layers) > 1 else None
        for place, given in _places(first):
            if isinstance(given, Ref) and given.number in self._recording.real and self._is_stream(given.number):
                successor = dict(_places(following)).get(place) if following else None
                if following is None or (isinstance(successor, Ref) and successor.number in _numbers(first.results)):
                    return place, given.number
        raise _refused("its layers are given no tensor of [rows, tokens, features] that they hand on")

    def _is_stream(self, number: int) -> bool:
        shape = self._recording.shapes[number]
        rows_and_tokens = self._recording.shapes[self._recording.tokens[0]] if self._recording.tokens else ()
        return len(shape) == len(rows_and_tokens) + 1 == 3 and shape[:2] == rows_and_tokens

    def _through_block(self, name: str, call: Call) -> Block:
        """A block. Inside, tensors are whole; results that are read outside afterwards are sliced."""
        sliced_here = [(place, leaf.number) for place, leaf in _places(call) if isinstance(leaf, Ref) and self._is_sliced(leaf.number)]
        given = tuple(place for place, _ in sliced_here)
        entries = {number: self._layout(number) for _, number in sliced_here}
        if any(self._is_sliced(number) for number in _numbers((call.arguments, call.keywords)) - set(entries)):
            raise _refused(f"{name} is given slices inside a list")
        self.found.layouts.update(dict.fromkeys(entries, TRAINED))
        stores = {self._recording.storages[number] for number in entries}
        read_before = {number for number, layout in self.found.layouts.items() if isinstance(layout, Sharded)}
        joined = dict(self.found.joined)
        for event in self._recording.events[call.start : call.stop]:
            if _writes(event, self._recording) & stores:
                raise _refused(f"{name} changes its input in place")
            if read_before & {ref.number for ref in event.read}:
                raise _refused(f"{name} reads the stream past its arguments")
            self.step(event)
        if self.found.joined != joined:
            raise _refused(f"{name} mixes slices with whole rows")
        self.found.layouts.update(entries)
        wanted = self._read_outside(call) - set(entries)
        results = tuple(place for place, number in _results(call) if number in wanted | set(entries))
        sliced = {number for place, number in _results(call) if place in results}
        if wanted - sliced:
            raise _refused(f"a tensor made inside {name} is read outside of it, and is not among its results")
        for number in sliced - set(entries):
            if not self._is_stream(number):
                raise _refused(f"a result of {name} that is read between blocks has no tokens to slice")
            if not isinstance(self._under_tensor.layouts.get(number, TRAINED), Whole):
                raise _refused(f"the result of {name} is in shards, which the next module reads")
            self._set(number, _SLICED)
        return Block(given, results)

    def _read_outside(self, call: Call) -> set[int]:
        """Tensors made in a call that operations outside of all blocks read before the region ends, or that continue as the stream."""
        made = {ref.number for event in self._recording.events[call.start : call.stop] for ref in event.made}
        after = self._recording.events[call.stop : self._stop]
        inside = [range(other.start, other.stop) for other in self._blocks.values()]
        read: set[int] = set()
        for offset, event in enumerate(after, start=call.stop):
            if not any(offset in span for span in inside):
                read |= {ref.number for ref in event.read}
        for layer in self._calls.values():
            read |= {number for _, number in _results(layer) if self._is_stream(number)}
        return made & read

    def _is_sliced(self, number: int) -> bool:
        return isinstance(self._layout(number), Sharded)

    def _layout(self, number: int) -> Layout:
        return self.found.layouts.get(number, TRAINED if number in self._recording.real else Whole(constant=True))

    def _result(self, last: Call) -> int | None:
        found = [place for place, number in _results(last) if self._is_sliced(number)]
        if len(found) != 1:
            raise _refused("its last layer returns no slices, or several")
        return found[0]

    def _refuse_leaks(self, last: Call, result: int | None) -> None:
        """Slices may leave the layers only as the last layer's result."""
        kept = {number for place, number in _results(last) if place == result}
        sliced = {number for number, layout in self.found.layouts.items() if isinstance(layout, Sharded)} - kept
        later = {ref.number for event in self._recording.events[self._stop :] for ref in event.read}
        if sliced & (later | set(self._recording.outputs)):
            raise _refused("a value computed between blocks is read after the layers")

    def _refuse_other_readers(self, stream: int, first: Call) -> None:
        """The first layer's input stays whole for all other readers."""
        later = {ref.number for event in self._recording.events[first.stop : self._stop] for ref in event.read}
        given = set().union(*(_numbers((call.arguments, call.keywords)) for call in self._calls.values() if call is not first))
        if stream in later | given:
            raise _refused("a later layer reads the first layer's input")

    def _at_home(self) -> None:
        elsewhere = read_elsewhere(self._recording)
        for name in self.found.joined:
            if name in elsewhere:
                raise _refused(f"the weights of {name} meet slices outside its own forward")

    def _outside(self, recording: Recording) -> Iterator[Event]:
        """The operations of the region outside of all blocks that compute with real numbers."""
        start, stop = recording.calls[self._layer_names[0]][0].start, recording.calls[self._layer_names[-1]][0].stop
        inside = [range(call.start, call.stop) for name in self._blocks for call in recording.calls.get(name, [])]
        for position in range(start, stop):
            event = recording.events[position]
            real = any(ref.number in recording.real for ref in event.made)
            hidden = event.kind == "op" and _name(event) == "detach"  # autograd's own
            if event.kind == "op" and real and not hidden and not any(position in span for span in inside):
                yield event

    def _depends_on_tokens_alone(self, whole: list[Event], shorter: list[Event]) -> None:
        for one, other in zip(whole, shorter, strict=False):
            if one.function != other.function or one.module != other.module:
                raise _refused(
                    f"{other.module} does {_name(other)} between blocks in training, or for some lengths: its dropout has to be 0"
                )
            if not same_numbers(one, other):
                raise _refused(f"{one.module} computes with the number of tokens")
        if len(whole) != len(shorter):
            raise _refused("the number of its operations between blocks depends on the number of tokens, or on training")


def _blocks_of(model: nn.Module, recording: Recording, layers: list[str]) -> Iterator[tuple[str, Call]]:
    """The outermost called modules with matrices inside the layers."""
    for layer in layers:
        below: list[str] = []
        for name, module in model.get_submodule(layer).named_modules():
            full = f"{layer}.{name}"
            if not name or any(full.startswith(f"{outer}.") for outer in below):
                continue
            calls = recording.calls.get(full, [])
            if calls and any(weight.ndim > 1 for weight in module.parameters()):
                if len(calls) > 1:
                    raise _refused(f"{full} is called {len(calls)} times")
                below.append(full)
                yield full, calls[0]


def _places(call: Call) -> list[tuple[Place, Any]]:
    return [*enumerate(call.arguments), *call.keywords.items()]


def _results(call: Call) -> list[tuple[int | None, int]]:
    """The tensors that a call returns, by place: the result itself, or an element of a tuple."""
    if isinstance(call.results, Ref):
        return [(None, call.results.number)]
    if isinstance(call.results, list | tuple):
        return [(place, leaf.number) for place, leaf in enumerate(call.results) if isinstance(leaf, Ref)]
    return []


def _writes(event: Event, recording: Recording) -> set[int]:
    mutates = event.kind == "op" and event.function._schema.is_mutable and event.read
    return {recording.storages[event.read[0].number]} if mutates else set()


def _name(event: Event) -> str:
    return str(event.function.overloadpacket.__name__)
