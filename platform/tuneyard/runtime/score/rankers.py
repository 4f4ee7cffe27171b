"""Recognises score tasks whose model is a ranker before they start, so that they are not checked as language models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuneyard.api import Job, Task
from tuneyard.runtime.references import named_model

if TYPE_CHECKING:
    from tuneyard.ranking import RankerConfig


def ranker_of(job: Job, task: Task, base_dir: Path) -> RankerConfig | None:
    """The ranker of a score task, from the rank task or the folder that it names.

    None for any other task, and for a model that a process task will make, or that an attempt on a member knows only by its URI.
    """
    if task.score is None:
        return None
    from tuneyard.ranking import config_of_task, holds_ranker, read_config  # transforms need pyarrow, which hubs lack

    model = task.score.model
    source = next((each for each in job.tasks if each.name == model.from_task), None)
    if source is not None and source.rank is not None:
        return config_of_task(source.rank)
    uri = named_model(model.name, base_dir) if model.name is not None else ""
    return read_config(uri) if uri and holds_ranker(uri) else None


def check_scored_table(task: Task, config: RankerConfig, uri: str) -> None:
    """Raises BadInput for a table that the ranker of a score task cannot score. Reads only the footers of its files."""
    from tuneyard.scoring.ranker.table import RankedTable

    assert task.score is not None
    data = task.score.data.model_copy(update={"source": uri, "from_task": None})
    RankedTable.open(task.score.model_copy(update={"data": data}), config)
