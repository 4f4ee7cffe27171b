"""A next version of the product, made of the tree: what programs write has new fields at every depth, a phase is new, and so are variables,
labels and annotations of RayJobs. Who has the tree's version meets all that when the next one is rolled back."""

from __future__ import annotations

from pathlib import Path

from tests.clusters.versions import Edit, Version, edited

_API = "platform/tuneyard/api"
_HUB = "operators/tuneyard_operators"


def _field(file: str, after: str, name: str, kind: str, default: str) -> Edit:
    """A field of a model, after another one's line."""
    return Edit(f"{_API}/{file}", after, f'{after}\n    {name}: {kind} = Field(default={default}, description="of the next version")')


EDITS = (
    _field(
        "status.py",
        'summary: str = Field(default="", description="for tables: `step 40/120`, or the stage of work outside the steps")',
        "watts",
        "float",
        "700.0",
    ),
    _field("status.py", 'phase of the task")\n    progress: Progress = Field(default_factory=Progress)', "budget", "float", "2.5"),
    _field(
        "status.py",
        'failed_node: str = Field(default="", description="node to blame, which later attempts avoid")',
        "region",
        "str",
        '"eu"',
    ),
    _field(
        "status.py",
        'pods: int = Field(default=1, ge=0, description="worker pods, all of one size; 0 for a process task, which runs on the head")',
        "rack",
        "dict[str, int]",
        '{"row": 3}',
    ),
    _field("status.py", "usage: Usage = Field(default_factory=Usage)", "audit", "list[dict[str, int]]", '[{"seen": 1}]'),
    _field(
        "attempt_report.py",
        'stage: str = Field(default="", description="work outside the steps: loading model, tokenising, preflight")',
        "weather",
        "str",
        '"fine"',
    ),
    _field("attempt_report.py", 'node: str = Field(default="", description="name of the node")', "rack", "int", "3"),
    _field(
        "attempt_report.py",
        'grace_s: float = Field(default=STOP_GRACE_S, ge=0, description="seconds for the last checkpoint")',
        "courtesy",
        "str",
        '"please"',
    ),
    Edit(f"{_API}/status.py", '    QUEUED = "Queued"\n', '    QUEUED = "Queued"\n    RESTING = "Resting"\n'),
    Edit(
        f"{_HUB}/hub/summary.py",
        "    status.phase = Phase.QUEUED if ready or status.attempts or goal.job.spec.suspend else Phase.PENDING\n",
        "    status.phase = Phase.QUEUED if ready or status.attempts else Phase.PENDING\n"
        "    if goal.job.spec.suspend:\n        status.phase = Phase.RESTING\n",
    ),
    Edit(
        f"{_HUB}/rendering/pods.py",
        '                "TUNEYARD_SKU": self.placement.sku,\n',
        '                "TUNEYARD_SKU": self.placement.sku,\n                "TUNEYARD_REGION": "eu",\n',
    ),
    Edit(f"{_HUB}/rendering/names.py", "ATTEMPT: str(number)}", 'ATTEMPT: str(number), "tuneyard.dev/region": "eu"}'),
    Edit(
        f"{_HUB}/rendering/rayjob.py",
        'return {"metadata": {"name": attempt.name, "labels": labels}, "spec": spec}',
        'return {"metadata": {"name": attempt.name, "labels": labels, "annotations": {"tuneyard.dev/region": "eu"}}, "spec": spec}',
    ),
)


def next_version(folder: Path) -> Version:
    """The next version, in `folder`, which is made."""
    return edited("next", folder, EDITS)
