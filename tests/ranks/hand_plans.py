"""Our plan and the hand-written plan of one transformers model: parameter by parameter, and each against one process."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.ranks.forks import Call, called
from tests.ranks.groups import group
from tests.ranks.sharded_models import difference_here, tiny_model

NOT_RUN = "not run"
LOGITS, GRADIENT = 1e-5, 1e-4
_ALONE = {"colwise_gather_output", "colwise_rep", "rowwise_split_input", "rowwise_rep"}
_WHOLE = {"", "replicated_with_grad_allreduce", "mla_kv_a_proj", "moe_tp_experts", "moe_identity_expert", "all_reduce"}


@dataclass
class Row:
    """One model: `kinds` counts parameters by kind of agreement, `differing` names modules, `ours` and `theirs` say how each plan ran."""

    model: str
    parameters: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)
    ours: str = ""
    theirs: str = ""
    error: str = ""


def compared_in_ranks(models: list[str], degree: int) -> list[Row]:
    """A row for each model, measured by one group of ranks; where the group ends, each model gets one of its own."""
    try:
        return called([Call(_rank, (models, degree), place) for place in group(degree, per_machine=degree)], timeout_s=300)[0]
    except RuntimeError as error:
        if len(models) == 1:
            return [Row(models[0], error=f"a rank ended: {str(error)[-200:]}")]
        return [row for model in models for row in compared_in_ranks([model], degree)]


def _rank(models: list[str], degree: int) -> list[Row]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rows = [compared(model, degree) for model in models]
    dist.destroy_process_group()
    return rows


def compared(name: str, degree: int, *, runs: bool = True) -> Row:
    """The row of one model; `runs`: both plans run too, on a rank of a group that exists."""
    from transformers.distributed.tensor_parallel import _get_parameter_plan, replace_layer_number_by_wildcard

    from tuneyard.parallel import explain_tensor_parallel
    from tuneyard.parallel.plan import NOT_REACHED

    row = Row(name)
    try:
        model = tiny_model(name, meta=True)
        theirs = dict(model.tp_plan)
        plan = explain_tensor_parallel(model, degree, styles_alone=True)
    except Exception as error:  # noqa: BLE001  the row says why there is no comparison
        row.error = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"
        return row
    ours, reasons = plan.styles, {placement.name: placement.why for placement in plan.placements}
    counts: Counter[str] = Counter()
    for full, weight in model.named_parameters():
        one, other = (_get_parameter_plan(full, styles) or "" for styles in (ours, theirs))
        if full.endswith("bias") and {one, other} <= {"rowwise", ""} | _ALONE:
            one = other = ""
        reached = reasons.get(replace_layer_number_by_wildcard(full).rpartition(".")[0]) != NOT_REACHED
        kind = _kind(one, other) if reached else "not reached"
        counts[kind] += weight.numel()
        if kind not in ("same", "not reached"):
            row.differing[_wildcard(full)] = f"{one or 'whole'} | {other or 'whole'}"
    row.parameters, row.kinds = sum(counts.values()), dict(counts)
    row.ours = row.theirs = NOT_RUN
    if not runs:
        return row
    row.ours = _ran(difference_here(name, None, ours, degree))
    row.theirs = _ran(difference_here(name, None, theirs, degree)) if theirs else "no plan"
    return row


def _kind(ours: str, theirs: str) -> str:
    if ours == theirs or (ours in _WHOLE and theirs in _WHOLE):
        return "same"
    if ours in _WHOLE:
        return "theirs alone"
    if theirs in _WHOLE:
        return "ours alone"
    return "both, otherwise"


def _wildcard(name: str) -> str:
    from transformers.distributed.tensor_parallel import replace_layer_number_by_wildcard

    return replace_layer_number_by_wildcard(name.removesuffix(".weight"))


def _ran(found: Any) -> str:
    if found.error:
        return f"fails: {found.error.splitlines()[0][:110]}"
    if found.logits <= LOGITS and found.gradient <= GRADIENT:
        return "equal"
    return f"wrong: logits {found.logits:.0e}, gradient {found.gradient:.0e} ({found.worst})"
