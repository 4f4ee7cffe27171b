"""Warnings about an admitted job: a task may not end by the job's deadline."""

from __future__ import annotations

from collections.abc import Iterator

from tuneyard.admission.asks import least_s
from tuneyard.admission.combinations import Combinations
from tuneyard.admission.fits import fits_of
from tuneyard.api import JobSpec
from tuneyard.api.loading_yaml import Path
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
