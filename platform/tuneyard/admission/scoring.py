"""The predicted duration of a score task on the reference SKU, for models in the catalog and tasks that say how many rows they take.

No file is read: prompts count 512 tokens, and answers `generation.maxTokens`, the most they can have.
"""

from __future__ import annotations

from functools import lru_cache

from tuneyard.admission.shapes import model_origin, shape_of
from tuneyard.api import CPU, BadInput, JobSpec, ScoreTask, Task
from tuneyard.catalog import kinds
from tuneyard.federation import REFERENCE_SKU, skus_of, speed_factor
from tuneyard.planning import engine_length, gpus_of_machine, keeps_no_cache, resolve_engine_plan
from tuneyard.planning.engines import ScorePlan, row_lengths, rows_at_most, uncounted

_REMEMBERED = 4096


def scored_s(job: JobSpec, task: Task) -> float | None:
    """Predicted seconds of a score task on the reference SKU. None: its rows or its model are unknown, or an endpoint answers."""
    score = task.score
    assert score is not None
    rows = rows_at_most(score)
    skus = tuple(sku for sku in skus_of(job, task) if sku != CPU.sku)
    on_cpu = not skus and bool(skus_of(job, task))
    name = _model_of(job, task)
    if rows is None or name is None or task.endpoint is not None or on_cpu:
        return None
    essence = score.model_copy(update={"data": score.data.model_copy(update={"source": "any", "from_task": None, "path": None})})
    return _planned_s(essence.model_dump_json(by_alias=True, exclude_unset=True), name.lower(), rows, task.resources.instances, skus)


def _model_of(job: JobSpec, task: Task) -> str | None:
    origin = model_origin(job, task)
    body = origin.train or origin.score
    return body.model.name if body is not None and body.model.revision is None else None


@lru_cache(maxsize=_REMEMBERED)
def _planned_s(essence: str, name: str, rows: int, instances: int, skus: tuple[str, ...]) -> float | None:
    task, shape = ScoreTask.model_validate_json(essence), shape_of(name)
    if shape is None or keeps_no_cache(shape):
        return None
    for sku in dict.fromkeys((*([REFERENCE_SKU] if not skus or REFERENCE_SKU in skus else []), *skus)):
        kind = kinds().find(sku)
        if kind is None:
            continue
        try:
            found = resolve_engine_plan(task, shape, kind, instances=instances, gpus_per_node=gpus_of_machine(task))
            lengths = row_lengths(task, uncounted(rows), max_length=engine_length(task, shape))
        except BadInput:  # no engine fits there
            continue
        time = ScorePlan.of(task, shape, kind, found, lengths, instances=instances).time(rows)
        return time.total_s * speed_factor(sku)
    return None
