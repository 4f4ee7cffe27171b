"""The report of a job: report.json for machines, report.html for people. Both can be written at any time during the run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

REPORT_JSON = "report.json"
REPORT_HTML = "report.html"


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

    def to_json(self) -> str:
        """Standard JSON: NaN and infinity, which JSON does not have, become null."""
        return json.dumps(json_safe(asdict(self)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Fields of a newer Tuneyard are passed over."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})


def json_safe(value: Any) -> Any:
    """The same value in JSON's own types; what JSON cannot hold becomes null, or text."""
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


class Writable(Protocol):
    """What a report is written to: a tuneyard.storage.Store is one. `put` replaces a file atomically."""

    def put(self, path: str, data: bytes) -> None: ...


def write_report(target: Writable | Path, report: Report) -> None:
    """Write report.json and report.html, each atomically, into a store or a local folder."""
    from tuneyard.tracking.report_page import render

    put = _put_local(target) if isinstance(target, Path) else target.put
    put(REPORT_HTML, render(report).encode())
    put(REPORT_JSON, report.to_json().encode())


def _put_local(folder: Path) -> Any:
    def put(path: str, data: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        staged = folder / f".{path}.new"
        staged.write_bytes(data)
        staged.replace(folder / path)

    return put
