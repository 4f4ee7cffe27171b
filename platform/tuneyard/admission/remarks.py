"""Warnings about an admitted job: a task may not end by the job's deadline, or its model may not take its rows."""

from __future__ import annotations

from collections.abc import Iterator

from tuneyard.admission.asks import least_s
from tuneyard.admission.combinations import Combinations
from tuneyard.admission.fits import fits_of
from tuneyard.admission.shapes import Configs, of_origins
from tuneyard.api import BadInput, JobSpec, Task
from tuneyard.api.loading_yaml import Path
from tuneyard.catalog import refuse_encoders
from tuneyard.catalog.rows import LEAKING_WITHOUT_FLASH, positions_of
from tuneyard.federation import REFERENCE_SKU, duration_words, worlds_of


def remarks(job: JobSpec) -> Iterator[tuple[Path, str]]:
    """Tasks whose planned duration exceeds the job's deadline, on the fastest SKU that they allow, with their first number of workers.

    Each has its path from the top of the JobSpec, and words. Only tasks with `steps`, of models whose shapes are in the catalog, have a
    planned duration.
    """
    deadline_s = job.spec.deadline
    if deadline_s is None:
        return
    for index, task in enumerate(job.spec.tasks):
        combinations = Combinations.of(job, task)
        allowed = combinations.skus or (REFERENCE_SKU,)
        fits = fits_of(combinations, allowed)
        workers = (fits.worlds if fits is not None else worlds_of(combinations.task))[0]
        planned = {sku: taken for sku in allowed if (taken := least_s(task, combinations, sku, workers)) is not None}
        fastest = min(planned, key=lambda sku: planned[sku], default="")
        if fastest and (taken_s := planned[fastest]) > deadline_s:
            reason = f"{duration_words(taken_s, 'plan')} on {fastest}, and spec.deadline ends the job after {deadline_s:,.0f} s"
            yield ("spec", "tasks", index), f"{reason}; set a later deadline, fewer steps, or more workers"


def model_remarks(job: JobSpec, configs: Configs) -> Iterator[tuple[Path, str]]:
    """Tasks whose model is no language model, and train tasks whose rows their model may not take. `configs`: config.json of the models
    that tasks name, by task name.

    Each has its path from the top of the JobSpec, and words. The run tests the loaded model before its first step.
    """
    origins = of_origins(job, job.spec.tasks, configs)
    for index, task in enumerate(job.spec.tasks):
        if task.name in configs and _loads_language_model(task):
            try:
                refuse_encoders(configs[task.name])
            except BadInput as error:
                kind = "train" if task.train is not None else "score"
                yield ("spec", "tasks", index, kind, "model"), f"{error.cause}; {error.next_step}"
                continue
        if task.train is None or task.name not in origins:
            continue
        config, rows, root = origins[task.name], task.train.data, ("spec", "tasks", index, "train", "data")
        positions = positions_of(config)
        if positions is not None and rows.max_length > positions:
            yield (
                (*root, "maxLength"),
                f"{rows.max_length:,} tokens, and the model has {positions:,} positions (max_position_embeddings). A longer sample "
                "ends the run if they are a table; rotary positions give values that were never trained. Set data.maxLength to "
                f"{positions}",
            )
        kind = str(config.get("model_type"))
        if rows.pack and kind in LEAKING_WITHOUT_FLASH:
            yield (
                (*root, "pack"),
                f"packed samples of a {kind} model see each other with sdpa and eager attention, and the run then ends before its first "
                "step. Set data.pack to false, or model.attention to flash on a GPU",
            )


def _loads_language_model(task: Task) -> bool:
    """Whether the task loads its model as one that predicts the next token. A program loads it as it likes, and an endpoint has its own."""
    return task.endpoint is None and (task.train is None or task.train.program is None)
