"""Where the settings of a task can work: on which SKUs, and with how many workers, by the table of rules.

What an attempt refuses by that table, the scheduler does not place. Hub and `validate` refuse a job for the same reasons (`refusals`).
Answers are remembered, so that a hub can ask for every job.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from tuneyard.api import CPU, STORED, JobSpec, Task, check_task
from tuneyard.api.loading_yaml import Path
from tuneyard.api.rules_examples import SMALLEST
from tuneyard.catalog import canonical_sku, known_devices
from tuneyard.federation import MOST_AUTO, skus_of, unmatched_skus, worlds_dividing, worlds_of

_REMEMBERED = 4096
_JUDGED = {"program", "method", "objective", "strategy", "optimizer", "batch", "engine"}
"""What of a task such rules read, beside the attention of its model."""


def refusals(job: JobSpec) -> Iterator[tuple[Path, str]]:
    """Tasks that can run nowhere, each with a path that starts at the top of the JobSpec, and why."""
    found = [
        *((index, "sku", reason) for index, reason in (*unmatched_skus(job), *_unusable_placement(job))),
        *((index, "workers", reason) for index, reason in _without_workers(job)),
    ]
    for index, field, reason in found:
        yield ("spec", "tasks", index, "resources", field), reason


def barred_skus(job: JobSpec, task: Task, offered: Collection[str]) -> dict[str, str]:
    """SKU -> reason, for each that the task may use and on which its settings cannot work, such as flash attention on a T4. `offered`: SKUs
    of the clusters, for a task that names none."""
    gang = job.spec.gang_of(task)
    if gang.kind not in SMALLEST:
        return {}
    skus = skus_of(job, gang) or tuple(sorted({*map(canonical_sku, offered), CPU.sku}))
    return dict(_barred(_settings_of(gang), skus))


def working_worlds(job: JobSpec, task: Task, worlds: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of workers in `worlds` with which no rule breaks. Where none is left and `workers` is `auto`: other numbers up to 8."""
    gang = job.spec.gang_of(task)
    training, workers = gang.training, gang.resources.workers
    if training is None or isinstance(workers, int):
        return worlds
    settings = _settings_of(gang)
    found = _working(settings, worlds)
    return found or (_working(settings, worlds_dividing(training, 1, MOST_AUTO)) if workers == "auto" else ())


def _without_workers(job: JobSpec) -> Iterator[tuple[int, str]]:
    for index, task in enumerate(job.spec.tasks):
        worlds = worlds_of(task)
        if task.training is None or isinstance(task.resources.workers, int) or check_task(task) or working_worlds(job, task, worlds):
            continue  # or wrong whatever their number, which the rules say
        alone = check_task(_with(_settings_of(task), workers=worlds[0]))
        yield index, f"no number of workers that batch and resources allow can work; with {worlds[0]}: {alone[0].reason}"


def _unusable_placement(job: JobSpec) -> Iterator[tuple[int, str]]:
    """Tasks that name no SKU and can work on none that `placement.skus` allows."""
    for index, task in enumerate(job.spec.tasks):
        allowed = skus_of(job, task)
        if allowed and not task.resources.sku and (barred := barred_skus(job, task, ())) and {*allowed} <= barred.keys():
            yield index, f"placement.skus allows {', '.join(allowed)} alone: {next(iter(barred.values()))}"


def _settings_of(gang: Task) -> str:
    """What rules about SKUs and numbers of workers read of a task, as JSON of a Task: equal for jobs that differ in their data alone. Other
    rules break wherever a task runs, and are checked before (`check_rules`)."""
    kind = gang.kind
    body = getattr(gang, kind)
    settings = {**SMALLEST[kind], **body.model_dump(mode="json", by_alias=True, exclude_unset=True, include=_JUDGED)}
    if gang.train is not None:
        settings["model"] = {**settings["model"], "attention": gang.train.model.attention}
    return json.dumps({kind: settings, "resources": gang.resources.model_dump(mode="json", by_alias=True)}, sort_keys=True)


def _with(settings: str, **resources: Any) -> Task:
    gang = Task.model_validate({"name": "task", **json.loads(settings)}, context=STORED)
    return gang.model_copy(update={"resources": gang.resources.model_copy(update=resources)})


@lru_cache(maxsize=_REMEMBERED)
def _barred(settings: str, skus: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    broken = {sku: check_task(_with(settings, sku=[sku]), device=device) for sku, device in known_devices(skus).items()}
    return tuple((sku, violations[0].reason) for sku, violations in broken.items() if violations)


@lru_cache(maxsize=_REMEMBERED)
def _working(settings: str, worlds: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(workers for workers in worlds if not check_task(_with(settings, workers=workers)))
