"""Runs one task of a job: makes a request from its spec and earlier results, and returns its result for report.json."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from tuneyard.admission import choose_workers
from tuneyard.api import FailureKind, Task, TuneyardError
from tuneyard.api.retrying import answer_to
from tuneyard.catalog.libraries import keep_libraries_gb
from tuneyard.runtime.machines import process_log
from tuneyard.runtime.models import model_shape
from tuneyard.runtime.process.run import ProcessRequest, run_process, working_folder
from tuneyard.runtime.score.rankers import ranker_of
from tuneyard.runtime.score.run import run_score
from tuneyard.runtime.task_context import Attempts, Result, TaskContext
from tuneyard.runtime.train.attempt import StoppedBeforeSteps, TrainSetting
from tuneyard.runtime.train.request import train_request
from tuneyard.runtime.train.run import run_train
from tuneyard.storage import open_store
from tuneyard.tracking import Event, Preflighted, Stage, Warned
from tuneyard.training.request import TrainRequest


def run_task(task: Task, context: TaskContext) -> Result:
    """Run one task to its end, or until a stop is asked for. Raises TuneyardError if it fails for good."""
    run = {
        "train": _run_train,
        "score": run_score,
        "process": _run_process,
        "tune": _run_tune,
        "rank": _run_train,
        "serve": _run_serve,
    }[task.kind]
    attempts = Attempts(task, context)
    if task.kind in ("train", "score", "rank", "serve"):
        context.machines.begin_ray()
    elif task.kind == "process":
        _prepare_others(context)
    while True:
        try:
            result = run(task, context, attempts)
            break
        except TuneyardError as error:
            attempts.failed(error)
            if not _starts_again(error, context, starts=len(attempts.made)):
                raise
            of = context.machines.retries.max + 1
            again = f"{error.cause.splitlines()[0].rstrip(':;')}; starting attempt {len(attempts.made) + 1} of {of}"
            context.emit(Warned(task=task.name, message=again))
    return {"kind": task.kind, "status": "succeeded", "output": context.output.task_uri(task.name), **result, "attempts": attempts.made}


def _starts_again(error: TuneyardError, context: TaskContext, *, starts: int) -> bool:
    """Whether the whole task starts again after a failure. Lost ranks and engines have been replaced in place before."""
    answer = answer_to(error.kind, context.machines.retries, failures=starts, place="here")
    return error.kind is FailureKind.USER_ERROR and answer == "again" and starts > 0 and not context.should_stop()


def _prepare_others(context: TaskContext) -> None:
    """Start Ray, the next gang and the engines' stack while a process task runs. The ranks' stack has been started before."""
    tasks = [task for task in context.job.spec.task_order() if task.name in context.wanted]
    left = [task for task in tasks if task.name not in context.results and task.kind != "process"]
    if not left:
        return
    machines = context.machines
    machines.begin_ray()
    if any(task.kind == "score" and task.endpoint is None and ranker_of(context.job.spec, task, context.base_dir) is None for task in left):
        machines.warm.engines()
    gang = context.job.spec.gang_of(left[0])
    if gang.training is not None:
        machines.gangs.prepare(choose_workers(gang, machines.machine), use_gpu=machines.machine.has_gpus, after=machines.use_ray)


def _run_process(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    assert task.process is not None
    attempts.begin()
    log = process_log(task.name)
    context.machines.ship(log)
    request = ProcessRequest(
        name=task.name,
        task=task.process,
        base_dir=working_folder(task.process, context.base_dir, context.scratch / f"{task.name}-working"),
        output=open_store(context.output.task_uri(task.name)),
        scratch=context.scratch,
        log=context.machines.logs / log.file,
        log_address=context.machines.address(log),
        secrets=context.secrets,
    )
    result = asdict(run_process(request, context.emit, context.should_stop))
    return {name: value for name, value in result.items() if name != "output" or value}


def _run_serve(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    from tuneyard.runtime.serve.run import run_serve

    return run_serve(task, context, attempts)


def _run_tune(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    from tuneyard.runtime.tune.run import run_tune

    attempts.begin()
    return run_tune(task, context, lambda tuned, gangs: train_request(tuned, context, gangs=gangs), _setting(context))


def _setting(context: TaskContext) -> TrainSetting:
    machines = context.machines
    return TrainSetting(machines=machines, retries=context.job.spec.retries, stop_grace_s=machines.stop_grace_s, secrets=context.secrets)


def _run_train(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    request = train_request(task, context)
    context.machines.use_ray()

    def begin(attempt: TrainRequest) -> None:
        attempts.begin(attempt.plan, _settings(attempt, context))
        if task.train is not None and task.train.batch.is_open:
            plan = attempt.plan
            parts = f"{plan.micro_batch} x {plan.grad_accum} on {plan.workers} x {plan.sku}"
            context.emit(Stage(task=task.name, name=f"{plan.global_batch:,} rows per step (batch.global: auto): {parts}"))

    setting = replace(
        _setting(context),
        on_attempt=begin,
        on_failure=lambda _attempt, error: attempts.failed(error),
    )
    preflight: dict[str, Any] = {}

    def emit(event: Event) -> None:
        if isinstance(event, Preflighted):
            preflight["preflight"] = {"all_reduce_gb_per_s": event.all_reduce_gb_per_s, "seconds": event.seconds}
        context.emit(event)

    try:
        result = asdict(run_train(request, setting, emit, context.should_stop)) | preflight
    except StoppedBeforeSteps:
        return {"status": "stopped", "plan": request.plan.to_dict()} | preflight
    if not context.machine.has_gpus:
        keep_libraries_gb(max(result["libraries_gb"]))
    if "metrics" in result["details"]:  # metrics of held-out rows
        result["metrics"] = result["details"].pop("metrics")
    artifacts = {kind: result[f"{kind}_uri"] for kind in ("model", "adapter", "merged") if result[f"{kind}_uri"]}
    base = {"base_model_uri": request.model_uri, "base_revision": request.task.model.revision}
    return {**result, "artifacts": artifacts, **base, "plan": request.plan.to_dict()}


def _settings(request: TrainRequest, context: TaskContext) -> dict[str, Any] | None:
    """A train attempt's row for predictors; None for a program, because predictors know shapes of language models only."""
    if request.task.program is not None:
        return None
    from tuneyard.tuning import settings_row

    shape = model_shape(request.model_uri, request.task.model.revision)
    machine = context.machine
    return settings_row(request.task, shape, request.plan, gpus_per_node=machine.per_host or max(1, machine.devices))
