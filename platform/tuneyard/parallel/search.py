"""Searches decisions that can be proven. At first every linear is sharded; decisions that a Conflict names are revoked."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from torch import nn

from tuneyard.parallel.divisions import Divisions, divided, division_of
from tuneyard.parallel.layout import Conflict
from tuneyard.parallel.linears import features_of
from tuneyard.parallel.modules import experts_of, hooked, is_embedding, is_linear, is_torch_linear, pattern
from tuneyard.parallel.propagation import Decision, ExpertLayout, Layouts, Propagation, Role, refuse_two_gradients
from tuneyard.parallel.recording import Event, Recording
from tuneyard.parallel.replay import Departure, replayed

_CUTS = ((1, 1), (2, 1), (1, 2), (2, 2))
_MOST_WEIGHTS = 4
_MOST_BLOCKS = 16
"""A fused weight with more blocks is not packed."""


@dataclass(frozen=True)
class Proof:
    """Decisions that hold, the layouts under them, and the reasons for revoked decisions (pattern -> reason)."""

    decisions: dict[str, Decision]
    experts: dict[str, ExpertLayout]
    layouts: Layouts
    reasons: dict[str, str]
    blocks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Packed linears -> the sizes of their blocks of outputs."""
    styles_alone: bool = False
    divisions: Divisions = field(default_factory=dict)
    """Whole numbers of modules of which each rank has a share."""


def proven(
    model: nn.Module,
    recordings: Sequence[Recording],
    degree: int,
    alone: Mapping[str, str] = MappingProxyType({}),
    *,
    styles_alone: bool = False,
) -> Proof:
    """The largest sharding for which propagation and replay agree, in every recording of the model. Layouts are those of the first
    recording. `alone`: modules (as patterns) that must not be paired, with the reasons. `styles_alone`: only what the styles of
    transformers say is cut, and modules keep their numbers.

    The search ends because every round revokes at least one decision, or adds to the divisions that hold under the decisions.
    """
    divisions: Divisions = {}
    reasons: dict[str, str] = {}
    decisions = {pattern(name): Decision.FREE for name, module in model.named_modules() if is_linear(module)}
    decisions |= dict.fromkeys(() if styles_alone else _tables(model, recordings), Decision.APART)
    linears = {name: reason for name, reason in alone.items() if name in decisions}
    for name, reason in {**_unpaired(model, recordings, styles_alone=styles_alone), **linears}.items():
        decisions[name] = Decision.APART
        reasons[name] = reason
    reasons |= alone
    blocks = _Blocks(model, most=2 if styles_alone else _MOST_BLOCKS)
    experts = _experts(model, recordings, degree, reasons, styles_alone=styles_alone)
    rotary = _rotary_width(model)
    elsewhere = set().union(*map(read_elsewhere, recordings))
    while True:
        try:
            every = [Propagation(recording, degree, decisions, experts, rotary, blocks).run() for recording in recordings]
            found = _together(every)
            _one_role_each(found)
            _read_at_home(found, elsewhere)
            refuse_two_gradients(found)
            if experts or any(roles & {Role.COLUMNS, Role.ROWS} for roles in found.roles.values()):
                passes = [(each, replace(layouts, roles=found.roles)) for each, layouts in zip(recordings, every, strict=True)]
                divisions = _followed(model, passes, experts, degree, divides=not styles_alone)
        except Conflict as conflict:
            _take_back(conflict, decisions, experts, reasons, blocks)
        else:
            return Proof(decisions, experts, found, reasons, dict(blocks), styles_alone, divisions)


Passes = Sequence[tuple[Recording, Layouts]]


def _followed(model: nn.Module, passes: Passes, experts: Mapping[str, ExpertLayout], degree: int, *, divides: bool) -> Divisions:
    """The divisions under which a rank does what the whole passes do; most models need none. Raises Departure if there are none."""
    divisions: Divisions = {}
    last = 0
    for at, (whole, found) in enumerate(passes):
        while (departure := _departure_from(model, whole, found, experts, degree, divisions)) is not None:
            more = division_of(model, whole, found, experts, degree, divisions, departure) if divides else None
            if more is None:
                raise departure
            divisions, last = more, at
    for whole, found in passes[:last]:  # these were followed under fewer divisions
        if (departure := _departure_from(model, whole, found, experts, degree, divisions)) is not None:
            raise departure
    return divisions


def _departure_from(
    model: nn.Module, whole: Recording, found: Layouts, experts: Mapping[str, ExpertLayout], degree: int, divisions: Divisions
) -> Departure | None:
    try:
        with divided(model, divisions, degree):
            replayed(model, whole, found, experts, degree)
    except Departure as departure:
        return departure
    return None


def _together(every: Sequence[Layouts]) -> Layouts:
    """The findings of all recordings about modules, with the tensors of the first."""
    found = replace(every[0], roles=defaultdict(set), fed_by={}, joined={}, plain=set(), rotary=set())
    for other in every:
        for name, roles in other.roles.items():
            found.roles[name] |= roles
        for mine, theirs in ((found.fed_by, other.fed_by), (found.joined, other.joined)):
            for name, sources in theirs.items():
                mine[name] = mine.get(name, frozenset()) | sources
        found.plain |= other.plain
        found.rotary |= other.rotary
    return found


class _Blocks(dict[str, tuple[int, ...]]):
    """The blocks of packed linears, which conflicts tell bit by bit."""

    def __init__(self, model: nn.Module, most: int) -> None:
        super().__init__()
        self._most = most
        self._widths: dict[str, set[int]] = defaultdict(set)
        for name, module in model.named_modules():
            if is_linear(module):
                self._widths[pattern(name)].add(features_of(module)[1])

    def refined(self, name: str, found: tuple[int, ...]) -> bool:
        """Whether the outputs of a linear have more blocks than known so far, since an operation takes them apart into `found`."""
        if self._widths.get(name) != {(width := sum(found))}:
            width, found = next(iter(self._widths.get(name, {0}))), ()
        if not found and name not in self and width % 2 == 0:
            found = (width // 2,) * 2  # the dimension that is taken apart is another one: it may come from two halves
        ends = {*itertools.accumulate(found), *itertools.accumulate(self.get(name, ()))}
        blocks = tuple(other - one for one, other in itertools.pairwise(sorted({0, *ends})))
        if len(blocks) < 2 or len(blocks) > self._most or blocks == self.get(name):
            return False
        if self._most == 2 and len(set(blocks)) > 1:
            return False
        self[name] = blocks
        return True


def _take_back(
    conflict: Conflict,
    decisions: dict[str, Decision],
    experts: dict[str, ExpertLayout],
    reasons: dict[str, str],
    blocks: _Blocks,
) -> None:
    before = dict(decisions), dict(experts), dict(blocks)
    if conflict.wants:
        name, decision = conflict.wants
        wanted = Decision(decision)
        if decisions.get(name) is Decision.APART and not (wanted is Decision.FEATURES and name in reasons):
            decisions[name] = wanted
            return
    for name in conflict.sources:
        if name in experts:
            del experts[name]
            reasons[name] = conflict.reason
        elif conflict.blocks and decisions[name] in (Decision.FREE, Decision.PACKED) and blocks.refined(name, conflict.blocks):
            decisions[name] = Decision.PACKED
            reasons[name] = conflict.reason
        else:
            decisions[name] = Decision.APART
            reasons.setdefault(name, conflict.reason)
    if (decisions, experts, blocks) == before:
        # No decision is left to revoke: shard nothing that is paired.
        experts.clear()
        for name in decisions:
            decisions[name] = Decision.APART
            reasons.setdefault(name, conflict.reason)
        if (decisions, experts, blocks) == before:
            raise RuntimeError(f"nothing is sharded, and still: {conflict.reason}")


def _one_role_each(found: Layouts) -> None:
    for name, roles in found.roles.items():
        if len(roles) > 1:
            sources = frozenset({name}) | found.fed_by.get(name, frozenset()) | found.joined.get(name, frozenset())
            raise Conflict("it reads whole tensors in one place and shards in another", sources)


def _read_at_home(found: Layouts, elsewhere: set[str]) -> None:
    """Raises Conflict for a whole weight that meets shards outside its module's forward: its gradient is summed only there."""
    for name, sources in found.joined.items():
        if name in elsewhere:
            raise Conflict(f"the weights of {name} meet shards outside its own forward", sources)


def read_elsewhere(recording: Recording) -> set[str]:
    """Modules (as patterns) whose parameters an operation of another module reads."""
    found = set()
    for event in recording.events:
        for ref in event.read if event.kind == "op" else ():
            owner = recording.parameters[ref.number].rpartition(".")[0] if ref.number in recording.parameters else event.module
            if owner != event.module:
                found.add(pattern(owner))
    return found


def _unpaired(model: nn.Module, recordings: Sequence[Recording], *, styles_alone: bool) -> dict[str, str]:
    """Linears that can never be paired, with the reason: their weight has another user, their result is changed in place, they have hooks,
    modules of other kinds have the same name, or no style of transformers is for their class.
    """
    found = {name: f"its weight is also that of {', '.join(sorted(others))}" for name, others in shared_weights(model).items()}
    for recording in recordings:
        found |= dict.fromkeys(read_directly(recording), "its weight is read outside its own forward")
        if styles_alone:
            found |= dict.fromkeys(changed_in_place(recording), "its result is changed in place, which DTensor refuses")
    if styles_alone:
        others = [name for name, module in model.named_modules() if is_linear(module) and not is_torch_linear(module)]
        found |= dict.fromkeys(map(pattern, others), "styles of transformers are for torch's own linears")
    found |= dict.fromkeys(mixed_names(model), MIXED)
    found |= dict.fromkeys(hooked(model), "hooks are on it or on its weights, and see whole tensors only")
    return {pattern(name): found[pattern(name)] for name, module in model.named_modules() if is_linear(module) and pattern(name) in found}


def _tables(model: nn.Module, recordings: Sequence[Recording]) -> set[str]:
    """Lookups (as patterns) whose weight no other code reads, so that their features can be cut."""
    taken = set().union(shared_weights(model), mixed_names(model), hooked(model), *map(read_directly, recordings))
    taken |= set().union(*map(changed_in_place, recordings))
    plain = {name for name, module in model.named_modules() if is_embedding(module) and type(module).forward is nn.Embedding.forward}
    return {pattern(name) for name in plain if model.get_submodule(name).max_norm is None} - taken


MIXED = "modules of other kinds have its name, as in nn.Sequential: give them names of their own"


def mixed_names(model: nn.Module) -> set[str]:
    """Patterns that match linears and modules of another kind."""
    kinds: dict[str, set[Any]] = {}
    for name, module in model.named_modules():
        kinds.setdefault(pattern(name), set()).add("linear" if is_linear(module) else type(module))
    return {name for name, each in kinds.items() if len(each) > 1 and "linear" in each}


def shared_weights(model: nn.Module) -> dict[str, set[str]]:
    """Modules (as patterns) that share a parameter with modules of other patterns, and these other patterns."""
    users: dict[int, set[str]] = {}
    for name, module in model.named_modules():
        for weight in module.parameters(recurse=False):
            users.setdefault(id(weight), set()).add(pattern(name))
    found: dict[str, set[str]] = {}
    for names in users.values():
        for name in names if len(names) > 1 else ():
            found.setdefault(name, set()).update(names - {name})
    return found


def changed_in_place(recording: Recording) -> set[str]:
    """Linears, embeddings and experts (as patterns) into whose result a later operation writes."""
    made: dict[int, str] = {}
    found: set[str] = set()
    for event in recording.events:
        if event.kind != "op":
            made.update({recording.storages[ref.number]: pattern(event.module) for ref in event.made})
        elif event.function._schema.is_mutable and event.read and recording.storages[event.read[0].number] in made:
            found.add(made[recording.storages[event.read[0].number]])
    return found


def read_directly(recording: Recording) -> set[str]:
    """Modules (as patterns) whose parameters, or their sizes, are read outside the module's own call."""
    numbers = {ref.number for event in recording.events if event.kind == "op" for ref in event.read}
    names = {recording.parameters[number] for number in numbers if number in recording.parameters} | recording.sized
    return {pattern(name.rpartition(".")[0]) for name in names}


def _rotary_width(model: nn.Module) -> int | None:
    """The width of the position part that transformers' `mla_kv_a_proj` style would split off."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return getattr(text, "qk_rope_head_dim", None)


def _experts(
    model: nn.Module, recordings: Sequence[Recording], degree: int, reasons: dict[str, str], *, styles_alone: bool
) -> dict[str, ExpertLayout]:
    """For each experts module, a cut of its weights that makes its result a sum over the ranks; tested on its first call."""
    found: dict[str, ExpertLayout] = {}
    recording, written = recordings[0], set().union(*map(changed_in_place, recordings)) if styles_alone else set()
    for name, weights in experts_of(model).items():
        key = pattern(name)
        if key in found or key in reasons:
            continue
        if key in written:
            reasons[key] = "its result is changed in place, which DTensor refuses"
            continue
        if key in hooked(model):
            reasons[key] = "hooks are on it or on its weights, and see whole tensors only"
            continue
        events = _call_of(recording, name)
        layout = _cut(recording, events, key, sorted(weights), degree) if events and len(weights) <= _MOST_WEIGHTS else None
        if layout is None:
            reasons[key] = "no cut of its weights makes its result a sum over the ranks"
        else:
            found[key] = layout
    return found


def _cut(recording: Recording, events: list[Event], key: str, weights: list[str], degree: int) -> ExpertLayout | None:
    for cuts in sorted(itertools.product(_CUTS, repeat=len(weights)), key=lambda cuts: sum(cut[1] for cut in cuts)):
        layout = ExpertLayout(dict(zip(weights, cuts, strict=True)))
        try:
            propagation = Propagation(recording, degree, {}, {key: layout}, None)
            for event in events:
                propagation.step(event)
        except Conflict:
            continue
        return layout
    return None


def _call_of(recording: Recording, name: str) -> list[Event]:
    """The events of the first call of a module, from enter to exit."""
    kinds = [(event.kind, event.module) for event in recording.events]
    if ("enter", name) not in kinds or ("exit", name) not in kinds:
        return []
    return recording.events[kinds.index(("enter", name)) : kinds.index(("exit", name)) + 1]


__all__ = ["MIXED", "Proof", "changed_in_place", "mixed_names", "proven", "read_directly", "shared_weights"]
