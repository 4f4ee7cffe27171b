"""The driver's steps of a score task with engines: `prepare` before engines start, `finish` after all parts are committed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuneyard.api import BadInput, Embedding
from tuneyard.catalog import gpu
from tuneyard.data import ScoreRows
from tuneyard.metrics import METRICS, needing
from tuneyard.metrics.similarity import EMBEDDING_SIMILARITY
from tuneyard.scoring.harness.rows import without_tokens
from tuneyard.scoring.measuring import answer_settings, bleu_details, check_choices, with_tokenizer
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.parts import FOLDER, Columns, Layout, answer_columns, committed_parts, read_sums
from tuneyard.scoring.plan import agree, check_errors, clear, identity, rows_per_part
from tuneyard.scoring.request import ScoreRequest, ScoreResult
from tuneyard.scoring.samples import samples
from tuneyard.scoring.settings import EngineSettings
from tuneyard.scoring.structured import check_schema
from tuneyard.scoring.worker import WorkOrder
from tuneyard.storage import join, open_store

RESULT = "metrics.json"
_ROWS_PER_PART = 512
_ROWS_PER_PART_OF_ENDPOINT = 128
"""Fewer: after a kill the open parts are paid for again."""
_SAMPLE_ROWS = 1000
_MILLION = 1e6


@dataclass(frozen=True)
class ScoreJob:
    """A prepared score task. `committed`: parts of earlier attempts, with their sums."""

    order: WorkOrder
    committed: dict[int, Sums]
    tokenizer_note: str = ""
    """Why BLEU has its tokenizer, for people."""

    @property
    def missing(self) -> list[int]:
        return [part for part in range(self.order.layout.parts) if part not in self.committed]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures that are not made from sums of parts: by name, their intervals at 95 %, and what metrics.json says about them."""

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    details: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurements of one attempt by the runtime. `generation_s`: from the first ready engine to the last commit."""

    wall_s: float
    load_s: float
    generation_s: float
    deaths: int
    """Number of engines that died."""
    stopped: bool
    settings: EngineSettings | None
    chats: bool | None = None
    """Whether prompts were rendered as chats; None: no engine was needed."""


def prepare(request: ScoreRequest) -> ScoreJob:
    """Open the rows, fix the layout of parts, and find the parts of earlier attempts.

    Raises BadInput: no rows, metrics without a reference, or parts in the output that were made with other settings.
    """
    task = request.task
    compared = needing("reference", [METRICS[name] for name in task.metrics])
    if compared and task.data.reference is None:
        raise BadInput(
            f"score.metrics has {', '.join(compared)}, but there is no reference to compare with", "set data.reference to a column"
        )
    if isinstance(task.generation.json_schema, dict):
        check_schema(task.generation.json_schema)
    rows = ScoreRows.open(task.rows_to_score)  # of requests of lm-evaluation-harness too: `harness.work` has put its file there
    if task.rows_against is not None:
        rows = rows.beside(task.rows_against)
    if rows.count() == 0:
        raise BadInput(f"{task.data.source}: the data set is empty", "check data.source and data.limit")
    store = open_store(request.output)
    if not request.resume:
        clear(store)
    usual = _ROWS_PER_PART if task.engine.endpoint is None else _ROWS_PER_PART_OF_ENDPOINT
    layout = Layout.choose(rows.count(), rows_per_part(request, usual), request.instances)
    first = rows.read(0, _SAMPLE_ROWS)
    request, why = with_tokenizer(request, first)
    task = request.task
    check_choices(task, first)
    layout, _ = agree(store, layout, _settings(request, rows))
    kept = first if task.data.lm_eval is None else without_tokens(first)
    columns = Columns.infer(kept, task.measured, answer_columns(task))
    committed = {part: read_sums(store, part) for part in sorted(committed_parts(store)) if part < layout.parts}
    return ScoreJob(WorkOrder(request, rows, layout, columns), committed, why)


def finish(job: ScoreJob, new: Sequence[Sums], measured: Measured, own: Figures | None = None) -> ScoreResult:
    """Add up all parts and write metrics.json. `own`: the figures, where not the sums of parts make them.

    Raises JobFailed if more rows have errors than the task tolerates.
    """
    request = job.order.request
    total, ours = Sums(), Sums()
    for sums in new:
        ours.add(sums)
    for sums in [*job.committed.values(), *new]:
        total.add(sums)
    cost, for_rows = _cost(request, total, ours, measured)
    result = ScoreResult(
        rows=total.rows,
        errors=total.errors,
        empty=total.empty,
        looping=total.looping,
        cut_off=total.cut_off,
        off_schema=total.off_schema,
        unanswered=total.unanswered,
        metrics=total.figures(request.task.measured) if own is None else own.values,
        intervals=total.intervals(request.task.measured) if own is None else own.intervals,
        output=join(request.output, FOLDER),
        samples=samples(job.order.rows, open_store(request.output), cut=request.task.answer is not None),
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        output_tokens_per_s=ours.output_tokens / measured.generation_s if measured.generation_s else 0.0,
        mfu=_mfu(ours.flops, request, measured),
        peak_from=gpu(request.sku).basis if request.task.engine.endpoint is None else "datasheet",
        latency_s={f"p{round(share * 100)}": total.latencies.percentile(share) for share in (0.5, 0.9, 0.99)},
        wall_s=measured.wall_s,
        cost=cost,
        embedding_cost=_embedding_cost(request, total),
        cost_per_1000_rows=cost / for_rows * 1000 if cost is not None and for_rows else None,
        status="stopped" if measured.stopped else "succeeded",
        rows_resumed=sum(sums.rows for sums in job.committed.values()),
        details=_details(job, total, ours, measured) | ({} if own is None else own.details),
    )
    open_store(request.output).put(RESULT, json.dumps(asdict(result), indent=2).encode())
    if not measured.stopped:
        check_errors(request, total.errors, total.rows, total.reasons)
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
        **_judge_details(job.order.request, total),
        **bleu_details(job.order.request.task, job.tokenizer_note),
        **_embedding_details(job.order.request, total),
        "errors": dict(total.reasons.most_common(5)),
        "control_tokens": {"as_text": dict(total.as_text), "as_tokens": dict(total.as_tokens)},
        "engine": asdict(measured.settings) if measured.settings else {},
        **_endpoint_details(job.order.request, total),
        "notes": list(job.order.rows.notes),
    }


def _judge_details(request: ScoreRequest, total: Sums) -> dict[str, Any]:
    """Second questions of a judge; of a judge of two answers also its counts, its bias for a position, and for the longer answer."""
    judge = request.task.judge
    if judge is None:
        return {}
    sums = total.metrics.get("win_rate", {})
    if judge.against is None or not sums.get("rows"):
        return {"judge_retries": total.retried}
    rows, identical = int(sums["rows"]), int(sums.get("identical", 0))
    verdicts = max(1, 2 * (rows - identical))
    lengths = {
        name: {"rows": int(sums[f"{name}_rows"]), "win_rate": sums[f"{name}_total"] / sums[f"{name}_rows"]}
        for name in ("longer", "shorter")
        if sums[f"{name}_rows"]
    }
    return {
        "judge_retries": total.retried,
        "pairwise": {
            "rows": rows,
            "wins": int(sums["wins"]),
            "ties": int(rows - sums["wins"] - sums["losses"]),
            "identical": identical,
            "losses": int(sums["losses"]),
            "order_dependent": int(sums["order_dependent"]),
            "first_preferred": sums["first_preferred"] / verdicts,
            "second_preferred": sums["second_preferred"] / verdicts,
            "by_length": lengths,
        },
    }


def _embedding_details(request: ScoreRequest, total: Sums) -> dict[str, Any]:
    """The model of embeddings, and the rows with a text that was longer than it takes."""
    if request.task.embedding is None:
        return {}
    endpoint = request.task.embedding.endpoint
    if endpoint is not None:
        counts = {"paid_tokens": total.embedded_tokens, "uncounted_replies": total.uncounted_embeddings}
        cost = _embedding_cost(request, total)
        return {"embedding": {"url": endpoint.url, "model": endpoint.model, **counts, **({} if cost is None else {"cost": cost})}}
    cut = total.metrics.get(EMBEDDING_SIMILARITY, {}).get("cut", 0)
    return {"embedding": {"model": request.task.embedding.model, "cut_rows": int(cut)}}


def _embedding_cost(request: ScoreRequest, sums: Sums) -> float | None:
    """What an endpoint of embeddings has charged; None: there is none, or its price is not known."""
    embedding = request.task.embedding
    endpoint = embedding.endpoint if embedding is not None else None
    return sums.embedded_tokens * endpoint.price.input / _MILLION if endpoint is not None and endpoint.price is not None else None


def _endpoint_details(request: ScoreRequest, total: Sums) -> dict[str, Any]:
    endpoint = request.task.engine.endpoint
    if endpoint is None:
        return {}
    counts = {name: getattr(total, name) for name in ("paid_input_tokens", "paid_output_tokens", "uncounted_answers")}
    return {"endpoint": {"url": endpoint.url, "model": endpoint.model, **counts}}


def _cost(request: ScoreRequest, total: Sums, ours: Sums, measured: Measured) -> tuple[float | None, int]:
    """The cost, and the rows that it paid for. Of an endpoint: the tokens that it has counted, rows with errors included, in all attempts.
    Of engines: their devices in the time of this attempt, which loads models too. Embeddings of an endpoint are added to both."""
    answers, rows, sums = _cost_of_answers(request, total, ours, measured)
    embeddings = _embedding_cost(request, sums)
    known = [each for each in (answers, embeddings) if each is not None]
    return (sum(known) if known else None), rows


def _cost_of_answers(request: ScoreRequest, total: Sums, ours: Sums, measured: Measured) -> tuple[float | None, int, Sums]:
    """Their cost, and the rows and sums that belong to it."""
    endpoint = request.task.engine.endpoint
    if endpoint is not None:
        price = endpoint.price
        tokens = (total.paid_input_tokens, total.paid_output_tokens)
        return (tokens[0] * price.input + tokens[1] * price.output) / _MILLION if price is not None else None, total.rows, total
    if not request.price_per_device_hour or measured.settings is None:
        return None, total.rows, total
    devices = request.instances * measured.settings.tensor_parallel
    return request.price_per_device_hour * devices * measured.wall_s / 3600, ours.rows, ours


def _mfu(flops: float, request: ScoreRequest, measured: Measured) -> float | None:
    """Model FLOPs of this attempt divided by the peak FLOPs of its devices in the same time. None at an endpoint."""
    if request.task.engine.endpoint is not None:
        return None
    if measured.settings is None or not measured.generation_s:
        return 0.0
    device = gpu(request.sku)
    devices = 1 if device.is_cpu else request.instances * measured.settings.tensor_parallel
    peak = device.peak_flops.get(measured.settings.precision)
    return flops / (peak * devices * measured.generation_s) if peak else 0.0


def _settings(request: ScoreRequest, rows: ScoreRows) -> dict[str, Any]:
    """All settings that change the content of a part, by their names in the JobSpec."""
    task = request.task
    data = {"prompt", "reference", "keep", "chat", "limit", "sample", "sample_seed", "answer"}
    data |= {"template"} if task.data.template is not None else set()  # plans of earlier versions have no such entry
    return {
        "rows": rows.count(),
        "metrics": sorted(task.measured),
        "judge": task.judge.model_dump(mode="json", by_alias=True) if task.judge is not None else None,
        **_model_settings(request),
        **_embedding_settings(task.embedding),
        **answer_settings(task),
        "data": request.harness
        or {
            **task.data.model_dump(mode="json", by_alias=True, include=data),
            "files": _identity(rows),
            **({"against": _identity(rows.against)} if rows.against is not None else {}),
        },
        "generation": task.generation.model_dump(mode="json", by_alias=True),
    }


def _embedding_settings(embedding: Embedding | None) -> dict[str, Any]:
    """Nothing without a model: plans of earlier versions have no such entry."""
    if embedding is None:
        return {}
    if embedding.endpoint is not None:
        return {"embedding": {"endpoint": embedding.endpoint.model_dump(mode="json", by_alias=True, include={"url", "model", "body"})}}
    assert embedding.model is not None
    return {"embedding": {"model": embedding.model, "revision": embedding.revision, "files": identity(embedding.model)}}


def _identity(rows: ScoreRows) -> str:
    return hashlib.sha256("\n".join(part.file.identity() for part in rows.parts).encode()).hexdigest()[:16]


def _model_settings(request: ScoreRequest) -> dict[str, Any]:
    engine = request.task.engine
    if engine.endpoint is not None:
        return {"endpoint": engine.endpoint.model_dump(mode="json", by_alias=True, include={"url", "model", "body"})}
    return {
        "model": {"uri": request.model_uri, "files": identity(request.model_uri)},
        "adapter": {"uri": request.adapter_uri, "files": identity(request.adapter_uri) if request.adapter_uri else None},
        "engine": engine.model_dump(mode="json", by_alias=True, include={"max_length", "precision"}),
    }
