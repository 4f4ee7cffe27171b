"""Score tasks of a job whose prompts stand in the data that their model was trained on in the same job (`data.overlap`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tuneyard.api import JobSpec, Task, TuneyardError
from tuneyard.runtime.references import source_of, train_data_of
from tuneyard.storage import is_local

if TYPE_CHECKING:
    from tuneyard.data.overlap import Trained


def overlaps_of(job: JobSpec, base_dir: Path) -> Iterator[tuple[str, str]]:
    """Score task and warning. Only data on this machine are compared; faults of data are told by other checks."""
    from tuneyard.data.overlap import overlap_of

    known: dict[tuple[str, ...], Trained] = {}
    for task in job.spec.tasks:
        score = task.score
        if score is None or score.judge is not None or score.data.lm_eval is not None or not _is_here(score.data.source):
            continue
        chain = tuple(_trained(job, task))
        if not chain:
            continue
        try:
            if chain not in known:
                known[chain] = _trained_on(job, chain, base_dir)
            found = overlap_of(source_of(score.data, base_dir, {}), known[chain])
        except TuneyardError:
            continue
        if found is not None:
            yield task.name, found.words(" and ".join(chain))


def _is_here(source: str | None) -> bool:
    """Whether a data set lies on this machine; a path relative to the JobSpec does."""
    return source is not None and is_local(source)


def _trained(job: JobSpec, task: Task) -> Iterator[str]:
    """The train tasks that have made the model of a task."""
    body = task.score or task.train
    while body is not None and body.model.from_task is not None:
        maker = job.spec.task(body.model.from_task)
        if maker.train is not None and maker.train.program is None:
            yield maker.name
        body = maker.train


def _trained_on(job: JobSpec, names: tuple[str, ...], base_dir: Path) -> Trained:
    from tuneyard.data.mix_parts import data_sets
    from tuneyard.data.overlap import Trained
    from tuneyard.data.way import VALIDATION

    trained = [train for name in names if (train := job.spec.task(name).train) is not None]
    return Trained(
        [
            (train_data_of(data, base_dir, {}), train.objective)
            for train in trained
            for of_set, data in data_sets(train.data).items()
            if of_set != VALIDATION and _is_here(data.source)
        ]
    )
