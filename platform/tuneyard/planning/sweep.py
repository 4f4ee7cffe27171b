"""Plans of a train task under each combination of some settings, each at its largest micro-batch without accumulation.

A setting that saves memory, such as offloading, is slower at equal batches and pays where it makes room for larger ones. So each
combination is compared at the largest micro-batch that it can hold, as in Uber's figures of MFU by optimization (*Open Source and In-House:
How Uber Optimizes LLM Training*, 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Unpack

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.open_batch import largest
from tuneyard.planning.plan import Plan
from tuneyard.planning.site import Site


@dataclass(frozen=True)
class Swept:
    """A setting to sweep. `path`: its fields in a train task. `values`: without the optimization first."""

    path: tuple[str, ...]
    values: tuple[Any, ...]


SWEPT: Mapping[str, Swept] = {
    "offload": Swept(("strategy", "offload", "optimizer"), ("none", "cpu")),
    "flash": Swept(("model", "attention"), ("eager", "flash")),
    "recompute": Swept(("strategy", "recompute"), (False, True)),
    "zero": Swept(("strategy", "zero"), (0, 1, 2, 3)),
    "tensorParallel": Swept(("strategy", "tensorParallel"), (1, 2, 4, 8)),
}


@dataclass(frozen=True)
class Case:
    """One combination. `settings`: value by the name of the sweep. `plan` None: not one row fits, or the combination is refused (`why`)."""

    settings: Mapping[str, Any]
    plan: Plan | None
    why: str = ""


def sweep(
    names: Sequence[str],
    task: TrainTask,
    shape: ModelShape,
    gpu: Gpu,
    workers: int,
    check: Callable[[TrainTask], None] = lambda _: None,
    **site: Unpack[Site],
) -> Iterator[Case]:
    """A case for each combination of settings, the last named one changing first. `names`: keys of `SWEPT`. `check` raises BadInput for a
    combination that cannot work.
    """
    for values in product(*(SWEPT[name].values for name in names)):
        settings = dict(zip(names, values, strict=True))
        try:
            check(asked := _with(task, settings))
            plan = largest(asked, shape, gpu, workers, **site)
        except BadInput as error:
            yield Case(settings, None, error.cause)
        else:
            yield Case(settings, plan, "" if plan is not None else "not one row fits")


def _with(task: TrainTask, settings: Mapping[str, Any]) -> TrainTask:
    """The task with the settings of a case. Raises BadInput where the task's own rules refuse them."""
    fields = task.model_dump(by_alias=True, exclude_unset=True)
    if fields.get("strategy") == "auto":
        del fields["strategy"]
    for name, value in settings.items():
        *groups, last = SWEPT[name].path
        inner = fields
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    try:
        return TrainTask.model_validate(fields)
    except ValueError as error:
        raise BadInput(str(error).splitlines()[-1].strip(), "sweep other settings") from error
