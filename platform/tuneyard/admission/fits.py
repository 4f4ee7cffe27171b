"""The planner's answer for the model of a train task: SKUs on which it fits, and the number of GPUs of each, for models in the catalog.

The planner is asked where the hub has a choice: `workers` is `auto` or a range, or no SKU is named. A task that names both a number and
SKUs gets them, because its author may know more than the hub, such as rows shorter than `maxLength`. The planner assumes the kernels of the
GPU image, as the attempt does. No file is read and answers are remembered, so that a hub can ask for every job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from tuneyard import planning
from tuneyard.admission.combinations import Combinations
from tuneyard.admission.shapes import shape_of
from tuneyard.api import BadInput, TrainTask
from tuneyard.api.worker_counts import MOST_AUTO, WORKERS_ON_CPU, counts_dividing
from tuneyard.catalog import Gpu, ModelShape, canonical_sku, kinds
from tuneyard.federation import FITS_NEVER, Fits, worlds_of

UNCHECKED = "the hub does not know its model, and has not checked whether it fits"
_CPU = "cpu"
_LARGEST_ON_CPU = 1_000_000_000
"""Parameters of a model that may be placed on `cpu` where its task names no SKU: 16 GB of weights, gradients and optimizer states."""
_MOST_SEARCHED = 1024
"""The most GPUs that are tried. A model that does not fit on them counts as fitting on no number of GPUs of the SKU."""
_REMEMBERED = 4096
_KERNELS: planning.Site = {"liger_available": True, "tensor_parallel": (1,)}
"""As in the GPU image. The attempt chooses tensor parallelism, because it knows the machine. Where a tensor-parallel plan fits, a plan with
ZeRO-3 fits too."""


def fits_of(combinations: Combinations, offered: Collection[str]) -> Fits | None:
    """SKUs and numbers of GPUs on which the model of a task fits. None: the task does not train, or leaves the hub no choice. `offered`:
    SKUs of the clusters."""
    gang, named = combinations.task, combinations.skus
    workers = gang.resources.workers
    training = gang.training
    if training is None or set(named) == {_CPU} or (named and isinstance(workers, int)):
        return None
    name = combinations.model
    shape = shape_of(name) if name is not None else None
    if name is None or shape is None:
        return Fits(worlds=worlds_of(gang), words=UNCHECKED)
    is_small = shape.parameters <= _LARGEST_ON_CPU
    on_cpu = _CPU in named or (not named and is_small)
    skus = tuple(sorted({*(named or map(canonical_sku, offered))} - {_CPU}))
    base = worlds_of(gang)
    if workers == "auto":
        most = WORKERS_ON_CPU if on_cpu and not named else MOST_AUTO
        base = counts_dividing(training, 1, max(most, training.ranks_per_replica)) or (1,)
    found = _planned(combinations.essence, name.lower(), skus, base, workers == "auto", on_cpu)
    cpu = ((_CPU, 1 if on_cpu else FITS_NEVER),) if _CPU in named or not named else ()
    return Fits(worlds=found.worlds, least=tuple(sorted((*found.least, *cpu))), words=found.words)


@lru_cache(maxsize=_REMEMBERED)
def _planned(essence: str, name: str, skus: tuple[str, ...], base: tuple[int, ...], grows: bool, keeps: bool) -> Fits:
    """SKUs and numbers of GPUs on which a task fits. The worlds are numbers of `base` that fit on any of the SKUs (all of `base` with
    `keeps`). With `grows`, the fewest GPUs of each SKU that needs more than `base` follow."""
    task, shape = TrainTask.model_validate_json(essence), shape_of(name)
    assert shape is not None
    asked = {sku: _Asked(task, shape, kind) for sku in skus if (kind := kinds().find(sku)) is not None}
    more = [gpus for gpus in _whole_copies(task, base[0] + 1) if gpus <= MOST_AUTO or gpus % 8 == 0]
    first = {sku: next((gpus for gpus in more if each.fits(gpus)), FITS_NEVER) for sku, each in asked.items() if not each.fits_any(base)}
    unknown = {sku: 1 for sku in skus if sku not in asked}
    fitting = [gpus for gpus in base if keeps or unknown or any(each.fits(gpus) for each in asked.values())]
    grown = sorted({gpus for gpus in first.values() if grows and gpus != FITS_NEVER})
    worlds = (*fitting, *grown) or base
    least = {sku: min(each.least(worlds), first.get(sku, FITS_NEVER)) for sku, each in asked.items()}
    # Where the smallest world of `base` fits, memory sets no limit: a lack of free GPUs has another reason then.
    least = {sku: 1 if gpus == min(base) else gpus for sku, gpus in least.items()}
    needs_more = first and len(first) == len(skus)
    return Fits(worlds=worlds, least=(*least.items(), *unknown.items()), words=_advice(asked, least, base) if needs_more else "")


def _whole_copies(task: TrainTask, least: int) -> Sequence[int]:
    """Numbers of GPUs from `least` on that form whole copies of the model over which the batch divides, in ascending order."""
    if task.batch.is_open:
        return [gpus for gpus in range(least, _MOST_SEARCHED + 1) if gpus % task.ranks_per_replica == 0]
    return counts_dividing(task, least, _MOST_SEARCHED)[::-1]


class _Asked:
    """The planner's answers for one task on one kind of GPU."""

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
        """The smallest world from which on the task fits on all larger ones. A plan without ZeRO may fit on one GPU, and not on two."""
        least = FITS_NEVER
        for gpus in sorted(worlds, reverse=True):
            if not self.fits(gpus):
                break
            least = gpus
        return least

    def advice(self, gpus: int) -> str:
        """The smallest change of the task with which it fits on a number of GPUs."""
        try:
            planning.resolve(self.task, self.shape, self.kind, gpus, **_KERNELS)
        except BadInput as error:
            return error.next_step or ""
        return ""


def _advice(asked: dict[str, _Asked], least: dict[str, int], base: Sequence[int]) -> str:
    """The advice for the SKU with the fewest needed GPUs; for equal numbers, the SKU with the most memory."""
    best = min(asked, key=lambda sku: (least[sku], -asked[sku].kind.memory_gb, sku))
    return asked[best].advice(base[0])
