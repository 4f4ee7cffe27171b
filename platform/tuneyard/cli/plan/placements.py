"""Placements of tasks for `tuneyard plan`: SKUs, facts about machines, and the models of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import typer

from tuneyard.admission import model_origin
from tuneyard.api import CPU, JobSpec, Task
from tuneyard.catalog import Gpu, ModelShape, canonical_sku, gpu, local_sku, needs_measuring
from tuneyard.catalog.libraries import measured_libraries_gb
from tuneyard.catalog.measured import known_measurement
from tuneyard.planning import DEFAULT, LIBRARIES_GB, Calibration, DataRate
from tuneyard.runtime.models import model_shape
from tuneyard.runtime.probes import Probed
from tuneyard.runtime.references import named_model
from tuneyard.runtime.score.past import PastScores
from tuneyard.runtime.train.past import PastPrograms


@dataclass(frozen=True, kw_only=True)
class Placements:
    """Placements to plan, instead of those in the file, and facts about machines. `prices`: of a GPU-hour, by SKU."""

    skus: list[str] | None = None
    workers: int | None = None
    every: bool = False
    prices: Mapping[str, float]
    gpus_per_node: int = 8
    network_gb_s: float | None = None
    calibration: Calibration = DEFAULT
    """Shares of peaks that machines reach."""
    data_rates: Mapping[str, DataRate] = field(default_factory=dict)
    """Rates of data workers in past runs, by format."""
    core_price: float | None = None
    """Price of a core of a data worker for an hour."""
    sweep: tuple[str, ...] = ()
    """Settings of which every combination is planned, instead of the settings of the file."""
    past_scores: PastScores = field(default_factory=PastScores)
    """Past runs of engines, which correct their speeds."""
    probes: Mapping[str, Probed] = field(default_factory=dict)
    """What was found in some rows of the data, by task."""
    past_programs: PastPrograms = field(default_factory=PastPrograms)
    """Past runs of programs, which tell memory and speed."""
    libraries_gb: float = field(default_factory=lambda: measured_libraries_gb() or LIBRARIES_GB)
    """Memory of a rank on `cpu` before it loads the model."""


def skus_of(job: JobSpec, task: Task, placements: Placements) -> list[str]:
    asked = placements.skus or task.resources.sku or job.spec.placement.skus or [local_sku()]
    return list(dict.fromkeys(canonical_sku(sku) for sku in asked))


def kind_of(sku: str) -> Gpu:
    """The facts of a SKU. Prints a line where they must be measured first. Raises BadInput."""
    if needs_measuring(sku) and known_measurement(sku) is None and sku == local_sku() != CPU.sku:
        typer.echo(f"measuring {sku}, which the catalog lacks: up to a minute, once on this machine", err=True)
    return gpu(sku)


def placed_on(task: Task, sku: str, workers: int | None = None) -> Task:
    """The task with this SKU as its only one."""
    resources = {"sku": [sku]} | ({"workers": workers} if workers else {})
    return task.model_copy(update={"resources": task.resources.model_copy(update=resources)})


def maker_of(job: JobSpec, task: Task) -> str | None:
    """The process task that makes the model, if one does."""
    source = model_origin(job, task)
    return source.name if source.train is None and source.score is None else None


def not_made_yet(task: Task, maker: str) -> str:
    return f"{task.name}: its model is made by task {maker}; to plan before that has run, set model.name to a model of its shape"


def name_of_model(job: JobSpec, task: Task) -> str | None:
    """The name of the model from which the model of a task is made. None: a process task makes it."""
    source = model_origin(job, task)
    body = source.train or source.score
    return body.model.name if body is not None else None


def shape_of_task(job: JobSpec, task: Task, base_dir: Path) -> ModelShape:
    source = model_origin(job, task)
    body = source.train or source.score
    assert body is not None
    assert body.model.name is not None
    return model_shape(named_model(body.model.name, base_dir), body.model.revision)


def assumed_fields(task: Task, shape: ModelShape) -> dict[str, str]:
    """What to know about a plan for sizes that were not found, but taken."""
    if not shape.assumed:
        return {}
    taken = f"a {shape.model_type} model is taken to be built like Llama, since {shape.assumed}"
    return {"reason": f"{task.name}: the figures are rough: {taken}; plan where transformers can build it, with the train extra"}
