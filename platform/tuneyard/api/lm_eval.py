"""Tasks of lm-evaluation-harness as the data of a score task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from tuneyard.api.base import Fields, located

if TYPE_CHECKING:
    from tuneyard.api.score import ScoreTask

MOST_TASKS = 256
TaskName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.()+-]*$", max_length=128)]
_NO_MEANING = (
    *("judge", "metrics", "own_metrics", "metrics_dir", "answer", "ignore", "bleu", "numeric", "pass_at", "choices", "embedding"),
    *("ranking", "max_error_fraction"),
)
"""Fields of a score task whose part the harness plays."""


class LmEval(Fields):
    """Tasks of lm-evaluation-harness: they make the prompts, and its own code computes the figures."""

    tasks: list[TaskName] = Field(
        min_length=1, max_length=MOST_TASKS, description="names of tasks, groups or tags, such as arc_easy, mmlu or my own of folder"
    )
    folder: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="folder with YAML files of own tasks, and their data and modules: a path, which `tuneyard submit` ships, or a URI; "
        "paths in the files start there; default: the tasks that the package brings",
    )
    fewshot: int | None = Field(default=None, ge=0, le=1000, description="examples in each prompt; default: as each task says, or none")
    limit: int | None = Field(default=None, ge=1, description="the first N documents of each task only; default: all")
    chat: bool = Field(default=False, description="render prompts with the chat template, examples as turns; default: plain text")

    @model_validator(mode="after")
    def _names_each_task_once(self) -> Self:
        for place, name in enumerate(self.tasks):
            if name in self.tasks[:place]:
                raise located(f"{name} is named twice: leave one out", "tasks", place)
        return self


def check_harness(task: ScoreTask) -> None:
    """Raises an error for the first field of a score task that has no meaning beside `data.lmEval`."""
    if task.data.lm_eval is None:
        return
    for field in _given(task, _NO_MEANING):
        raise located(f"tasks of lm-evaluation-harness bring their own metrics and answers: leave {field} out", field)
    for field in _given(task.generation, [name for name in type(task.generation).model_fields if name != "seed"]):
        raise located(
            f"generation_kwargs of each task of lm-evaluation-harness say how it generates: leave {field} out", "generation", field
        )
    if task.engine.endpoint is not None:
        reason = "endpoints give no likelihoods of given texts, which tasks of lm-evaluation-harness ask for: leave endpoint out"
        raise located(reason, "engine", "endpoint")


def other_fields(data: Fields) -> Iterator[str]:
    """Fields of `score.data` beside lmEval that are given, by their names in YAML."""
    return _given(data, [name for name in type(data).model_fields if name != "lm_eval"])


def as_data(metrics: object) -> str | None:
    """What to write instead, where `metrics` names a task of lm-evaluation-harness as a metric: `lm_eval: TASK`."""
    for each in metrics if isinstance(metrics, list) else []:
        for key in ("lm_eval", "lmEval", "lm-eval"):
            if isinstance(each, dict) and key in each:
                named = each[key] if isinstance(each[key], list) else [each[key]]
                return f"lmEval: {{tasks: [{', '.join(map(str, named))}]}}"
    return None


def _given(fields: Fields, names: Iterable[str]) -> Iterator[str]:
    """Those of `names` with another value than their default, by their names in YAML."""
    for name in names:
        info = type(fields).model_fields[name]
        if name in fields.model_fields_set and getattr(fields, name) != info.get_default(call_default_factory=True):
            yield info.alias or name
