"""`tensor_parallel_plan`: the styles under which a model computes the same numbers as on one device, each with its reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.parallel.ends import ends_of
from tuneyard.parallel.linears import features_of
from tuneyard.parallel.modules import hooked, is_embedding, is_linear, is_torch_linear, pattern
from tuneyard.parallel.propagation import Decision, Role
from tuneyard.parallel.recording import Recording, Ref, of_length, record
from tuneyard.parallel.rules import CutRule, broken, refuse_broken
from tuneyard.parallel.search import Proof, changed_in_place, mixed_names, proven, read_directly
from tuneyard.parallel.sequence import SequencePlan, sequence_plan
from tuneyard.parallel.shares import packed_style
from tuneyard.parallel.watcher import WithoutDropout

ROWS, TOKENS = 3, 16
"""Size of the recorded batch. Only the set of observed reshapes depends on it."""
_EXPERT_STYLES = {(1, 1): "colwise", (2, 1): "rowwise", (1, 2): "packed_colwise", (2, 2): "packed_rowwise"}
REPLICATED = "replicated"
NOT_REACHED = "the recorded pass never called it"


@dataclass(frozen=True)
class Placement:
    """One row of the explanation: a module or parameter (as a pattern), its style, the reason, and its parameters over all layers."""

    name: str
    style: str
    why: str
    parameters: int

    @property
    def is_cut(self) -> bool:
        """Whether each rank holds a part of it."""
        return self.style not in (REPLICATED, *_WHOLE)


@dataclass(frozen=True)
class TensorParallelPlan:
    """`styles` is for the engine; `placements` explains every module with weights, sharded or not."""

    degree: int
    styles: dict[str, str]
    placements: tuple[Placement, ...]
    ends: frozenset[str] = frozenset()
    """Linears whose results the model returns, changed at most value by value: an engine may keep these results in shards."""
    sequence: SequencePlan | None = None
    """The places with slices of the tokens, if sequence parallelism was asked for."""
    divisions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Module (as pattern) -> its whole numbers, such as the number of heads, of which each rank has a share."""

    @property
    def sharded_share(self) -> float:
        """The share of the model's parameters that are cut, with 1/degree on each rank."""
        total = sum(row.parameters for row in self.placements)
        return sum(row.parameters for row in self.placements if row.is_cut) / max(total, 1)


_LOOKUP = {"embedding", "mul", "_to_copy"}
"""A lookup and its scaling: the sum over the ranks' shares of the vocabulary may be taken after these operations."""
_WHOLE = ("replicated_with_grad_allreduce", "mla_kv_a_proj")


def tensor_parallel_plan(model: nn.Module, degree: int, *, inputs: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Name pattern of a module or parameter -> style, as in transformers' `base_model_tp_plan`; everything else is replicated.

    It holds for any engine that applies these styles, and so has no pairs for which a rank needs its share of a module's numbers too:
    `explain_tensor_parallel` has these. The model may be on the meta device; no weight is read. `inputs` are the keyword arguments of one
    forward pass; token ids by default.

    Raises:
        BadInput: a degree below 2 or one that shards nothing, a model without linear modules, a forward pass that cannot be recorded.
    """
    return explain_tensor_parallel(model, degree, inputs=inputs, styles_alone=True).styles


def explain_tensor_parallel(
    model: nn.Module,
    degree: int,
    *,
    inputs: Mapping[str, Any] | None = None,
    sequence: bool = False,
    styles_alone: bool = False,
    wishes: Mapping[str, CutRule] = MappingProxyType({}),
) -> TensorParallelPlan:
    """The plan for `shard_model`, with a reason for each module. With `sequence`, tokens are sliced between blocks too. With
    `styles_alone`, only what the styles of transformers say is cut, and modules keep their numbers: for another engine. `wishes`: cuts
    that the plan must have (`rules.wishes_of`).

    Raises BadInput like `tensor_parallel_plan`, if tokens cannot be sliced, and for a rule that cannot hold.
    """
    if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
        raise BadInput(f"a tensor-parallel degree of {degree!r} is no positive whole number", "give a whole number of ranks, such as 2")
    if not any(is_linear(module) and (is_torch_linear(module) or not styles_alone) for module in model.modules()):
        raise BadInput(f"{type(model).__name__} has no linear modules (torch.nn.Linear) to shard", "train it with zero: 3 instead")
    given = dict(inputs) if inputs is not None else token_inputs(model)
    recording = record(model, given, {})
    if recording.error is not None:
        raise BadInput(
            f"the forward pass of {type(model).__name__} cannot be recorded on the meta device: {said_by(recording.error)}",
            "pass inputs={...}, the keyword arguments of one forward pass" if inputs is None else "set tensorParallel to 1 and zero to 3",
        ) from recording.error
    if degree == 1:
        return TensorParallelPlan(1, {}, tuple(_replicated(model, {}, "one rank holds everything")))
    recordings = [recording, *_other_passes(model, given, recording)]
    alone = {name: f"the rule {rule} keeps it whole" for name, rule in wishes.items() if rule.cut == "none"}
    while True:  # ends: each round takes a module out of its pair
        proof = proven(model, recordings, degree, alone, styles_alone=styles_alone)
        plan = _Writer(model, recordings, proof, degree, wishes=wishes).plan()
        paired = {name: f"the rule {rule} takes it out of its pair" for name, rule in broken(wishes, plan.styles).items()}
        if not paired.keys() - alone.keys():
            break
        alone |= paired
    refuse_broken(wishes, plan.styles, {row.name: row.why for row in plan.placements})
    if not plan.styles:
        cause = f"{degree} ranks shard nothing of {type(model).__name__}: {_common_reason(plan)}"
        raise BadInput(cause, _advice(model, recordings, degree))
    if sequence:
        slices = sequence_plan(model, given, recording, proof.layouts)
        return _Writer(model, recordings, proof, degree, slices, wishes).plan()
    return plan


def _other_passes(model: nn.Module, inputs: Mapping[str, Any], first: Recording) -> list[Recording]:
    """Further passes, for branches of the code: training mode on shorter rows, longer rows, and other answers about values.

    A pass that fails is left out: it is an error on one device too.
    """
    tokens = max((value.shape[1] for value in inputs.values() if isinstance(value, torch.Tensor) and value.ndim > 1), default=1)
    with WithoutDropout():
        found = [record(model, of_length(inputs, tokens // 2 | 1), {}, training=True)]
        if found[0].error is not None:
            found = [record(model, inputs, {}, training=True)]
        found.append(record(model, of_length(inputs, 3 * tokens), {}))
        if first.asked:
            found.append(record(model, inputs, {}, answer=True))
    return [recording for recording in found if recording.error is None]


def token_inputs(model: nn.Module) -> dict[str, Any]:
    """Token ids for a transformers model, including decoder ids for an encoder-decoder."""
    ids = torch.zeros((ROWS, TOKENS), dtype=torch.long, device="meta")
    config = getattr(model, "config", None)
    if config is None:
        cause = f"{type(model).__name__} is no transformers model: its inputs are unknown"
        raise BadInput(cause, "pass inputs={...}, the keyword arguments of one forward pass")
    both = {"decoder_input_ids": ids.clone()} if getattr(config, "is_encoder_decoder", False) else {}
    return {"input_ids": ids, "use_cache": False} | both if hasattr(config, "use_cache") else {"input_ids": ids} | both


class _Writer:
    """Turns a proof into styles and reasons."""

    def __init__(
        self,
        model: nn.Module,
        recordings: Sequence[Recording],
        proof: Proof,
        degree: int,
        sequence: SequencePlan | None = None,
        wishes: Mapping[str, CutRule] = MappingProxyType({}),
    ) -> None:
        self._wishes = {name: rule.cut for name, rule in wishes.items()}
        recording = recordings[0]
        self._model, self._recording, self._proof, self._degree, self._sequence = model, recording, proof, degree, sequence
        self._ends = frozenset.intersection(*map(ends_of, recordings))
        self._mixed = mixed_names(model)
        self._styles: dict[str, str] = {}
        self._why: dict[str, str] = {}
        self._divides = False
        self._all: dict[str, list[Any]] = defaultdict(list)
        for name, module in model.named_modules():
            self._all[pattern(name)].append(module)
        self._modules: dict[str, nn.Module] = {name: first for name, (first, *_) in self._all.items()}
        self._direct = set().union(*map(read_directly, recordings))
        self._written = hooked(model) | (set().union(*map(changed_in_place, recordings)) if proof.styles_alone else set())
        self._called = [pattern(event.module) for event in recording.events if event.kind == "linear"]
        self._width = Counter(features_of(module)[0] for module in model.modules() if is_linear(module)).most_common(1)[0][0]
        self._users = self._weight_users()
        self._inside = {id(module): [recording.inside[name]] for name, module in model.named_modules() if name in recording.inside}

    def plan(self) -> TensorParallelPlan:
        self._paired()
        self._experts()
        self._joined()
        self._divides = bool(self._styles)
        self._apart()
        self._embeddings()
        rows = [self._row(name) for name in self._named()]
        rows += _replicated(self._model, self._styles, "", self._why | self._proof.reasons)
        return TensorParallelPlan(self._degree, dict(self._styles), tuple(rows), self._ends, self._sequence, self._proof.divisions)

    def _give(self, name: str, style: str, why: str) -> None:
        self._styles[name], self._why[name] = style, why

    def _paired(self) -> None:
        found, decisions = self._proof.layouts, self._proof.decisions
        fed = {source for name in found.fed_by for source in found.fed_by[name]}
        for name, roles in found.roles.items():
            if Role.COLUMNS in roles:
                blocks = self._proof.blocks[name] if decisions.get(name) is Decision.PACKED else ()
                rest = "its shards reach a rowwise linear" if name in fed else "its shards end in this module"
                why = f"rule 1: it reads whole tensors, and {rest}" + (f"; {len(blocks)} blocks, each cut" if blocks else "")
                self._give(name, packed_style(blocks) if blocks else "colwise", why)
            elif Role.ROWS in roles:
                sources = sorted(found.fed_by[name])
                rule = "rule 2: opposite to" if len(sources) > 2 else "rule 1: after the columns of"
                self._give(name, "rowwise", f"{rule} {', '.join(sources)}{self._divided_for(name)}")
            elif Role.FEATURES in roles:
                self._give(name, "embedding_colwise", "each rank holds the features that its heads read")

    def _divided_for(self, name: str) -> str:
        """The numbers that the pair of a linear takes a share of."""
        around = [each for each in self._proof.divisions if name.startswith(f"{each}.")]
        numbers = [f"{each}.{own}" for each in around for own in sorted(self._proof.divisions[each])]
        return f"; each rank has 1/{self._degree} of {', '.join(numbers)}" if numbers else ""

    def _experts(self) -> None:
        for name, layout in self._proof.experts.items():
            for own, cut in layout.weights.items():
                self._give(f"{name}.{own}", _EXPERT_STYLES[cut], "rule 1 inside each expert: columns, then rows")
            self._give(name, "moe_tp_experts", "each rank computes a share of every expert; the results are added")

    def _joined(self) -> None:
        for name in self._proof.layouts.joined:
            if not name.endswith(":]"):
                self._give(name, "replicated_with_grad_allreduce", "whole weights on sharded heads: each rank has a part of the gradient")
        for name in sorted(self._sequence.summed) if self._sequence else ():
            self._give(name, "replicated_with_grad_allreduce", "whole weights on slices of the tokens: the gradient is summed")
        for name in self._proof.layouts.rotary:
            self._give(name, "mla_kv_a_proj", "latent attention: its position part is shared by all heads, so its gradient is summed")

    def _apart(self) -> None:
        """Linears without a partner. Large ones are cut alone, along the dimension that moves less data."""
        previous = ""
        for name in dict.fromkeys(self._called):
            if name in self._styles or name in self._mixed or self._proof.decisions.get(name) is Decision.ROTARY:
                continue
            reason = self._proof.reasons.get(name, "it has no partner to be paired with")
            styles = {self._apart_style(name, each, previous) for each in self._all[name]}
            style = styles.pop() if len(styles) == 1 else "modules of its name differ in size"
            if style.endswith(("output", "input")):
                self._give(name, style, f"{reason}; cut alone, its {'result is gathered' if style.endswith('output') else 'input is cut'}")
                previous = style
            else:
                self._why[name] = f"{reason}; {style}"

    def _apart_style(self, name: str, module: Any, previous: str) -> str:
        """A style, or the reason for none.

        Per token and step, gathered columns move out + 2 in numbers, rows 2 out + in (a ring all-reduce is two gathers).
        """
        wish = self._wishes.get(name)
        if wish == "none":
            return "a rule keeps it whole"
        users = self._users[id(module.weight)]
        bias = module._parameters.get("bias")
        biases = self._users[id(bias)] if bias is not None else {name}
        inputs, outputs = features_of(module)
        if name in self._written or (self._proof.styles_alone and not is_torch_linear(module)):
            return "replicated"
        if name in self._direct or len(biases) > 1 or (len(users) > 1 and not self._cut_as_vocabulary(users)):
            return "its parameters are used elsewhere too"
        if wish is None and inputs * outputs * 4 < self._width**2:
            return "too small to cut alone"
        columns, rows = self._cuts(outputs), self._cuts(inputs) and len(users) == 1
        prefers_rows = outputs < inputs or (outputs == inputs and previous == "colwise_gather_output")
        if wish is not None:
            prefers_rows, rows, columns = wish == "rows", rows and wish == "rows", columns and wish == "columns"
        if rows and (prefers_rows or not columns):
            return "rowwise_split_input"
        if columns:
            return "colwise_gather_output"
        return f"{self._degree} ranks divide neither its {outputs} outputs nor its {inputs} inputs"

    def _cuts(self, size: int) -> bool:
        """Whether a dimension may be cut alone: also into unequal shares, if the degree divides something of the model."""
        return size % self._degree == 0 or (self._divides and size >= self._degree)

    def _cut_as_vocabulary(self, users: set[str]) -> bool:
        """Whether all users of a tied weight can hold the same rows of it."""
        return all(
            name not in self._direct and name not in self._written and (is_linear(module) or self._is_cuttable_table(module))
            for name in users
            for module in [self._modules[name]]
        )

    def _is_cuttable_table(self, module: nn.Module) -> bool:
        if not is_embedding(module) or any(done - _LOOKUP for done in self._inside.get(id(module), ())):
            return False
        return self._cuts(module.num_embeddings) and module.max_norm is None and not (module.sparse or module.scale_grad_by_freq)

    def _embeddings(self) -> None:
        tokens = _token_tensors(self._recording)
        for event in self._recording.events:
            name = pattern(event.module)
            if event.kind != "embedding" or name in self._styles or name in self._why:
                continue
            module = self._modules[name]
            others = self._users[id(module.weight)] - {name}
            heads = [other for other in others if is_linear(self._modules[other])]
            if self._wishes.get(name) == "none":
                self._why[name] = "a rule keeps it whole"
            elif not self._is_cuttable_table(module):
                self._why[name] = self._table_reason(module)
            elif heads and not all(self._styles.get(head) == "colwise_gather_output" for head in heads):
                self._why[name] = f"its weight is also that of {', '.join(sorted(heads))}, which is not cut by rows"
            elif not heads and not (event.read and event.read[0].number in tokens):
                self._why[name] = "a table that token ids do not read is small"
            elif name in self._written:
                self._why[name] = "its result is changed in place, which DTensor refuses"
            elif name in self._direct:
                self._why[name] = "its weight is used elsewhere too"
            else:
                for table in self._users[id(module.weight)] - set(heads):
                    self._give(table, "embedding_rowwise", "each rank holds a share of the vocabulary; lookups are added")

    def _table_reason(self, module: Any) -> str:
        if not self._cuts(module.num_embeddings):
            return f"{self._degree} ranks do not divide its {module.num_embeddings} rows"
        return "it does more than a lookup and its scaling"

    def _weight_users(self) -> dict[int, set[str]]:
        users: dict[int, set[str]] = {}
        for name, module in self._model.named_modules():
            for weight in module.parameters(recurse=False):
                users.setdefault(id(weight), set()).add(pattern(name))
        return users

    def _named(self) -> list[str]:
        return list(self._styles)

    def _row(self, name: str) -> Placement:
        return Placement(name, self._styles[name], self._why[name], _parameters(self._model, name, self._styles))


def _parameters(model: nn.Module, name: str, styles: Mapping[str, str]) -> int:
    count = 0
    for full, weight in model.named_parameters():
        key = pattern(full)
        if key == name or (key.rpartition(".")[0] == name and key not in styles):
            count += weight.numel()
    return count


def _replicated(model: nn.Module, styles: Mapping[str, str], default: str, reasons: Mapping[str, str] | None = None) -> list[Placement]:
    """A row for each module with weights and without a style."""
    counts: Counter[str] = Counter()
    for full, weight in model.named_parameters():
        key = pattern(full)
        owner = key.rpartition(".")[0]
        if key not in styles and owner not in styles:
            counts[owner] += weight.numel()
    modules = {pattern(name): module for name, module in model.named_modules()}
    found = []
    for owner, count in counts.items():
        why = (reasons or {}).get(owner) or default or _unproven(modules[owner])
        found.append(Placement(owner, REPLICATED, why, count))
    return found


def _unproven(module: nn.Module) -> str:
    """The reason why a module without a style is replicated, if no conflict named it."""
    if isinstance(module, nn.Linear):
        return NOT_REACHED if is_linear(module) else "its forward is not that of a plain linear"
    if isinstance(module, nn.Embedding):
        return "it is no plain lookup, or the recorded pass never called it"
    if all(weight.ndim < 2 for weight in module.parameters(recurse=False)):
        return "vectors: whole on every rank"
    return f"{type(module).__name__} is neither a linear, an embedding nor experts: no style shards its weights"


def _token_tensors(recording: Recording) -> set[int]:
    """The model's integer inputs, and views of them."""
    found = set(recording.tokens)
    for event in recording.events:
        if event.kind == "op" and event.read and event.read[0].number in found and event.function.is_view:
            found.update(ref.number for ref in event.made if isinstance(ref, Ref))
    return found


def _advice(model: nn.Module, recordings: Sequence[Recording], degree: int) -> str:
    """Advice with the largest smaller degree that shards something."""
    for smaller in (8, 4, 3, 2):
        if smaller < degree and _Writer(model, recordings, proven(model, recordings, smaller), smaller).plan().styles:
            return f"a degree of {smaller} works; or set tensorParallel to 1 and zero to 3"
    return "set tensorParallel to 1 and zero to 3"


def _common_reason(plan: TensorParallelPlan) -> str:
    largest = max(plan.placements, key=lambda row: row.parameters)
    return f"{largest.name}: {largest.why}"
