"""A score task as its driver sees it: what has to be done before engines start, and what is made of their parts afterwards.

`plan.json` in the output says what its parts were made with. It is written once; an attempt that would score differently is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuneyard.api import BadInput, JobFailed
from tuneyard.catalog import gpu
from tuneyard.data import ScoreRows
from tuneyard.metrics import METRICS, needing
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.parts import FOLDER, Columns, Layout, committed_parts, read_sums
from tuneyard.scoring.request import ScoreRequest, ScoreResult
from tuneyard.scoring.samples import samples
from tuneyard.scoring.settings import EngineSettings
from tuneyard.scoring.worker import WorkOrder
from tuneyard.storage import AlreadyExists, Store, join, open_store

PLAN = "plan.json"
RESULT = "metrics.json"
_FORMAT = 4
"""Of plan.json, of the sums in parts, of what a prompt is made of, and of where an answer ends."""
_SAMPLE_ROWS = 1000


@dataclass(frozen=True)
class ScoreJob:
    """What is to be done. `committed`: parts of earlier attempts, with their sums."""

    order: WorkOrder
    committed: dict[int, Sums]

    @property
    def missing(self) -> list[int]:
        return [part for part in range(self.order.layout.parts) if part not in self.committed]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the runtime measured of one attempt. `generation_s`: from the first engine that was ready to the last commit."""

    wall_s: float
    load_s: float
    generation_s: float
    deaths: int
    """Engines that died."""
    stopped: bool
    settings: EngineSettings | None
    chats: bool | None = None
    """Whether prompts were rendered as chats; None: no engine was needed."""


def prepare(request: ScoreRequest) -> ScoreJob:
    """Open the rows, fix the layout of parts, and see what earlier attempts left.

    Raises BadInput: no rows, metrics without a reference, or parts in the output that were made with other settings.
    """
    task = request.task
    compared = needing("reference", [METRICS[name] for name in task.metrics])
    if compared and task.data.reference is None:
        raise BadInput(f"score.metrics has {', '.join(compared)}, but there is nothing to compare with", "set data.reference to a column")
    rows = ScoreRows.open(task.data)
    if rows.count() == 0:
        raise BadInput(f"{task.data.source}: the data set is empty", "check data.source and data.limit")
    store = open_store(request.output)
    if not request.resume:
        store.delete_prefix(FOLDER)
        store.delete(PLAN)
    layout = Layout.choose(rows.count(), task.rows_per_part, request.instances)
    layout = _agree(store, layout, _settings(request, rows))
    columns = Columns.infer(rows.read(0, _SAMPLE_ROWS), task.metrics)
    committed = {part: read_sums(store, part) for part in sorted(committed_parts(store)) if part < layout.parts}
    return ScoreJob(WorkOrder(request, rows, layout, columns), committed)


def finish(job: ScoreJob, new: Sequence[Sums], measured: Measured) -> ScoreResult:
    """Add up all parts and write metrics.json. Raises JobFailed if more rows have errors than the task tolerates."""
    request = job.order.request
    total, ours = Sums(), Sums()
    for sums in new:
        ours.add(sums)
    for sums in [*job.committed.values(), *new]:
        total.add(sums)
    result = ScoreResult(
        rows=total.rows,
        errors=total.errors,
        empty=total.empty,
        looping=total.looping,
        cut_off=total.cut_off,
        metrics=total.figures(request.task.metrics),
        intervals=total.intervals(request.task.metrics),
        output=join(request.output, FOLDER),
        samples=samples(job.order.rows, open_store(request.output)),
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        output_tokens_per_s=ours.output_tokens / measured.generation_s if measured.generation_s else 0.0,
        mfu=_mfu(ours.flops, request, measured),
        peak_from=gpu(request.sku).basis,
        latency_s={f"p{round(share * 100)}": total.latencies.percentile(share) for share in (0.5, 0.9, 0.99)},
        wall_s=measured.wall_s,
        status="stopped" if measured.stopped else "succeeded",
        rows_resumed=sum(sums.rows for sums in job.committed.values()),
        details=_details(job, total, ours, measured),
    )
    open_store(request.output).put(RESULT, json.dumps(asdict(result), indent=2).encode())
    if not measured.stopped:
        _check_errors(request, total)
    return result


def _details(job: ScoreJob, total: Sums, ours: Sums, measured: Measured) -> dict[str, Any]:
    rate_with_load = ours.output_tokens / measured.wall_s if measured.wall_s else 0.0
    return {
        "load_s": measured.load_s,
        "generation_s": measured.generation_s,
        "output_tokens_per_s_with_load": rate_with_load,
        "reference_tokens": total.reference_tokens,
        "evaluated_tokens": total.evaluated_tokens,
        "model_flops": total.flops,
        "engine_deaths": measured.deaths,
        "parts": job.order.layout.parts,
        "rows_per_part": job.order.layout.rows_per_part,
        "instances": job.order.request.instances,
        **({} if measured.chats is None else {"prompts": "chats" if measured.chats else "plain"}),
        "errors": dict(total.reasons.most_common(5)),
        "engine": asdict(measured.settings) if measured.settings else {},
        "notes": list(job.order.rows.notes),
    }


def _mfu(flops: float, request: ScoreRequest, measured: Measured) -> float:
    """Model FLOPs of this attempt over what its devices could have done at best meanwhile."""
    if measured.settings is None or not measured.generation_s:
        return 0.0
    device = gpu(request.sku)
    devices = 1 if device.is_cpu else request.instances * measured.settings.tensor_parallel
    peak = device.peak_flops.get(measured.settings.precision)
    return flops / (peak * devices * measured.generation_s) if peak else 0.0


def _check_errors(request: ScoreRequest, total: Sums) -> None:
    tolerated = request.task.max_error_fraction
    if total.errors <= tolerated * total.rows:
        return
    commonest = "".join(f"\n    {count} x {reason}" for reason, count in total.reasons.most_common(3))
    raise JobFailed(
        f"{total.errors} of {total.rows} rows have errors, more than maxErrorFraction {tolerated:g} tolerates:{commonest}",
        f"see the column error in {request.output}/{FOLDER}; repair the rows, or raise score.maxErrorFraction",
    )


# --- what parts were made with ----------------------------------------------------------------------------------------------------


def _settings(request: ScoreRequest, rows: ScoreRows) -> dict[str, Any]:
    """Everything that changes what is in a part, in the words of the JobSpec."""
    task = request.task
    return {
        "rows": rows.count(),
        "metrics": sorted(task.metrics),
        "model": {"uri": request.model_uri, "files": _identity(request.model_uri)},
        "adapter": {"uri": request.adapter_uri, "files": _identity(request.adapter_uri) if request.adapter_uri else None},
        "data": {
            **task.data.model_dump(mode="json", by_alias=True, include={"prompt", "reference", "keep", "chat", "limit"}),
            "files": hashlib.sha256("\n".join(part.file.identity() for part in rows.parts).encode()).hexdigest()[:16],
        },
        "generation": task.generation.model_dump(mode="json", by_alias=True),
        "engine": task.engine.model_dump(mode="json", by_alias=True, include={"max_length", "precision"}),
    }


def _identity(uri: str) -> str:
    """Changes when a file of the folder does: names, sizes and versions (modification times on local disks)."""
    files = open_store(uri).list()
    return hashlib.sha256("\n".join(f"{f.path} {f.size_bytes} {f.version}" for f in files).encode()).hexdigest()[:16]


def _agree(store: Store, layout: Layout, settings: dict[str, Any]) -> Layout:
    """Write plan.json, or take the layout of the one that is there. Raises BadInput if that one was made with other settings."""
    plan = {"version": _FORMAT, "rowsPerPart": layout.rows_per_part, "settings": settings}
    try:
        store.create(PLAN, json.dumps(plan, indent=2).encode())
    except AlreadyExists:
        earlier = json.loads(store.get(PLAN))
        if earlier["version"] != _FORMAT:
            raise BadInput(
                f"{store.uri} holds parts of another version of Tuneyard, whose sums this one cannot add up",
                "write to another output with --out, or score anew without --resume",
            ) from None
        changes = _changes(earlier["settings"], settings)
        if changes:
            raise BadInput(
                f"{store.uri} holds parts that were made with other settings: {'; '.join(changes)}",
                "write to another output with --out, or score anew without --resume",
            ) from None
        return Layout(layout.rows, earlier["rowsPerPart"])
    if committed_parts(store):
        store.delete(PLAN)
        raise BadInput(f"{store.uri} holds parts, but no {PLAN} that says what they were made with", "write to another output with --out")
    return layout


def _changes(earlier: dict[str, Any], now: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for key in sorted(earlier.keys() | now.keys()):
        before, after = earlier.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += _changes(before, after, f"{path}{key}.")
        elif before != after:
            found.append(f"{path}{key} was {before}, is {after}")
    return found
