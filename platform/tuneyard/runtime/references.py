"""Resolves the references of a task to URIs: data and models by path or name, or `from` an earlier task. Pure, except for
`is_dir`, the file of a JSON schema, and what the folder of an adapter says of its base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tuneyard.api import BadInput, Generation, Job, JobSpec, MixPart, ModelRef, ScoreData, ScoreTask, Source, Task, TrainData, TrainTask
from tuneyard.api.local_files import is_template_path, looks_like_path
from tuneyard.api.programs import module_files
from tuneyard.metrics.own import program_of
from tuneyard.runtime.models import saved_prompt_template
from tuneyard.storage import absolute, join
from tuneyard.training.model_finder import find_model, find_place, holds_model, is_name

SourceT = TypeVar("SourceT", bound=Source)


@dataclass(frozen=True)
class Start:
    """The model that a task starts from: weights, and perhaps an adapter for them."""

    model_uri: str
    adapter_uri: str | None = None
    revision: str | None = None
    """Of a base model that an adapter names; None: the task's own."""


def source_of(source: SourceT, base_dir: Path, results: Mapping[str, Mapping[str, Any]]) -> SourceT:
    """The same data set with an absolute `source` and no `from`. `results`: task name -> result.json of upstream tasks."""
    if source.from_task is not None:
        uri = output_of(source.from_task, source.path, results)
    else:
        given = source.source or ""
        uri = given if given.startswith("hf://") else absolute(given, base_dir)
    return source.model_copy(update={"source": uri, "from_task": None, "path": None})


def train_data_of(data: TrainData, base_dir: Path, results: Mapping[str, Mapping[str, Any]]) -> TrainData:
    """The same data with absolute sources and templates, and no `from`."""

    def of(source: Source) -> Source:
        found = source_of(source, base_dir, results)
        if isinstance(found, TrainData | MixPart):
            return found.model_copy(update={"chat_template": template_of(found.chat_template, base_dir)})
        return found

    return data.with_sources(of).model_copy(update={"chat_template": template_of(data.chat_template, base_dir)})


def start_of(model: ModelRef, base_dir: Path, results: Mapping[str, Mapping[str, Any]], *, as_named: bool = False) -> Start:
    """URIs of the model, as `find_model` finds it. What holds no language model stays as it is: a Hugging Face name, a ranker. `as_named`:
    nothing is looked for, since the code of a training program reads the folder. Raises BadInput for an adapter without its base.
    """
    made = results[model.from_task] if model.from_task is not None and model.path is None else {}
    if made.get("model_uri"):
        return Start(made["model_uri"])
    if model.from_task is None:
        uri = named_model(model.name or "", base_dir)
    else:
        uri = made.get("adapter_uri") or output_of(model.from_task, model.path, results)
    if not is_name(uri) and (as_named or not holds_model(uri)):
        return Start(uri)
    found = find_model(uri)
    return Start(found.model_uri, found.adapter_uri, found.revision)


def named_model(name: str, base_dir: Path) -> str:
    """The absolute URI of a path or URI; a Hugging Face name as it is."""
    return absolute(name, base_dir) if looks_like_path(name) or (base_dir / name).exists() else name


def template_of(template: str | None, base_dir: Path) -> str | None:
    """A chat template as it is; or the absolute path or URI of a template's file."""
    return absolute(template, base_dir) if template is not None and is_template_path(template) else template


def generation_of(generation: Generation, base_dir: Path) -> Generation:
    """The settings with the JSON schema itself instead of the path of its file. Raises BadInput where that cannot be read."""
    schema = generation.json_schema
    if not isinstance(schema, str):
        return generation
    from tuneyard.scoring.structured import read_schema

    return generation.model_copy(update={"json_schema": read_schema(absolute(schema, base_dir))})


def output_of(task: str, path: str | None, results: Mapping[str, Mapping[str, Any]]) -> str:
    """URI of a task's product: the folder of its output, or `path` inside."""
    return join(results[task]["output"], path or "")


def resolved(task: Task, base_dir: Path, results: Mapping[str, Mapping[str, Any]]) -> tuple[Task, Start]:
    """The task without `from` and relative paths, and the model that it starts from. For train, rank and score tasks."""
    if task.rank is not None:
        tables = {name: source_of(source, base_dir, results) for name, source in task.rank.sources().items()}
        return task.model_copy(update={"rank": task.rank.model_copy(update=tables)}), Start("")
    body = task.train or task.score
    assert body is not None
    as_named = task.train is not None and task.train.program is not None
    start = start_of(body.model, base_dir, results, as_named=as_named) if body.model.is_given else Start("")
    place = {"name": start.model_uri or None, "from_task": None, "path": None, "revision": start.revision or body.model.revision}
    model = body.model.model_copy(update=place)
    update: dict[str, Any]
    if isinstance(body, TrainTask):
        update = {"model": model, "data": train_data_of(body.data, base_dir, results)}
        if body.program is not None and (body.program_dir is not None or module_files(body.program, base_dir)):
            update["program_dir"] = absolute(body.program_dir or "", base_dir)
        return task.model_copy(update={"train": body.model_copy(update=update)}), start
    data = _score_data_of(body, base_dir, results)
    if data.template is None and data.lm_eval is None and body.judge is None:
        data = data.model_copy(update={"template": saved_prompt_template(start.adapter_uri or start.model_uri)})
    update = {"model": model, "data": data, "generation": generation_of(body.generation, base_dir)}
    if body.judge is not None and body.judge.against is not None:
        against = source_of(body.judge.against, base_dir, results)
        update["judge"] = body.judge.model_copy(update={"against": against})
    if body.embedding is not None and body.embedding.model is not None:
        update["embedding"] = body.embedding.model_copy(update={"model": find_place(named_model(body.embedding.model, base_dir))})
    score = body.model_copy(update=update | _metrics_dir(body, base_dir))
    return task.model_copy(update={"score": score}), start


def _score_data_of(score: ScoreTask, base_dir: Path, results: Mapping[str, Mapping[str, Any]]) -> ScoreData:
    harness = score.data.lm_eval
    if harness is None:
        return source_of(score.data, base_dir, results)
    folder = absolute(harness.folder, base_dir) if harness.folder is not None else None
    return score.data.model_copy(update={"lm_eval": harness.model_copy(update={"folder": folder})})


def _metrics_dir(score: ScoreTask, base_dir: Path) -> dict[str, str]:
    """The folder of own metrics. Nothing where all of their modules are installed."""
    here = score.metrics_dir is None and any(module_files(program_of(name), base_dir) for name in score.own_metrics)
    return {"metrics_dir": absolute(score.metrics_dir or "", base_dir)} if score.metrics_dir is not None or here else {}


def with_model(job: JobSpec, name: str, cwd: Path) -> JobSpec:
    """The job for `--model NAME`: NAME replaces the model that the job builds for itself.

    Train tasks that start from random weights (`init: scratch`) are left out, and tasks that use their models use NAME instead. In a job
    without such tasks, every `model.name` becomes NAME. A relative NAME starts at `cwd`, the folder that it was typed in.
    """
    given = ModelRef(name=named_model(name, cwd))
    scratch = {task.name for task in job.spec.tasks if task.train is not None and task.train.model.init == "scratch"}

    def body_with(body: TrainTask | ScoreTask) -> dict[str, Any]:
        replaced = body.model.from_task in scratch if scratch else body.model.name is not None
        kept = {"attention": body.model.attention, "trust_remote_code": body.model.trust_remote_code}
        return {"model": given.model_copy(update=kept)} if replaced else {}

    tasks = []
    for task in job.spec.tasks:
        if task.name in scratch:
            continue
        update: dict[str, Any] = {"depends_on": [up for up in task.depends_on if up not in scratch]}
        if task.train is not None:
            update["train"] = task.train.model_copy(update=body_with(task.train))
        if task.score is not None:
            update["score"] = task.score.model_copy(update=body_with(task.score))
        tasks.append(task.model_copy(update=update))
    for task in tasks:
        if lost := scratch.intersection(task.upstream()):
            raise BadInput(
                f"--model leaves out the task {min(lost)}, but task {task.name} takes data from it",
                "run without --model, or take that data from elsewhere",
            )
    if not tasks:
        raise BadInput("with --model nothing is left to do: every task trains a model from scratch", "run without --model")
    return job.model_copy(update={"spec": _with_tasks(job.spec, tasks)})


def _with_tasks(job: Job, tasks: list[Task]) -> Job:
    return job.model_copy(update={"tasks": tasks})
