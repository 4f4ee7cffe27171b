"""From the rank task of a JobSpec to a ranker's config."""

from __future__ import annotations

from tuneyard.api import RankTask
from tuneyard.data.tables import Pipeline
from tuneyard.ranking.config import EnsembleLayer, RankerConfig, SparseFeature


def config_of_task(task: RankTask) -> RankerConfig:
    """The ranker that a rank task trains. Raises BadInput."""
    return RankerConfig(
        dense=tuple(task.features.dense),
        sparse=tuple(SparseFeature(column.name, column.rows, column.pooling, column.length) for column in task.features.sparse),
        layers=tuple(EnsembleLayer(tuple(modules), task.model.outputs, task.model.ensemble) for modules in task.model.layers),
        width=task.model.width,
        hidden=tuple(task.model.hidden),
        tasks=tuple(task.labels),
        transforms=training_steps(task).without_sampling,
    )


def training_steps(task: RankTask) -> Pipeline:
    """The transforms of a task including sampling, which drops training rows. Raises BadInput."""
    return Pipeline.of(step.as_step() for step in task.transforms)
