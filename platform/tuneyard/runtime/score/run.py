"""Runs a score task on its machines: makes its request, starts its engines, and reports their places."""

from __future__ import annotations

from dataclasses import asdict

from tuneyard.api import Task
from tuneyard.api.attempt_report import RankPlace
from tuneyard.runtime.gang.mailbox import RankProcess
from tuneyard.runtime.machines import engine_log
from tuneyard.runtime.references import Start, resolved
from tuneyard.runtime.score.past import past_scores
from tuneyard.runtime.score.predicted import promise_of, speed_of
from tuneyard.runtime.task_context import Attempts, Result, TaskContext, with_found
from tuneyard.scoring.request import ScoreRequest
from tuneyard.tracking import Placed


def run_score(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    """Score until all rows are committed, or a stop is asked for. Raises TuneyardError, also if all machines are lost."""
    from tuneyard.runtime.score.engine import EngineLogs
    from tuneyard.runtime.score.pool import score

    request = score_request(*resolved(with_found(task, context.results), context.base_dir, context.results), context)
    machines = context.machines
    machines.use_ray()
    attempts.begin()
    server = machines.warm.engines() if needs_vllm(request) else None

    def should_stop() -> bool:
        machines.check_living()
        return context.should_stop()

    logs = EngineLogs(machines.logs, EnginePlaces(task.name, context, on_head=task.endpoint is not None))
    promise = None
    if needs_vllm(request):
        past = past_scores(lambda _: None)
        promise = promise_of(request, past, past.answers(context.job, task).tokens)
    result = asdict(score(request, emit=context.emit, should_stop=should_stop, logs=logs, server=server))
    if promise is not None and (speed := speed_of(request, result, promise)) is not None:
        result["details"]["speed"] = speed
    return result


def needs_vllm(request: ScoreRequest) -> bool:
    """Whether engines answer: neither an endpoint nor a ranker."""
    from tuneyard.ranking import holds_ranker

    return request.task.engine.endpoint is None and not holds_ranker(request.model_uri)


class EnginePlaces:
    """Follows engines as they start, and reports the places of all of them."""

    def __init__(self, task: str, context: TaskContext, *, on_head: bool = False, of: str = "", prefix: str = "engine") -> None:
        """`task`: whose engines they are; `of`: the task whose places they are, where another one runs it as a trial. `on_head`: they run
        in the machine of this process. `prefix`: of the sources of their logs."""
        self._task, self._context, self._on_head = task, context, on_head
        self._of, self._prefix = of or task, prefix
        self._places: dict[int, RankPlace] = {}

    def __call__(self, engine: RankProcess) -> None:
        log = engine_log(self._task, engine.rank, self._prefix)
        if self._on_head:
            self._context.machines.ship(log)
        self._context.machines.follow(engine, log)
        self._places[engine.rank] = RankPlace(rank=engine.rank, pod=engine.pod.name, node=engine.pod.node)
        self._context.emit(Placed(task=self._of, ranks=tuple(place for _, place in sorted(self._places.items()))))


def score_request(task: Task, start: Start, context: TaskContext) -> ScoreRequest:
    """The request of a score task with resolved references."""
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
        price_per_device_hour=context.machine.price_per_device_hour,
    )
