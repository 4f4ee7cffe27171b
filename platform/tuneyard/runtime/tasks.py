"""One task of a local job: from its spec and the results before it, to a request, to a result for report.json."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tuneyard.admission import Machine, choose_workers
from tuneyard.api import JobSpec, Task, TuneyardError
from tuneyard.api.attempt_report import RankPlace
from tuneyard.catalog import gpu
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.catalog.libraries import keep_libraries_gb, measured_libraries_gb
from tuneyard.planning import Plan
from tuneyard.runtime.assignment import Assignment
from tuneyard.runtime.environment import hide
from tuneyard.runtime.gang import Gangs
from tuneyard.runtime.mailbox import RankProcess
from tuneyard.runtime.models import model_shape
from tuneyard.runtime.nodes import Nodes
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.process import ProcessRequest, process_log, run_process, working_folder
from tuneyard.runtime.rankers import ranker_of
from tuneyard.runtime.references import Start, resolved
from tuneyard.runtime.stacks import WarmStacks
from tuneyard.runtime.train import ASKED_HERE_S, TrainSetting, run_train
from tuneyard.scoring.request import ScoreRequest
from tuneyard.storage import open_store
from tuneyard.tracking import Emit, Event, Placed, Preflighted, TaskEvent
from tuneyard.training.request import NetworkChecks, TrainRequest

ShouldStop = Callable[[], bool]
Result = dict[str, Any]
"""What report.json and result.json hold of a task; `status` is succeeded or stopped."""


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """What all tasks of a job share. `use_ray` starts Ray, unless it runs already, and waits for it; `begin_ray` does not wait. Process
    tasks never ask for it. `gangs`: the ranks that stay up from one train task to the next. `warm`: fork servers.

    `hub`: what a hub has decided, in an attempt that it started.
    """

    job: JobSpec
    base_dir: Path
    output: JobOutput
    machine: Machine
    scratch: Path
    logs: Path
    secrets: Sequence[str]
    emit: Emit
    should_stop: ShouldStop
    begin_ray: Callable[[], None]
    use_ray: Callable[[], None]
    gangs: Gangs
    warm: WarmStacks
    results: dict[str, Result] = field(default_factory=dict)
    """Results of the tasks that have succeeded, by name."""
    hub: HubAttempt | None = None
    wanted: Collection[str] | None = None
    """Names of the tasks that are run; None for all."""


@dataclass(frozen=True, kw_only=True)
class HubAttempt:
    """`nodes`: the machines of its cluster; None for process tasks. `network`: what the ranks try before they load the model."""

    assignment: Assignment
    nodes: Nodes | None
    network: NetworkChecks | None
    logs_uri: str
    stop_grace_s: Callable[[], float]


def run_task(task: Task, context: TaskContext) -> Result:
    """Run one task to its end, or to a stop that was asked for. Raises TuneyardError where it fails for good."""
    run = {"train": _run_train, "score": _run_score, "process": _run_process, "tune": _run_tune, "rank": _run_train}[task.kind]
    attempts = Attempts(task, context)
    if task.kind in ("train", "score", "rank"):
        context.begin_ray()
    elif task.kind == "process":
        _prepare_others(context)
    try:
        result = run(task, context, attempts)
    except TuneyardError as error:
        attempts.failed(error)
        raise
    return {"kind": task.kind, "status": "succeeded", "output": context.output.task_uri(task.name), **result, "attempts": attempts.made}


def _prepare_others(context: TaskContext) -> None:
    """While a process task runs, Ray, the next gang and the engines' stack come up; the ranks' stack is on its way already."""
    tasks = [task for task in context.job.spec.task_order() if context.wanted is None or task.name in context.wanted]
    left = [task for task in tasks if task.name not in context.results and task.kind != "process"]
    if not left or context.hub is not None:
        return
    context.begin_ray()
    if any(task.kind == "score" and ranker_of(context.job.spec, task, context.base_dir) is None for task in left):
        context.warm.engines()
    gang = context.job.spec.gang_of(left[0])
    if gang.training is not None:
        context.gangs.prepare(choose_workers(gang, context.machine), use_gpu=context.machine.has_gpus, after=context.use_ray)


class Attempts:
    """Tells of each attempt's begin and failure once, and remembers them for the report.

    Under a hub all starts in place are parts of the one attempt that has a number there.
    """

    def __init__(self, task: Task, context: TaskContext) -> None:
        self._task = task
        self._context = context
        self.made: list[dict[str, Any]] = []

    def begin(self, plan: Plan | None = None, settings: dict[str, Any] | None = None) -> None:
        """`settings`: what a predictor reads of a train attempt."""
        self.made.append({"attempt": number_of(self._context, len(self.made) + 1), **({"micro_batch": plan.micro_batch} if plan else {})})
        self._tell(
            TaskEvent(task=self._task.name, state="started", kind=self._task.kind, plan=plan.to_dict() if plan else None, settings=settings)
        )

    def failed(self, error: TuneyardError) -> None:
        """Nothing more happens where the last attempt is known to have failed."""
        if self.made and "failure" in self.made[-1]:
            return
        message = hide(error.cause, self._context.secrets)
        if self.made:
            self.made[-1] |= {"failure": str(error.kind), "message": message}
        self._tell(TaskEvent(task=self._task.name, state="failed", kind=self._task.kind, failure=str(error.kind), message=message))

    def _tell(self, event: TaskEvent) -> None:
        self._context.emit(replace(event, attempt=number_of(self._context, len(self.made))))


def number_of(context: TaskContext, starts: int) -> int:
    """The number under which people know the attempt that has been started so often in this process."""
    return context.hub.assignment.attempt if context.hub else max(1, starts)


def _run_process(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    assert task.process is not None
    attempts.begin()
    request = ProcessRequest(
        name=task.name,
        task=task.process,
        base_dir=working_folder(task.process, context.base_dir, context.scratch / f"{task.name}-working"),
        output=open_store(context.output.task_uri(task.name)),
        scratch=context.scratch,
        log=process_log(context.logs, task.name),
        secrets=context.secrets,
        log_uri=f"{context.hub.logs_uri}/process" if context.hub else "",
    )
    result = asdict(run_process(request, context.emit, context.should_stop))
    return {name: value for name, value in result.items() if name != "output" or value}


def train_request(task: Task, context: TaskContext) -> TrainRequest:
    """The request of a train task's first attempt: with what a tune task has found, references resolved, planned for this machine.

    Raises BadInput.
    """
    from tuneyard.planning import LIBRARIES_GB, plan_of_program, plan_of_ranker, resolve

    task, start = resolved(_with_found(task, context.results), context.base_dir, context.results)
    training = task.training
    assert training is not None
    workers = choose_workers(task, context.machine)
    if task.rank is not None:
        plan = plan_of_ranker(
            task.rank,
            gpu(context.machine.sku),
            workers,
            libraries_gb=measured_libraries_gb() or LIBRARIES_GB,
            gpus_per_node=context.machine.per_host or max(1, context.machine.devices),
        )
    elif training.program is not None:
        plan = plan_of_program(training, gpu(context.machine.sku), workers)
    else:
        plan = resolve(
            training,
            model_shape(start.model_uri, training.model.revision),
            gpu(context.machine.sku),
            workers,
            host_memory_gb=(context.machine.memory_gb or machine_memory_gb()) / workers,
            flash_available=find_spec("flash_attn") is not None,
            liger_available=find_spec("liger_kernel") is not None,
            libraries_gb=measured_libraries_gb() or LIBRARIES_GB,
            gpus_per_node=context.machine.per_host or max(1, context.machine.devices),
        )
    hub = context.hub
    return TrainRequest(
        job=context.job.metadata.name,
        name=task.name,
        task=training,
        rank=task.rank,
        plan=plan,
        model_uri=start.model_uri,
        adapter_uri=start.adapter_uri,
        output=context.output.task_uri(task.name),
        scratch=str(context.scratch / task.name),
        run=f"{hub.assignment.run}/{task.name}" if hub else uuid.uuid4().hex,
        attempt=hub.assignment.first_number(context.job.spec.retries.max) if hub else 1,
        network=hub.network if hub else None,
    )


def _with_found(task: Task, results: Mapping[str, Result]) -> Task:
    """The train task with the settings that a tune task before it has found."""
    searches = (result for result in results.values() if result.get("kind") == "tune" and result["tuned"] == task.name)
    found: dict[str, Any] = next((search["best"] for search in searches), {})
    if not found:
        return task
    from tuneyard.tuning import applied

    return applied(task, found)


def _run_tune(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    from tuneyard.runtime.tune import run_tune

    attempts.begin()
    return run_tune(task, context, lambda tuned: train_request(tuned, context), _setting(context))


def _setting(context: TaskContext) -> TrainSetting:
    return TrainSetting(
        use_gpu=context.machine.has_gpus,
        retries=context.job.spec.retries,
        gangs=context.gangs,
        logs=context.logs,
        nodes=context.hub.nodes if context.hub else None,
        logs_uri=context.hub.logs_uri if context.hub else "",
        secrets=context.secrets,
        repair_limit_s=context.hub.assignment.repair_limit_s if context.hub else 0.0,
        stop_grace_s=context.hub.stop_grace_s if context.hub else lambda: ASKED_HERE_S,
    )


def _settings(request: TrainRequest, context: TaskContext) -> dict[str, Any] | None:
    """None for a program: what a predictor reads are shapes of language models."""
    if request.task.program is not None:
        return None
    from tuneyard.tuning import settings_row

    shape = model_shape(request.model_uri, request.task.model.revision)
    return settings_row(request.task, shape, request.plan, gpus_per_node=max(1, context.machine.devices))


def _run_train(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    request = train_request(task, context)
    context.use_ray()
    setting = replace(
        _setting(context),
        on_attempt=lambda attempt: attempts.begin(attempt.plan, _settings(attempt, context)),
        on_failure=lambda _attempt, error: attempts.failed(error),
    )
    preflight: dict[str, Any] = {}

    def emit(event: Event) -> None:
        if isinstance(event, Preflighted):
            preflight["preflight"] = {"all_reduce_gb_per_s": event.all_reduce_gb_per_s, "seconds": event.seconds}
        context.emit(event)

    result = asdict(run_train(request, setting, emit, context.should_stop)) | preflight
    if not context.machine.has_gpus:
        keep_libraries_gb(max(result["libraries_gb"]))
    if "metrics" in result["details"]:  # of held-out rows
        result["metrics"] = result["details"].pop("metrics")
    artifacts = {kind: result[f"{kind}_uri"] for kind in ("model", "adapter", "merged") if result[f"{kind}_uri"]}
    return {**result, "artifacts": artifacts, "base_model_uri": request.model_uri, "plan": request.plan.to_dict()}


def _run_score(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    from tuneyard.ranking import holds_ranker
    from tuneyard.runtime.engine import EngineLogs
    from tuneyard.runtime.pool import score

    request = score_request(*resolved(task, context.base_dir, context.results), context)
    context.use_ray()
    attempts.begin()
    server = None if holds_ranker(request.model_uri) else context.warm.engines()
    if context.hub is None or context.hub.nodes is None:
        return asdict(score(request, emit=context.emit, should_stop=context.should_stop, server=server))
    nodes = context.hub.nodes

    def should_stop() -> bool:
        nodes.raise_if_none_is_left()
        return context.should_stop()

    logs = EngineLogs(context.logs, EnginePlaces(task.name, nodes, context.emit))
    return asdict(score(request, emit=context.emit, should_stop=should_stop, logs=logs, server=server))


class EnginePlaces:
    """Follows engines as they start, and tells where all of them are."""

    def __init__(self, task: str, nodes: Nodes, emit: Emit) -> None:
        self._task, self._nodes, self._emit = task, nodes, emit
        self._places: dict[int, RankPlace] = {}

    def __call__(self, engine: RankProcess) -> None:
        self._nodes.follow(engine, f"engine-{engine.rank}")
        self._places[engine.rank] = RankPlace(rank=engine.rank, pod=engine.pod.name, node=engine.pod.node)
        self._emit(Placed(task=self._task, ranks=tuple(place for _, place in sorted(self._places.items()))))


def score_request(task: Task, start: Start, context: TaskContext) -> ScoreRequest:
    """The request of a score task whose references are resolved."""
    assert task.score is not None
    return ScoreRequest(
        job=context.job.metadata.name,
        name=task.name,
        task=task.score,
        model_uri=start.model_uri,
        adapter_uri=start.adapter_uri,
        output=context.output.task_uri(task.name),
        scratch=str(context.scratch / task.name),
        instances=task.resources.instances,
        sku=context.machine.sku,
    )
