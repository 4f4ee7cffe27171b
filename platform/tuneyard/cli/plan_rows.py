"""The rows of `tuneyard plan`: one per task and placement, as DESIGN 16 has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, JobSpec, Task, WorkerRange, check_task
from tuneyard.catalog import ModelShape, gpu, local_sku
from tuneyard.cli.checks import device
from tuneyard.planning import DEFAULT, Calibration, EnginePlan, Plan, Site, best, plans, resolve, resolve_engine_plan
from tuneyard.runtime.models import model_shape
from tuneyard.runtime.references import named_model

_AUTO_WORKERS = (1, 2, 4, 8)
_MEMORY = ("weights", "gradients", "optimizer", "activations", "other", "total")
TRAIN_COLUMNS = [
    *("task", "sku", "workers", "zero", "offload", "recompute", "precision", "micro_batch", "grad_accum"),
    *(f"{name}_gb" for name in _MEMORY),
    *("tokens_per_s", "mfu", "step_s", "duration_s", "cost", "fits"),
]
SCORE_COLUMNS = [
    *("task", "sku", "engines", "tensorParallel", "engines_per_node", "precision", "max_length", "weights_gb", "kv_cache_gb"),
    *("other_gb", "total_gb", "kv_tokens", "sequences", "fits"),
]


@dataclass(frozen=True, kw_only=True)
class Placements:
    """Where to plan for, instead of what the file says, and what machines are like. `prices`: of a GPU-hour, by SKU."""

    skus: list[str] | None = None
    workers: int | None = None
    every: bool = False
    prices: Mapping[str, float]
    gpus_per_node: int = 8
    network_gb_s: float | None = None
    calibration: Calibration = DEFAULT
    """Shares of peaks that machines reach."""


def rows_of(job: JobSpec, base_dir: Path, placements: Placements) -> Iterator[dict[str, Any]]:
    for task in job.spec.tasks:
        if task.train is not None:
            yield from _train_rows(job, task, base_dir, placements)
        elif task.score is not None:
            yield from _score_rows(job, task, base_dir, placements)


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for the table: the strategy's fields and the memory's terms as columns."""
    strategy = row.get("strategy", {})
    moved = [f"{what} to {where}" for what, where in strategy.get("offload", {}).items() if where != "none"]
    offload = ", ".join(moved) or ("none" if strategy else None)
    memory = {f"{name}_gb": value for name, value in row.get("memory_gb", {}).items()}
    return {**row, **strategy, "offload": offload, **memory}


def _train_rows(job: JobSpec, task: Task, base_dir: Path, placements: Placements) -> Iterator[dict[str, Any]]:
    made_by = _maker(job, task)
    if made_by is not None:
        yield {"task": task.name, "kind": "train", "fits": None, "reason": _not_yet(task, made_by)}
        return
    shape = _shape(job, task, base_dir)
    for sku in _skus(job, task, placements):
        for count in [placements.workers] if placements.workers else _worker_counts(task):
            yield from _placed(task, shape, sku, count, placements)


def _placed(task: Task, shape: ModelShape, sku: str, workers: int, placements: Placements) -> Iterator[dict[str, Any]]:
    """The rows of one placement: its plans, or why there is none."""
    assert task.train is not None
    head = {"task": task.name, "kind": "train", "sku": sku, "workers": workers}
    broken = check_task(_on(task, sku, workers), device=device(sku))
    if broken:
        yield {**head, "fits": False, "reason": f"{sku}: {broken[0].reason}"}
        return
    try:
        kind = gpu(sku)
        site: Site = {"gpus_per_node": placements.gpus_per_node, "network_gb_s": placements.network_gb_s}
        site["calibration"] = placements.calibration
        ranked = plans(task.train, shape, kind, workers, **site) or [resolve(task.train, shape, kind, workers, **site)]
    except BadInput as error:
        yield {**head, "fits": False, "reason": f"{sku}: {error.cause}; {error.next_step}"}
        return
    for found in ranked if placements.every else [best(ranked)]:
        yield {**head, **_plan_fields(found), **_price_fields(found, task.train.steps, placements.prices)}


def _on(task: Task, sku: str, workers: int | None = None) -> Task:
    """The task as it would be on this kind of machine alone."""
    resources = {"sku": [sku]} | ({"workers": workers} if workers else {})
    return task.model_copy(update={"resources": task.resources.model_copy(update=resources)})


def _plan_fields(found: Plan) -> dict[str, Any]:
    memory = {name.removesuffix("_gb"): value for name, value in asdict(found.memory).items()}
    speed = found.speed
    return {
        "sku": found.sku,
        "workers": found.workers,
        "strategy": {
            "zero": found.zero,
            "offload": {"optimizer": found.offload_optimizer, "parameters": found.offload_parameters},
            "tensorParallel": found.tensor_parallel,
            "recompute": found.recompute,
            "precision": found.precision,
            "liger": found.liger,
        },
        "attention": found.attention,
        "micro_batch": found.micro_batch,
        "grad_accum": found.grad_accum,
        "memory_gb": {**memory, "total": found.memory.total_gb},
        "host_memory_gb": found.host_memory_gb,
        "fits": found.fits,
        "tokens_per_s": speed.tokens_per_s if speed else None,
        "mfu": speed.mfu if speed else None,
        "step_s": speed.step_s if speed else None,
        "step_terms_s": {name.removesuffix("_s"): value for name, value in asdict(speed.terms).items()} if speed else None,
    }


def _price_fields(found: Plan, steps: int | None, prices: Mapping[str, float]) -> dict[str, Any]:
    """Seconds of the whole task where its steps are known (epochs depend on the data), and what they cost where the price is."""
    duration = found.speed.step_s * steps if found.speed and steps else None
    price = prices.get(found.sku)
    rented = 1 if found.sku == "cpu" else found.workers
    return {"duration_s": duration, "cost": duration / 3600 * price * rented if duration is not None and price is not None else None}


def _score_rows(job: JobSpec, task: Task, base_dir: Path, placements: Placements) -> Iterator[dict[str, Any]]:
    assert task.score is not None
    made_by = _maker(job, task)
    if made_by is not None:
        yield {"task": task.name, "kind": "score", "fits": None, "reason": _not_yet(task, made_by)}
        return
    for sku in _skus(job, task, placements):
        head = {"task": task.name, "kind": "score", "sku": sku, "engines": task.resources.instances}
        broken = check_task(_on(task, sku), device=device(sku))
        if broken:
            yield {**head, "fits": False, "reason": f"{sku}: {broken[0].reason}"}
            continue
        try:
            shape = _shape(job, task, base_dir)
            found = resolve_engine_plan(
                task.score, shape, gpu(sku), instances=task.resources.instances, gpus_per_node=placements.gpus_per_node
            )
        except BadInput as error:
            yield {**head, "fits": False, "reason": f"{sku}: {error.cause}; {error.next_step}"}
            continue
        yield {**head, **_engine_fields(found), **_degree_to_set(found, task.score.engine.tensor_parallel)}


def _engine_fields(found: EnginePlan) -> dict[str, Any]:
    return {
        "sku": found.sku,
        "tensorParallel": found.tensor_parallel,
        "engines_per_node": found.engines_per_node,
        "precision": found.precision,
        "max_length": found.max_length,
        "memory_gb": {"weights": found.weights_gb, "kv_cache": found.kv_gb, "other": found.other_gb, "total": found.total_gb},
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "kv_tokens": found.kv_tokens,
        "sequences": found.max_sequences,
        "fits": True,
    }


def _degree_to_set(found: EnginePlan, given: int) -> dict[str, str]:
    """Engines start at the degree of the file, 1 if it names none: what to write where that would not do."""
    if found.tensor_parallel == given:
        return {}
    needed = found.tensor_parallel
    return {"reason": f"{found.sku}: an engine needs {needed} GPUs for weights and cache; set engine.tensorParallel to {needed}"}


def _skus(job: JobSpec, task: Task, placements: Placements) -> list[str]:
    return placements.skus or task.resources.sku or job.spec.placement.skus or [local_sku()]


def _worker_counts(task: Task) -> list[int]:
    assert task.train is not None
    asked = task.resources.workers
    if isinstance(asked, WorkerRange):
        return sorted({asked.min, asked.max})
    if isinstance(asked, int):
        return [asked]
    return [count for count in _AUTO_WORKERS if task.train.batch.global_ % count == 0]


def _source(job: JobSpec, task: Task) -> Task:
    """The task that names the model which a task trains or scores: itself, an earlier train task, or the task that makes it."""
    source = task
    while (body := source.train or source.score) is not None and body.model.from_task is not None:
        source = job.spec.task(body.model.from_task)
    return source


def _maker(job: JobSpec, task: Task) -> str | None:
    """The process task that makes the model, if one does."""
    source = _source(job, task)
    return source.name if source.train is None and source.score is None else None


def _not_yet(task: Task, maker: str) -> str:
    return f"{task.name}: its model is made by task {maker}; to plan before that has run, set model.name to a model of its shape"


def _shape(job: JobSpec, task: Task, base_dir: Path) -> ModelShape:
    source = _source(job, task)
    body = source.train or source.score
    assert body is not None
    assert body.model.name is not None
    return model_shape(named_model(body.model.name, base_dir), body.model.revision)
