"""Settings that a tune task may choose, by their paths in the JobSpec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import ValidationError

from tuneyard.api.errors import BadInput
from tuneyard.api.tasks import Task, TaskKind, TuneTask

WORKERS = "resources.workers"
MICRO_BATCH = "batch.micro"
DATA_WORKERS = "data.workers"
INSTANCES = "resources.instances"
ENGINE_BATCH = "engine.batch"
ENGINE_DEGREE = "engine.tensorParallel"
SHARDING, EXCHANGE = "tables.sharding", "tables.exchange"
LEAST_RUNS_OF_GANG = 4
"""Fewest runs of a search for each of its gangs. Pairs take at most half of them, so that each gang tries at least one other setting."""


SearchedKind = TaskKind | Literal["program"]
"""A kind of task whose settings are searched. A train task with a program is one of its own."""


@dataclass(frozen=True)
class Setting:
    """A field that a search may choose, for tasks of these `kinds`. `if_listed`: why it is tried only where the JobSpec lists its values;
    empty: it is part of the usual space where it has an effect.
    """

    kinds: tuple[SearchedKind, ...]
    if_listed: str = ""


_ROUNDS = "it rounds differently, and changes what is learned"
_LEARNS = "it changes what is learned"
_COMPILES = "each trial compiles for a minute"
_ANSWERS = "it changes the answers"
_BOTH: tuple[SearchedKind, ...] = ("train", "rank")
_EACH: tuple[SearchedKind, ...] = (*_BOTH, "program")

SETTINGS: Mapping[str, Setting] = {
    "strategy.zero": Setting(_EACH),
    "strategy.recompute": Setting(_BOTH),
    "strategy.precision": Setting(_EACH, _ROUNDS),
    "strategy.liger": Setting(("train",)),
    "strategy.compile": Setting(("train",), _COMPILES),
    "strategy.tensorParallel": Setting(("train", "program")),
    "strategy.sequenceParallel": Setting(("train",)),
    "strategy.contextParallel": Setting(("train",)),
    "strategy.shardWithin": Setting(_EACH),
    "strategy.quantisedAllReduce": Setting(_EACH, _ROUNDS),
    "strategy.offload.optimizer": Setting(_EACH),
    "strategy.offload.parameters": Setting(_EACH, "it is slow wherever the weights fit"),
    MICRO_BATCH: Setting(_EACH),
    "optimizer.name": Setting(_BOTH, _LEARNS),
    "optimizer.states": Setting(_BOTH, _ROUNDS),
    "model.attention": Setting(("train",)),
    "data.pack": Setting(("train",), _LEARNS),
    DATA_WORKERS: Setting(("train", "program")),
    SHARDING: Setting(("rank",)),
    EXCHANGE: Setting(("rank",), _ROUNDS),
    "tables.rows": Setting(("rank",), _ROUNDS),
    "tables.offload": Setting(("rank",)),
    WORKERS: Setting(_EACH),
    ENGINE_BATCH: Setting(("score",)),
    ENGINE_DEGREE: Setting(("score",)),
    "engine.stepTokens": Setting(("score",)),
    "engine.prefixCache": Setting(("score",)),
    "engine.memoryFraction": Setting(("score",)),
    "engine.kvCache": Setting(("score",), "it takes memory of the host"),
    "engine.eager": Setting(("score",), "it starts sooner and runs slower, and a trial measures how it runs"),
    "engine.precision": Setting(("score",), _ANSWERS),
    INSTANCES: Setting(("score",)),
}
"""The table of all fields that can be searched: paths below the body of the task, or below `resources`."""


def tunable(kind: str) -> tuple[str, ...]:
    """Paths of the fields that a search over a task of this kind may choose."""
    return tuple(path for path, setting in SETTINGS.items() if kind in setting.kinds)


def usually_searched(kind: str) -> tuple[str, ...]:
    """Those that a search may change where the JobSpec lists no space."""
    return tuple(path for path in tunable(kind) if not SETTINGS[path].if_listed)


def searched_as(task: Task) -> SearchedKind:
    """The kind of a task in the table."""
    return "program" if task.train is not None and task.train.program is not None else task.kind


def problems_of_search(tune: TuneTask, task: Task, others: Sequence[Task]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is wrong with a search over `task` of a job with the tasks `others`: place below `tune`, and reason."""
    if why := _no_search(task, others):
        yield ("task",), why
        return
    foreign, own = ("steps_per_trial", "rowsPerTrial") if task.score is not None else ("rows_per_trial", "stepsPerTrial")
    if foreign in tune.model_fields_set:
        alias = TuneTask.model_fields[foreign].alias or foreign
        yield (alias,), f"has no meaning for the {task.kind} task {task.name}: set {own}"
    for place, reason in problems_of_space(task, tune.space):
        yield ("space", *place), reason
    if tune.budget.at_once > 1 and (why := _no_gangs(tune, task)):
        yield ("budget", "atOnce"), why


def _no_search(task: Task, others: Sequence[Task]) -> str:
    """Why nothing can be searched for a task; empty if something can."""
    if task.training is None and task.score is None:
        names = ", ".join(other.name for other in others if other.training is not None or other.score is not None)
        hint = f"name one of: {names}" if names else "the job has none"
        return f"names the {task.kind} task {task.name}, which is no train, rank or score task: {hint}"
    if task.training is not None and task.training.batch.is_open:
        return f"names the task {task.name}, whose batch.global is auto: trials are compared at one number of rows, so set it to a number"
    if task.endpoint is not None:
        return f"names the task {task.name}, whose rows an endpoint answers: settings are searched for engines of the job"
    if task.score is not None and task.score.data.lm_eval is not None:
        return f"names the task {task.name}, whose rows come from lm-evaluation-harness: search on a task with rows of your own"
    if task.score is not None and any(other.name == task.score.model.from_task and other.rank is not None for other in others):
        return f"names the task {task.name}, in which a ranker scores: settings are searched for language models' engines"
    return ""


def _no_gangs(tune: TuneTask, task: Task) -> str:
    """Why several gangs cannot search for a task at once; empty if they can. Gangs are of one size, so that machines can be divided among
    them before a search begins."""
    budget = tune.budget
    if task.training is None:
        return f"engines of the score task {task.name} are tried one after the other: leave atOnce out"
    if not isinstance(task.resources.workers, int):
        return f"gangs at once are of one size: set resources.workers of the task {task.name} to a number"
    if WORKERS in tune.space:
        return f"gangs at once are of one size: leave {WORKERS} out of the space, or leave atOnce out"
    if task.training.data.service is not None:
        return f"gangs at once would take rows from one data service, and slow each other: leave data.service of {task.name} out, or atOnce"
    if budget.trials < LEAST_RUNS_OF_GANG * budget.at_once:
        least = LEAST_RUNS_OF_GANG * budget.at_once
        return f"{budget.at_once} gangs have work for {least} trials and more: raise trials to {least}, or lower atOnce"
    return ""


def problems_of_space(task: Task, space: Mapping[str, Sequence[Any]]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is wrong with the space of a tune task over `task`: place below `space`, and reason.

    A value is wrong if its own field refuses it. Whether values work together is the planner's answer, for each combination.
    """
    kind = searched_as(task)
    known = tunable(kind)
    for path, values in space.items():
        if path not in known:
            near = get_close_matches(path, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"tunable are {', '.join(known)}"
            yield (path,), f"cannot be tuned for the {task.kind} task {task.name}{' by a program' * (kind == 'program')}: {hint}"
            continue
        if not values:
            yield (path,), "has no value: list some, or leave the setting out"
        for index, value in enumerate(values):
            if any(value == other and type(value) is type(other) for other in values[:index]):
                yield (path, index), f"{value!r} stands there twice"
            elif reason := _why_refused(task, path, value):
                yield (path, index), reason


def apply_settings(task: Task, point: Mapping[str, Any]) -> Task:
    """The task with these settings. Raises BadInput for invalid values."""
    try:
        return _with_settings(task, point)
    except ValidationError as error:
        raise BadInput(f"{dict(point)}: {error.errors()[0]['msg']}", "take other values") from error


def _why_refused(task: Task, path: str, value: Any) -> str:
    """Why a field refuses a value; empty if it takes it, or if only another field stands against it."""
    try:
        _with_settings(task, {path: value})
    except ValidationError as error:
        parts = path.split(".") if _is_of_resources(path) else [task.kind, *path.split(".")]
        for problem in error.errors():
            place = iter(map(str, problem["loc"]))  # between the fields stand the names of a union's members
            if all(part in place for part in parts):
                return f"{value!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
    return ""


def _is_of_resources(path: str) -> bool:
    return path.startswith("resources.")


def _with_settings(task: Task, point: Mapping[str, Any]) -> Task:
    values = task.to_yaml_dict()
    for path, value in point.items():
        *groups, last = path.split(".")
        place = values if _is_of_resources(path) else values[task.kind]
        for group in groups:
            if not isinstance(place.get(group), dict):  # unset, or `auto`
                place[group] = {}
            place = place[group]
        place[last] = value
    return Task.model_validate(values)
