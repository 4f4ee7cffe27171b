"""On which SKUs, and on how many GPUs of each, the model of a train task fits: the planner's answer, for models in the catalog.

The planner is asked where the hub has a choice: `workers` is `auto` or a range, or no SKU is named. A task that names a number and its SKUs
gets them: its author may know what a hub does not, such as rows that are shorter than `maxLength`. The planner is asked as the attempt will
ask it, with the kernels of the GPU image. Nothing is read for it, and answers are remembered, so that a hub can ask for every job.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import lru_cache

from tuneyard import planning
from tuneyard.api import BadInput, JobSpec, Task, TrainTask
from tuneyard.catalog import Gpu, ModelShape, canonical_sku, kinds, known_config, shape_from_config
from tuneyard.federation import FITS_NEVER, MOST_AUTO, WORKERS_ON_CPU, Fits, skus_of, worlds_dividing, worlds_of

UNCHECKED = "its model is not known to the hub, so that nobody checked whether it fits"
_CPU = "cpu"
_LARGEST_ON_CPU = 1_000_000_000
"""Parameters of a model that may be placed on `cpu` where its task names no SKU: 16 GB of weights, gradients and optimizer states."""
_MOST_SEARCHED = 1024
"""GPUs: a model that does not fit on so many of a SKU is said to fit on none."""
_REMEMBERED = 4096
_KERNELS: planning.Site = {"liger_available": True, "tensor_parallel": (1,)}
"""As in the GPU image. Tensor parallelism is the attempt's choice, on machines that it knows; where one fits, ZeRO-3 does too."""


def fits_of(job: JobSpec, task: Task, offered: Collection[str]) -> Fits | None:
    """Where the model of a task fits; None where the task does not train, or leaves the hub no choice. `offered`: SKUs of the clusters."""
    gang = job.spec.gang_of(task)
    named = skus_of(job, gang)
    workers = gang.resources.workers
    training = gang.training
    if training is None or set(named) == {_CPU} or (named and isinstance(workers, int)):
        return None
    name = model_of(job, gang) if training.program is None else None  # the shape says nothing of a program's memory
    shape = shape_of(name) if name is not None else None
    if name is None or shape is None:
        return Fits(worlds=worlds_of(gang), words=UNCHECKED)
    is_small = shape.parameters <= _LARGEST_ON_CPU
    on_cpu = _CPU in named or (not named and is_small)
    skus = tuple(sorted({*(named or map(canonical_sku, offered))} - {_CPU}))
    base = worlds_of(gang)
    if workers == "auto":
        most = WORKERS_ON_CPU if on_cpu and not named else MOST_AUTO
        base = worlds_dividing(training, 1, max(most, training.ranks_per_replica)) or (1,)
    found = _planned(essence_of(training), name.lower(), skus, base, workers == "auto", on_cpu)
    cpu = ((_CPU, 1 if on_cpu else FITS_NEVER),) if _CPU in named or not named else ()
    return Fits(worlds=found.worlds, least=tuple(sorted((*found.least, *cpu))), words=found.words)


def model_of(job: JobSpec, task: Task) -> str | None:
    """The name of the model that a train task starts from, through the train tasks before it; None where it is pinned, or made."""
    body = task.train
    while body is not None and body.model.from_task is not None:
        body = job.spec.task(body.model.from_task).train
    return body.model.name if body is not None and body.model.revision is None else None


def shape_of(name: str) -> ModelShape | None:
    """The shape of a model by its name; None where the catalog lacks it."""
    return _shape(name.lower()) if known_config(name) is not None else None


@lru_cache(maxsize=_REMEMBERED)
def _shape(name: str) -> ModelShape:
    return shape_from_config(known_config(name) or {})


def essence_of(train: TrainTask) -> str:
    """All of a train task that a plan depends on beside the shape of its model, as JSON of a TrainTask: equal tasks have equal plans."""
    values = train.model_dump(mode="json", by_alias=True, include={"method", "objective", "batch", "strategy"})
    values["model"] = {"name": "any", "attention": train.model.attention}
    values["data"] = {"source": "any", "maxLength": train.data.max_length}
    values["optimizer"] = {"name": train.optimizer.name}
    return json.dumps(values, sort_keys=True)


@lru_cache(maxsize=_REMEMBERED)
def _planned(essence: str, name: str, skus: tuple[str, ...], base: tuple[int, ...], grows: bool, keeps: bool) -> Fits:
    """Where a task fits on GPUs. Worlds are those of `base` that fit on any of the SKUs; all, where a gang `keeps` them. Where it `grows`,
    the fewest GPUs of each SKU that needs other numbers come after these."""
    task, shape = TrainTask.model_validate_json(essence), shape_of(name)
    assert shape is not None
    asked = {sku: _Asked(task, shape, kind) for sku in skus if (kind := kinds().find(sku)) is not None}
    more = [gpus for gpus in reversed(worlds_dividing(task, base[0] + 1, _MOST_SEARCHED)) if gpus <= MOST_AUTO or gpus % 8 == 0]
    first = {sku: next((gpus for gpus in more if each.fits(gpus)), FITS_NEVER) for sku, each in asked.items() if not each.fits_any(base)}
    unknown = {sku: 1 for sku in skus if sku not in asked}
    fitting = [gpus for gpus in base if keeps or unknown or any(each.fits(gpus) for each in asked.values())]
    grown = sorted({gpus for gpus in first.values() if grows and gpus != FITS_NEVER})
    worlds = (*fitting, *grown) or base
    least = {sku: min(each.least(worlds), first.get(sku, FITS_NEVER)) for sku, each in asked.items()}
    # Where the smallest that is asked for fits, the model sets no limit: that there is no room for so many has another reason.
    least = {sku: 1 if gpus == min(base) else gpus for sku, gpus in least.items()}
    needs_more = first and len(first) == len(skus)
    return Fits(worlds=worlds, least=(*least.items(), *unknown.items()), words=_advice(asked, least, base) if needs_more else "")


class _Asked:
    """What the planner says of one task on one kind of GPU."""

    def __init__(self, task: TrainTask, shape: ModelShape, kind: Gpu) -> None:
        self.task = task
        self.shape = shape
        self.kind = kind
        self._known: dict[int, bool] = {}

    def fits(self, gpus: int) -> bool:
        if gpus not in self._known:
            self._known[gpus] = planning.fits(self.task, self.shape, self.kind, gpus, **_KERNELS)
        return self._known[gpus]

    def fits_any(self, worlds: Sequence[int]) -> bool:
        return any(self.fits(gpus) for gpus in worlds)

    def least(self, worlds: Sequence[int]) -> int:
        """The smallest of the worlds from which on it fits on all: a plan without ZeRO may fit on one GPU, and not on two."""
        least = FITS_NEVER
        for gpus in sorted(worlds, reverse=True):
            if not self.fits(gpus):
                break
            least = gpus
        return least

    def advice(self, gpus: int) -> str:
        """The smallest change of the task with which it fits on so many GPUs."""
        try:
            planning.resolve(self.task, self.shape, self.kind, gpus, **_KERNELS)
        except BadInput as error:
            return error.next_step or ""
        return ""


def _advice(asked: dict[str, _Asked], least: dict[str, int], base: Sequence[int]) -> str:
    """What would help on the SKU of which the fewest GPUs are needed; of equal ones, on that with most memory."""
    best = min(asked, key=lambda sku: (least[sku], -asked[sku].kind.memory_gb, sku))
    return asked[best].advice(base[0])
