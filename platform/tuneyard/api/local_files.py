"""Values of a job that name files beside its JobSpec. Such files exist on the author's machine, and on no cluster.

`tuneyard submit` ships those files and replaces the values by URIs (docs/design/064). A job applied with kubectl is refused, with the
advice to use `submit`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from tuneyard.api.data import MixPart, TrainData
from tuneyard.api.jobspec import Job
from tuneyard.api.loading_yaml import Path
from tuneyard.api.programs import module_of
from tuneyard.api.tasks import ProcessTask, Task

SHIPPED = "_shipped"
"""Folder of shipped files below a job's output. No task can have this name."""
ADVICE = "`tuneyard submit FILE` ships it, kubectl does not: use a URI such as s3://bucket/file, or an absolute path that clusters mount"
_SCRIPTS = (".py", ".sh")
What = Literal["data", "model", "template", "schema", "folder", "script", "program"]


@dataclass(frozen=True)
class LocalFile:
    """A value that names a file or folder. `path` leads to the field, `text` is its value."""

    path: Path
    text: str
    what: What


def local_files(job: Job) -> Iterator[LocalFile]:
    """Every value that can only be a path relative to the JobSpec. Paths of fields start at the top of the JobSpec."""
    for index, task in enumerate(job.tasks):
        root: Path = ("spec", "tasks", index)
        yield from _of_task(task, root)
        if task.process is not None and task.process.working_dir is None and job.image is None:
            yield from _scripts(task.process, (*root, "process", "command"))
        if task.train is not None and task.train.program is not None:
            if task.train.program_dir is None and job.image is None:
                yield LocalFile((*root, "train", "program"), f"{module_of(task.train.program)}.py", "program")
            elif task.train.program_dir is not None and is_relative(task.train.program_dir):
                yield LocalFile((*root, "train", "programDir"), task.train.program_dir, "folder")
        if task.score is not None and task.score.own_metrics:
            if task.score.metrics_dir is None and job.image is None:
                for number, name in enumerate(task.score.own_metrics):
                    yield LocalFile((*root, "score", "ownMetrics", number), f"{module_of(name)}.py", "program")
            elif task.score.metrics_dir is not None and is_relative(task.score.metrics_dir):
                yield LocalFile((*root, "score", "metricsDir"), task.score.metrics_dir, "folder")


def is_relative(text: str) -> bool:
    """Whether a path or URI depends on the machine or folder."""
    return "://" not in text and not text.startswith("/")


def looks_like_path(name: str) -> bool:
    """True unless `name` can be the Hugging Face name (`owner/name` or `name`) of a model."""
    return name.startswith((".", "/", "~")) or "://" in name or name.count("/") > 1 or os.sep == name[-1:]


def hub_name(name: str) -> str:
    """The Hugging Face name in `hf://owner/name`; any other text unchanged."""
    return name.removeprefix("hf://")


def is_template_path(template: str) -> bool:
    """Whether a chat template is a path to one: a Jinja template has braces."""
    return "{" not in template


def _of_task(task: Task, root: Path) -> Iterator[LocalFile]:
    body = task.train or task.score
    if body is not None and body.model.name is not None and looks_like_path(body.model.name) and is_relative(body.model.name):
        own = task.train is not None and task.train.program is not None  # a program reads the folder by its own code
        yield LocalFile((*root, task.kind, "model", "name"), body.model.name, "folder" if own else "model")
    for number, model in enumerate(task.serve.models if task.serve is not None else ()):
        if model.name is not None and looks_like_path(model.name) and is_relative(model.name):
            yield LocalFile((*root, "serve", "models", number, "name"), model.name, "model")
    embedding = task.score.embedding if task.score is not None else None
    if embedding is not None and embedding.model is not None and looks_like_path(embedding.model) and is_relative(embedding.model):
        yield LocalFile((*root, "score", "embedding", "model"), embedding.model, "model")
    for field, source in task.sources().items():
        path: Path = (*root, *(int(name) if name.isdigit() else name for name in field.split(".")))
        if source.source is not None and is_relative(source.source):
            yield LocalFile((*path, "source"), source.source, "data")
        template = source.chat_template if isinstance(source, TrainData | MixPart) else None
        if template is not None and is_template_path(template) and is_relative(template):
            yield LocalFile((*path, "chatTemplate"), template, "template")
    if task.train is not None and task.train.data.mix:
        template = task.train.data.chat_template
        if template is not None and is_template_path(template) and is_relative(template):
            yield LocalFile((*root, "train", "data", "chatTemplate"), template, "template")
    harness = task.score.data.lm_eval if task.score is not None else None
    if harness is not None and harness.folder is not None and is_relative(harness.folder):
        yield LocalFile((*root, "score", "data", "lmEval", "folder"), harness.folder, "folder")
    schema = task.score.generation.json_schema if task.score is not None else None
    if isinstance(schema, str) and is_relative(schema):
        yield LocalFile((*root, "score", "generation", "schema"), schema, "schema")
    if task.process is not None and task.process.working_dir is not None and is_relative(task.process.working_dir):
        yield LocalFile((*root, "process", "workingDir"), task.process.working_dir, "folder")


def _scripts(process: ProcessTask, root: Path) -> Iterator[LocalFile]:
    """Scripts among the words of the command, by their ending. The job's own image may hold them in its working folder; the platform's does
    not.
    """
    for index, word in enumerate(process.command):
        if PurePosixPath(word).suffix in _SCRIPTS and is_relative(word) and not word.startswith("$") and " " not in word:
            yield LocalFile((*root, index), word, "script")
