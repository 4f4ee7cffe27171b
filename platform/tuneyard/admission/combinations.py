"""Where the settings of a task can work: on which SKUs, and with how many workers, by the table of rules and by the shape of its model.

What an attempt refuses, the scheduler does not place. Answers are remembered, so that a hub can ask for every job.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Self

from tuneyard.admission.shapes import essence_of, model_of, shape_of
from tuneyard.api import CPU, STORED, BadInput, JobSpec, Task, TrainTask, check_task
from tuneyard.api.rules_examples import SMALLEST
from tuneyard.api.worker_counts import MOST_AUTO, counts_dividing
from tuneyard.catalog import Gpu, ModelShape, canonical_sku, kinds, known_devices
from tuneyard.federation import REFERENCE_SKU, skus_of
from tuneyard.planning import check_layout

_REMEMBERED = 4096
_JUDGED = {"program", "method", "objective", "strategy", "optimizer", "batch", "engine"}
"""What of a task the rules about SKUs and numbers of workers read, beside the attention of its model."""


@dataclass(frozen=True)
class Combinations:
    """The settings of one task, made ready for the questions about them. `task` trains, scores, or is trained by the search asked about."""

    job: JobSpec
    task: Task

    @classmethod
    def of(cls, job: JobSpec, task: Task) -> Self:
        return cls(job, job.spec.gang_of(task))

    def barred_skus(self, offered: Collection[str]) -> dict[str, str]:
        """SKU -> reason, for each that the task may use and on which its settings cannot work, such as flash attention on a T4. `offered`:
        SKUs of the clusters, for a task that names none."""
        if self.task.kind not in SMALLEST:
            return {}
        return dict(_barred(self._settings, self.skus or tuple(sorted({*map(canonical_sku, offered), CPU.sku}))))

    def working_counts(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of workers in `counts` with which no rule breaks and some layout of the model works, where the catalog has its shape.
        Where none is left and `workers` is `auto`: other numbers up to 8."""
        training = self.task.training
        if training is None or (self.is_named and self.model is None):
            return counts
        found = tuple(count for count in counts if not self.why_not(count))
        if found or self.task.resources.workers != "auto":
            return found
        return tuple(count for count in counts_dividing(training, 1, MOST_AUTO) if not self.why_not(count))

    def why_not(self, workers: int) -> str:
        """Why a task cannot work with so many workers, on whatever SKU: by a rule, or by the shape of its model; empty where it can."""
        broken = "" if self.is_named else _broken_by_count(self._settings, workers)
        return broken or ("" if self.model is None else _lack_of_layout(self.essence, self.model.lower(), self._kind, workers))

    @property
    def is_named(self) -> bool:
        """Whether the author names the number of workers, which the rules judge with the rest of the task."""
        return isinstance(self.task.resources.workers, int)

    @cached_property
    def skus(self) -> tuple[str, ...]:
        return skus_of(self.job, self.task)

    @cached_property
    def model(self) -> str | None:
        """The model whose layouts are asked for. A program holds other weights than its model's shape says."""
        body = self.task.train
        return model_of(self.job, self.task) if body is not None and body.program is None else None

    @cached_property
    def essence(self) -> str:
        """Of a task that trains: see `essence_of`."""
        assert self.task.training is not None
        return essence_of(self.task.training)

    @cached_property
    def _settings(self) -> str:
        return _settings_of(self.task)

    @cached_property
    def _kind(self) -> str:
        """A SKU for which a layout is looked for: one on which no rule breaks."""
        barred = self.barred_skus((REFERENCE_SKU,))
        return next((sku for sku in self.skus if sku not in barred and kinds().find(sku) is not None), REFERENCE_SKU)


def lack_of_layout(train: TrainTask, shape: ModelShape, kind: Gpu, workers: int) -> str:
    """Why no layout of a task can work on so many devices of a kind, whatever their memory; empty where one can."""
    try:
        check_layout(train, shape, kind, workers)
    except BadInput as error:
        return f"{error.cause}; {error.next_step}"
    return ""


@lru_cache(maxsize=_REMEMBERED)
def _lack_of_layout(essence: str, name: str, sku: str, workers: int) -> str:
    shape, kind = shape_of(name), kinds().find(sku)
    return lack_of_layout(TrainTask.model_validate_json(essence), shape, kind, workers) if shape is not None and kind is not None else ""


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
def _broken_by_count(settings: str, workers: int) -> str:
    broken = check_task(_with(settings, workers=workers))
    return broken[0].reason if broken else ""
