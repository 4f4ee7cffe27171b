"""Combinations of settings that cannot work, each with the reason and the nearest combination that works.

The rules are one table (`rules_table.RULES`), which also makes the page docs/reference/combinations.md. A rule sees one task at a time,
with known facts about its device and model. A setting at `auto` breaks no rule, so the planner can check each of its candidates in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api.jobspec import JobSpec
from tuneyard.api.loading_yaml import Path
from tuneyard.api.rules_case import CPU, Case, Device, Fix, Rule, of_kind
from tuneyard.api.rules_table import RULES
from tuneyard.api.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A rule that a job breaks, and the field: `path` starts at the top of the file."""

    rule: Rule = field(repr=False)
    path: Path
    device: Device | None
    nearest: tuple[Fix, ...]
    head_size: int | None = None

    @property
    def reason(self) -> str:
        facts = [f"on {self.device.sku}"] if self.device is not None and self.rule.example_device is not None else []
        facts += [f"head size {self.head_size}"] if self.rule.example_head_size is not None else []
        about = f" ({', '.join(facts)})" if facts else ""
        nearest = self.rule.remedy or show_fixes(self.nearest)
        return f"{self.rule.refused}{about} cannot work: {self.rule.why}; nearest that works: {nearest}"


def check_rules(
    job: JobSpec,
    devices: Mapping[str, Device] | None = None,
    *,
    local_sku: str | None = None,
    model_types: Mapping[str, str] | None = None,
    head_sizes: Mapping[str, int] | None = None,
) -> list[Violation]:
    """All rules that `job` breaks, in file order.

    `devices`: facts by SKU; without them only `cpu` is known. `local_sku`: the SKU of tasks that name none. `model_types`, `head_sizes`: by
    task name, the `model_type` of its model and the width of an attention head, if known. A SKU without facts breaks no rule here.
    """
    facts = {CPU.sku: CPU, **(devices or {})}
    types, sizes = model_types or {}, head_sizes or {}
    found: list[Violation] = []
    for index, task in enumerate(job.spec.tasks):
        skus = task.resources.sku or ([local_sku] if local_sku else [])
        broken: dict[str, Violation] = {}
        known: list[Device | None] = [facts[sku] for sku in skus if sku in facts]
        for device in known or [None]:
            for violation in check_task(task, device=device, model_type=types.get(task.name), head_size=sizes.get(task.name), index=index):
                broken.setdefault(violation.rule.id, violation)
        found += broken.values()
    return found


def check_task(
    task: Task, *, device: Device | None = None, model_type: str | None = None, head_size: int | None = None, index: int = 0
) -> list[Violation]:
    """All rules that one task breaks on one kind of device."""
    case = Case(task=task, device=device, model_type=model_type, head_size=head_size)
    return [
        Violation(
            rule=rule,
            path=("spec", "tasks", index, *rule.field_of(task.kind).split(".")),
            device=device,
            nearest=tuple({of_kind(name, task.kind): value for name, value in fix.items()} for fix in rule.nearest(case)),
            head_size=head_size,
        )
        for rule in RULES
        if rule.judges(task.kind) and rule.breaks(case)
    ]


def show_fixes(fixes: Sequence[Fix]) -> str:
    """`strategy.zero: 2, or method: {lora: {rank: 16}}`: fields without the kind of the task as prefix."""
    return ", or ".join(" with ".join(_show_setting(name, value) for name, value in fix.items()) for fix in fixes)


def _show_setting(name: str, value: Any) -> str:
    short = name.split(".", 1)[1] if name.startswith(("train.", "score.", "rank.")) else name
    return f"no {short}" if value is None else f"{short}: {flow_text(value)}"


def flow_text(value: Any) -> str:
    """A value in YAML's flow style: `true`, `{lora: {rank: 16}}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow_text(inner)}" for key, inner in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)
