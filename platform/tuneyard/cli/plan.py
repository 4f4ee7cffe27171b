"""`tuneyard plan`: how each train task would run on each SKU, and whether that fits in memory. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput, JobSpec, Task, WorkerRange, check_task
from tuneyard.catalog import ModelShape, gpu, local_sku
from tuneyard.cli.checks import check_file, device
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.planning import Plan, resolve
from tuneyard.runtime.models import model_shape
from tuneyard.runtime.references import named_model

_COLUMNS = ["task", "sku", "workers", "zero", "offload", "precision", "attention", "micro_batch", "grad_accum", "memory_gb", "fits"]
_AUTO_WORKERS = (1, 2, 4, 8)


def plan(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a JobSpec")],
    sku: Annotated[list[str] | None, typer.Option(help="kind of machine, instead of those in the file; may be repeated")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="ranks, instead of the number in the file")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say how each train task would run: layout, batch sizes, memory per rank.

    Example: tuneyard plan job.yaml --sku a100-80gb --workers 8 -o json
    """
    job = _job(file)
    rows = [row for task in job.spec.tasks if task.train for row in _rows(job, task, file.parent, sku, workers)]
    if output is Format.JSON:
        print_json(rows)
    elif rows:
        print_table(_COLUMNS, [_flat(row) for row in rows])
        for reason in dict.fromkeys(row["reason"] for row in rows if "reason" in row):
            typer.echo(reason)
    else:
        typer.echo(f"{file}: no train task to plan")


def _job(file: Path) -> JobSpec:
    jobs = [document.resource for document in check_file(file) if isinstance(document.resource, JobSpec)]
    if len(jobs) != 1:
        raise BadInput(f"{file}: holds {len(jobs)} JobSpecs, one is expected here", "give a file with one JobSpec")
    return jobs[0]


def _rows(job: JobSpec, task: Task, base_dir: Path, skus: list[str] | None, workers: int | None) -> Iterator[dict[str, Any]]:
    shape = _shape(job, task, base_dir)
    for sku in skus or task.resources.sku or job.spec.placement.skus or [local_sku()]:
        for count in [workers] if workers else _worker_counts(task):
            yield _row(task, shape, sku, count)


def _row(task: Task, shape: ModelShape, sku: str, workers: int) -> dict[str, Any]:
    """One plan as DESIGN 16 has it; speed and cost are not in it before they are predicted from measurements."""
    assert task.train is not None
    placed = task.model_copy(update={"resources": task.resources.model_copy(update={"sku": [sku], "workers": workers})})
    broken = check_task(placed, device=device(sku))
    if broken:
        return {"task": task.name, "sku": sku, "workers": workers, "fits": False, "reason": f"{sku}: {broken[0].reason}"}
    try:
        found = resolve(task.train, shape, gpu(sku), workers)
    except BadInput as error:
        return {"task": task.name, "sku": sku, "workers": workers, "fits": False, "reason": f"{sku}: {error.cause}; {error.next_step}"}
    return {"task": task.name, **_plan_fields(found)}


def _plan_fields(found: Plan) -> dict[str, Any]:
    memory = {name.removesuffix("_gb"): value for name, value in asdict(found.memory).items()}
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
        "fits": found.fits,
    }


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for the table: the strategy's fields as columns, memory as its total."""
    strategy = row.get("strategy", {})
    moved = [f"{what} to {where}" for what, where in strategy.get("offload", {}).items() if where != "none"]
    offload = ", ".join(moved) or ("none" if strategy else None)
    return {**row, **strategy, "offload": offload, "memory_gb": row.get("memory_gb", {}).get("total")}


def _worker_counts(task: Task) -> list[int]:
    assert task.train is not None
    asked = task.resources.workers
    if isinstance(asked, WorkerRange):
        return sorted({asked.min, asked.max})
    if isinstance(asked, int):
        return [asked]
    return [count for count in _AUTO_WORKERS if task.train.batch.global_ % count == 0]


def _shape(job: JobSpec, task: Task, base_dir: Path) -> ModelShape:
    """Shape of the model that a task trains: its own, or that of the earlier train task whose weights it takes."""
    assert task.train is not None
    source = task
    while source.train is not None and source.train.model.from_task is not None:
        source = job.spec.task(source.train.model.from_task)
    if source.train is None or source.train.model.name is None:
        raise BadInput(
            f"the model of task {task.name} is made by task {source.name}: its shape is known once that has run",
            "plan the task with model.name set to a model of that shape",
        )
    return model_shape(named_model(source.train.model.name, base_dir), source.train.model.revision)
