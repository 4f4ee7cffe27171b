"""Combinations that can work: SKUs and numbers of workers for the settings of a task, by the table of rules and the shape of its model.

The scheduler never places a task where its attempt would refuse it. Answers are remembered, so that a hub can ask for every job.
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
"""Fields of a task that the rules about SKUs and numbers of workers read, beside the attention of its model."""


@dataclass(frozen=True)
class Combinations:
    """The settings of one task, and the combinations with which they can work. `task` is the train, score or rank task; for a search, it is
    the task that the search trains."""

    job: JobSpec
    task: Task

    @classmethod
    def of(cls, job: JobSpec, task: Task) -> Self:
        return cls(job, job.spec.gang_of(task))

    def barred_skus(self, offered: Collection[str]) -> dict[str, str]:
        """Reasons by SKU, for SKUs that the task allows and on which its settings cannot work, such as flash attention on a T4. `offered`:
        SKUs of the clusters, for a task that names none."""
        if self.task.kind not in SMALLEST:
            return {}
        return dict(_barred(self._settings, self.skus or tuple(sorted({*map(canonical_sku, offered), CPU.sku}))))

    def working_counts(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of workers from `counts` that break no rule, and with which some layout of the model works (where the catalog has its
        shape). If all are excluded and `workers` is `auto`: other numbers up to 8."""
        training = self.task.training
        if training is None or (self.is_named and self.model is None):
            return counts
        found = tuple(count for count in counts if not self.why_not(count))
        if found or self.task.resources.workers != "auto":
            return found
        return tuple(count for count in counts_dividing(training, 1, MOST_AUTO) if not self.why_not(count))

    def why_not(self, workers: int) -> str:
        """Why a task cannot work with a number of workers on any SKU: a rule, or the shape of its model. Empty: it can."""
        broken = "" if self.is_named else _broken_by_count(self._settings, workers)
        return broken or ("" if self.model is None else _lack_of_layout(self.essence, self.model.lower(), self._kind, workers))

    @property
    def is_named(self) -> bool:
        """Whether the author names the number of workers. The rules judge a named number together with the rest of the task."""
        return isinstance(self.task.resources.workers, int)

    @cached_property
    def skus(self) -> tuple[str, ...]:
        return skus_of(self.job, self.task)

    @cached_property
    def model(self) -> str | None:
        """The name of the model whose layouts are planned. None for a program, because its weights differ from the shape of its model; and
        None where the name is unknown."""
        body = self.task.train
        return model_of(self.job, self.task) if body is not None and body.program is None else None

    @cached_property
    def essence(self) -> str:
        """`essence_of` the task, which trains."""
        assert self.task.training is not None
        return essence_of(self.task.training)

    @cached_property
    def _settings(self) -> str:
        return _settings_of(self.task)

    @cached_property
    def _kind(self) -> str:
        """The SKU for which a layout is searched: the first known one that is not barred, else the reference."""
        barred = self.barred_skus((REFERENCE_SKU,))
        return next((sku for sku in self.skus if sku not in barred and kinds().find(sku) is not None), REFERENCE_SKU)


def lack_of_layout(train: TrainTask, shape: ModelShape, kind: Gpu, workers: int) -> str:
    """Why no layout of a task can work on a number of devices of a kind, even with unlimited memory. Empty: some layout can."""
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
    """The fields of a task that rules about SKUs and numbers of workers read, as JSON of a Task. They are equal for jobs that differ only
    in their data. `check_rules` has checked all other rules before."""
    kind = gang.kind
    body = getattr(gang, kind)
    settings = {**SMALLEST[kind], **body.model_dump(mode="json", by_alias=True, exclude_unset=True, include=_JUDGED)}
    if gang.endpoint is not None:
        del settings["model"]  # an endpoint has its own
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
