"""Checks a job before anything of it starts."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tuneyard.admission import Machine, admit, refused
from tuneyard.api import BadInput, Embedding, Endpoint, JobSpec, LmEval, ScoreTask, Source, Task
from tuneyard.api.programs import missing_object, module_files, module_of
from tuneyard.catalog.built import model_shape_of
from tuneyard.catalog.weight_files import check_weight_files
from tuneyard.extras import cpu_scoring_command, gpu_only_vllm, need
from tuneyard.metrics.own import program_of
from tuneyard.runtime.models import config_of, read_config
from tuneyard.runtime.process.run import check_working_dir
from tuneyard.runtime.references import generation_of, named_model, source_of
from tuneyard.runtime.score.rankers import check_scored_table, ranker_of
from tuneyard.storage import absolute, is_local, local_path, open_store
from tuneyard.tracking import asked_for
from tuneyard.training.model_finder import MODULES, FoundModel, find_model, find_place, is_name

_EXTRAS = {"train": "train", "rank": "train", "score": "score", "serve": "score"}
"""Kind of task -> the extra of Tuneyard that must be installed where it runs."""


def check_installed(job: JobSpec, base_dir: Path) -> None:
    """Raises BadInput with the pip command for the first task whose extra is missing here."""
    for task in job.spec.tasks:
        gang = job.spec.gang_of(task)
        if gang.kind in _EXTRAS:
            without_vllm = task.endpoint is not None or ranker_of(job.spec, task, base_dir) is not None
            extra = "train" if without_vllm else _EXTRAS[gang.kind]
            need(extra, f"{task.kind} task {task.name}")
        if task.score is not None and task.score.data.lm_eval is not None:
            need("lm-eval", f"data.lmEval of task {task.name}")


def check_trackers(job: JobSpec, environment: Mapping[str, str]) -> None:
    """Raises BadInput for the first tracker whose client is missing here, or that cannot be used in this environment."""
    for asked in asked_for(job.spec.tracking):
        need(asked.kind.extra, f"tracking.{asked.name} ({asked.kind.title})")
        refusal = asked.kind.refusal(asked.settings, environment)
        if refusal is not None:
            raise BadInput(*refusal)


def check_job(job: JobSpec, *, base_dir: Path, machine: Machine, names: Collection[str] | None = None) -> None:
    """Raises BadInput that names the first problem: kinds of task, SKUs, workers, rules, models, data.

    `names`: names of the tasks that run on this machine; by default all. Products of earlier tasks, and data on the Hugging Face hub, are
    not checked. Of local data, the first 200 rows are read.
    """
    tasks = [task for task in job.spec.tasks if names is None or task.name in names]
    _admit(job, machine, names, {})  # before anything is read
    for task in tasks:
        if task.train is not None and task.train.program is not None:
            _check_program(task, base_dir)
        if task.score is not None:
            _check_schema(task.score, base_dir)
            _check_own_metrics(task.name, task.score, base_dir)
            if task.score.data.lm_eval is not None:
                _check_harness(job, task, task.score.data.lm_eval, base_dir)
            if task.score.embedding is not None:
                _check_embedding(job, task, task.score.embedding, base_dir)
        if task.endpoint is not None:
            _check_key(job, task, task.endpoint, "engine.endpoint")
        elif task.serve is not None or (task.score is not None and ranker_of(job.spec, task, base_dir) is None):
            _check_vllm(task, machine)
        for model in task.serve.models if task.serve is not None else ():
            if model.name is not None:
                find_model(named_model(model.name, base_dir))
        if task.process is not None and task.process.working_dir is not None:
            check_working_dir(task.process, base_dir)
    models = {task.name: found for task in tasks if (found := _model_of(job, task, base_dir)) is not None}
    _admit(job, machine, names, {name: config_of(found) for name, found in models.items()})
    for task in tasks:
        for source in task.sources().values():
            _check_source(job, task, source, base_dir)
        if task.name in models:
            _check_weights(task, models[task.name])


def _admit(job: JobSpec, machine: Machine, names: Collection[str] | None, configs: dict[str, dict[str, Any]]) -> None:
    found = admit(job, machine, names=names, configs=configs, shape_of=model_shape_of)
    if found:
        raise refused(found)


def _check_program(task: Task, base_dir: Path) -> None:
    """Raises BadInput for a program that does not exist. Its source is only read; the ranks alone run it."""
    assert task.train is not None
    assert task.train.program is not None
    program, uri = task.train.program, absolute(task.train.program_dir or "", base_dir)
    if not is_local(uri):
        return
    folder, module = local_path(uri), module_of(program)
    if not folder.is_dir():
        raise BadInput(f"task {task.name}: programDir: there is no folder {uri}", "paths start at the JobSpec's folder")
    if why := missing_object(program, folder):
        raise BadInput(f"program {program} of task {task.name}: {why}", "name an object of the module that has collate, loss and predict")
    if not module_files(program, folder) and find_spec(module.partition(".")[0]) is None:
        raise BadInput(
            f"program {program} of task {task.name}: there is no module {module} in {folder}, and no installed package has it",
            "put the module beside the JobSpec, name its folder in train.programDir, or install its package where the job runs",
        )


def _check_schema(body: ScoreTask, base_dir: Path) -> None:
    schema = generation_of(body.generation, base_dir).json_schema
    if isinstance(schema, dict):
        from tuneyard.scoring.structured import check_schema

        check_schema(schema)


def _check_key(job: JobSpec, task: Task, endpoint: Endpoint, field: str) -> None:
    variable = endpoint.api_key_variable
    if variable is None or variable in os.environ or any(each.name == variable for each in job.spec.env):
        return
    raise BadInput(
        f"task {task.name}: the environment variable {variable} of {field}.apiKeyVariable is not set",
        f"export it, or put {{name: {variable}, valueFrom: {{secretKeyRef: {{name: SECRET, key: {variable}}}}}}} into spec.env",
    )


def _check_own_metrics(name: str, score: ScoreTask, base_dir: Path) -> None:
    """Raises BadInput for an own metric that does not exist. Its source is only read; engines alone run it."""
    uri = absolute(score.metrics_dir or "", base_dir)
    if not score.own_metrics or not is_local(uri):
        return
    folder = local_path(uri)
    if not folder.is_dir():
        raise BadInput(f"task {name}: metricsDir: there is no folder {uri}", "paths start at the JobSpec's folder")
    for metric in score.own_metrics:
        program, module = program_of(metric), module_of(metric)
        if why := missing_object(program, folder):
            raise BadInput(f"own metric {metric} of task {name}: {why}", "name a function of output, references and row")
        if not module_files(program, folder) and find_spec(module.partition(".")[0]) is None:
            raise BadInput(
                f"own metric {metric} of task {name}: there is no module {module} in {folder}, and no installed package has it",
                "put the module beside the JobSpec, name its folder in score.metricsDir, or install its package where the job runs",
            )


def _check_harness(job: JobSpec, task: Task, harness: LmEval, base_dir: Path) -> None:
    """Raises BadInput for a ranker, and for a folder of own tasks that does not exist. Where the task waits for others, also for a task of
    lm-evaluation-harness that does not exist; any other score task finds that out at once."""
    if ranker_of(job.spec, task, base_dir) is not None:
        raise BadInput(f"task {task.name}: data.lmEval is for language models, and the model is a ranker", "give data.source, a table")
    uri = absolute(harness.folder, base_dir) if harness.folder is not None else None
    if uri is not None and not is_local(uri):
        return
    folder = local_path(uri) if uri is not None else None
    if folder is not None and not folder.is_dir():
        raise BadInput(f"task {task.name}: data.lmEval.folder: there is no folder {folder}", "paths start at the JobSpec's folder")
    if task.upstream():
        from tuneyard.scoring.harness.process import Order, run_harness  # late, for the process

        with TemporaryDirectory() as scratch:
            run_harness("names", Order.of(harness, folder), Path(scratch))


def _check_embedding(job: JobSpec, task: Task, embedding: Embedding, base_dir: Path) -> None:
    """Raises BadInput for a model of embeddings that does not exist, or an endpoint without its key."""
    if embedding.endpoint is not None:
        _check_key(job, task, embedding.endpoint, "embedding.endpoint")
    if embedding.model is None:
        return
    try:
        uri = find_place(named_model(embedding.model, base_dir))
        if is_name(uri) or not open_store(uri).exists(MODULES):  # else its config.json may be in the folder of a module
            read_config(uri, embedding.revision)
    except BadInput as error:
        raise BadInput(
            f"task {task.name}: embedding.model: {error.cause}", "name an encoder: a folder, a URI, or a Hugging Face name"
        ) from error


def _check_vllm(task: Task, machine: Machine) -> None:
    """Raises BadInput where no vLLM is installed, or one for GPUs on a machine without any: its engines fail after a minute."""
    if find_spec("vllm") is None:
        cause = f"task {task.name} runs vLLM, which is not installed here: it has no wheels for macOS"
        raise BadInput(cause, "run the job on Linux (there, `make setup` installs vLLM), or take the task out of it")
    if not machine.has_gpus and (version := gpu_only_vllm()):
        cause = f"task {task.name} runs vLLM, this machine has no GPU, and the installed vLLM {version} runs on GPUs alone"
        raise BadInput(cause, f"install the one for processors, the extra [score-cpu]: {cpu_scoring_command()}")


def _model_of(job: JobSpec, task: Task, base_dir: Path) -> FoundModel | None:
    """The language model that a task names; None if the job makes the model itself. Raises BadInput if there is none."""
    body = task.train or task.score
    if body is None or body.model.name is None or (task.train is not None and task.train.program is not None):
        return None
    if ranker_of(job.spec, task, base_dir) is not None:
        return None
    found = find_model(named_model(body.model.name, base_dir))
    if task.score is not None and found.adapter_uri is not None and is_local(found.adapter_uri):
        from tuneyard.scoring.adapter import read_adapter

        read_adapter(local_path(found.adapter_uri))  # engines apply fewer adapters than PEFT
    return replace(found, revision=found.revision or body.model.revision)


def _check_weights(task: Task, found: FoundModel) -> None:
    """Raises BadInput where a model on this machine lacks weights: a rank or an engine finds that out after a minute."""
    is_here = is_local(found.model_uri) and not is_name(found.model_uri)
    if is_here and (task.train is None or task.train.model.init == "pretrained"):
        check_weight_files(local_path(found.model_uri))


def _check_source(job: JobSpec, task: Task, source: Source, base_dir: Path) -> None:
    from tuneyard.data.head import check_source

    if source.from_task is not None or (source.source or "").startswith("hf://"):
        return
    uri = source_of(source, base_dir, {}).source or ""
    body = task.training or task.score
    try:
        if task.rank is not None:
            from tuneyard.ranking import check_table

            check_table(task.rank, uri, held_out=source == task.rank.validation)
            return
        ranker = ranker_of(job.spec, task, base_dir)
        if ranker is not None:
            check_scored_table(task, ranker, uri)
            return
        check_source(body, source, uri, first_rows=is_local(uri))
    except BadInput as error:
        raise BadInput(f"data of task {task.name}: {error.cause}", error.next_step) from error
