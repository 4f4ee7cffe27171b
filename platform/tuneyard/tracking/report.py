"""The report of a job, as report.json holds it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Report:
    """`tasks` by name, in order. A train task holds at least losses, tokens_per_s, mfu, flops_per_step, peak_memory_gb,
    planned_memory_gb, steps, world_size, wall_s, artifacts; a score task rows, errors, empty, looping, cut_off, metrics,
    output_tokens_per_s, mfu, output. Both hold kind and status; `samples` of a score task (row, typical, prompt, output, reference,
    error) are shown where given.

    `status`: running, succeeded, failed or stopped.
    """

    job: str
    status: str
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    message: str = ""
    team: str = ""
    output: str = ""
    started_at: str = ""
    wall_s: float = 0.0
    spec: dict[str, Any] | None = None
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    """Of score tasks on the same rows, row by row (see `scoring.paired.Comparison`)."""

    def to_json(self) -> str:
        """Standard JSON: NaN and infinity, which JSON does not have, become null."""
        return json.dumps(json_safe(asdict(self)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Fields of a newer Tuneyard are ignored."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})


def json_safe(value: Any) -> Any:
    """The value in JSON's own types. Other values become null, or text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int | bool) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_safe(item) for item in value]
    # Scalars of numpy and torch.
    return json_safe(value.item()) if hasattr(value, "item") else str(value)
