"""What an attempt was planned to be, beside what it was: layout, memory, time of a step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuneyard.cli.output import rounded_text
from tuneyard.tracking.formats import percent, rate

Row = dict[str, Any]
PLAN_COLUMNS = ("zero", "micro_batch", "planned_memory_gb", "memory_gb", "steps", "planned_step_s", "step_s", "tokens_per_s", "mfu")


def plan_figures(attempt: Mapping[str, Any]) -> Row:
    """The columns of PLAN_COLUMNS; None where the attempt has not reported a figure, or is of a version before it did."""
    plan, summary = attempt.get("plan") or {}, attempt.get("summary") or {}
    terms = (plan.get("speed") or {}).get("terms") or {}
    return {
        **{name: plan.get(name) for name in ("zero", "micro_batch")},
        "planned_memory_gb": (plan.get("memory") or {}).get("total_gb"),
        "planned_step_s": sum(terms.values()) or None,
        **{name: summary.get(name) for name in ("memory_gb", "steps", "step_s", "tokens_per_s", "mfu")},
    }


def plan_lines(attempt: Mapping[str, Any]) -> Iterator[str]:
    """`train 1: ZeRO 2, micro batch 4 x 8; memory 21.3 GB planned (weights 13.5, …), 20.9 GB measured; …`, if it is known."""
    plan, found = attempt.get("plan") or {}, plan_figures(attempt)
    parts = [
        ", ".join(_layout(plan)),
        _beside("memory", "GB", found["planned_memory_gb"], found["memory_gb"], ", ".join(_memory(plan))),
        _beside("step", "s", found["planned_step_s"], found["step_s"]),
        f"{rate(found['tokens_per_s'])} tokens/s" if found["tokens_per_s"] is not None else "",
        f"MFU {percent(found['mfu'])}" if found["mfu"] is not None else "",
        f"{found['steps']:,} steps" if found["steps"] else "",
    ]
    if any(parts):
        yield f"{attempt['task']} {attempt['number']}: {'; '.join(filter(None, parts))}"


def _layout(plan: Mapping[str, Any]) -> Iterator[str]:
    if plan.get("zero") is not None:
        yield f"ZeRO {plan['zero']}"
    for name in ("tensor", "pipeline", "context"):
        if (plan.get(f"{name}_parallel") or 1) > 1:
            yield f"{name} parallel {plan[f'{name}_parallel']}"
    for name in ("optimizer", "parameters"):
        if (plan.get(f"offload_{name}") or "none") != "none":
            yield f"{name} on {plan[f'offload_{name}']}"
    if plan.get("recompute"):
        yield "recompute"
    if plan.get("micro_batch"):
        yield f"micro batch {plan['micro_batch']} x {plan.get('grad_accum', 1)}"


def _memory(plan: Mapping[str, Any]) -> Iterator[str]:
    """Terms of the planned memory, the largest first, without those below 1 % of it."""
    terms = {name.removesuffix("_gb"): value for name, value in (plan.get("memory") or {}).items() if name != "total_gb"}
    total = sum(terms.values())
    for name, value in sorted(terms.items(), key=lambda term: -term[1]):
        if value > total / 100:
            yield f"{name.replace('_', ' ')} {rounded_text(value)}"


def _beside(title: str, unit: str, planned: float | None, measured: float | None, terms: str = "") -> str:
    told = [f"{rounded_text(planned)} {unit} planned{f' ({terms})' if terms else ''}"] if planned is not None else []
    told += [f"{rounded_text(measured)} {unit} measured"] if measured is not None else []
    return f"{title} {', '.join(told)}" if told else ""
