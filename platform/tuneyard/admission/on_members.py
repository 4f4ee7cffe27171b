"""Obstacles to a job on all members of a hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuneyard.admission.combinations import Combinations
from tuneyard.admission.refusal import Refusal
from tuneyard.api import Device, JobSpec, check_rules, check_task
from tuneyard.federation import skus_of, unmatched_skus, worlds_of


def refusals_anywhere(job: JobSpec, devices: Mapping[str, Device], model_types: Mapping[str, str]) -> Iterator[Refusal]:
    """Broken rules, and tasks that can run nowhere. `devices`: facts of the SKUs that tasks name; `model_types`: by task; both as far as
    they are known.
    """
    for found in check_rules(job, devices, model_types=model_types):
        yield Refusal(found.path, found.reason)
    for index, reason in unmatched_skus(job):
        yield Refusal(("spec", "tasks", index, "resources", "sku"), reason)
    yield from _unusable_placements(job)
    yield from _without_workers(job)


def refusals_of_hub(job: JobSpec) -> Iterator[Refusal]:
    """Settings that one machine supports, and a hub does not."""
    for index, task in enumerate(job.spec.tasks):
        if task.tune is not None and job.spec.gang_of(task).score is not None:
            reason = f"names the score task {task.tune.task}, and settings of engines are searched on one machine: run tuneyard tune there"
            yield Refusal(("spec", "tasks", index, "tune", "task"), reason)
        if task.tune is not None and "resources.workers" in task.tune.space:
            reason = "a search on a cluster runs on one gang; leave resources.workers out"
            yield Refusal(("spec", "tasks", index, "tune", "space"), reason)


def _unusable_placements(job: JobSpec) -> Iterator[Refusal]:
    """Tasks that name no SKU and can work on none that `placement.skus` allows."""
    for index, task in enumerate(job.spec.tasks):
        allowed = skus_of(job, task)
        if allowed and not task.resources.sku and (barred := Combinations.of(job, task).barred_skus(())) and {*allowed} <= barred.keys():
            reason = f"placement.skus allows {', '.join(allowed)} alone: {next(iter(barred.values()))}"
            yield Refusal(("spec", "tasks", index, "resources", "sku"), reason)


def _without_workers(job: JobSpec) -> Iterator[Refusal]:
    for index, task in enumerate(job.spec.tasks):
        if task.training is None:
            continue
        counts, combinations = worlds_of(task), Combinations.of(job, task)
        if combinations.working_counts(counts) or check_task(task):
            continue  # the rules report a task that is wrong with any number
        why = combinations.why_not(counts[0])
        if not isinstance(task.resources.workers, int):
            why = f"no number of workers that batch and resources allow can work; with {counts[0]}: {why}"
        yield Refusal(("spec", "tasks", index, "resources", "workers"), why)
