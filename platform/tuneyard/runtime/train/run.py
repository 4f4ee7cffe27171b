"""Runs a train task on Ray, from the first start of its ranks to the last. The JobSpec's `retries` decide what follows a failed start."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from tuneyard.api import FailureKind, Retries, TuneyardError
from tuneyard.api.retrying import answer_to
from tuneyard.data.shared.place import Counts, with_counts
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.train.attempt import TrainAttempt, TrainSetting
from tuneyard.runtime.train.failures import shrunk
from tuneyard.tracking import Emit, Warned, bottleneck_of
from tuneyard.training.request import TrainRequest, TrainResult


def run_train(request: TrainRequest, setting: TrainSetting, emit: Emit, should_stop: ShouldStop) -> TrainResult:
    """Train until an attempt succeeds, a stop is asked for, or `retries` allows no further attempt.

    Every attempt starts from the newest committed checkpoint. Raises the last attempt's error, or StoppedBeforeSteps.
    """
    result = _run_with_service(request, setting, emit, should_stop)
    problem = (result.details.get("shared_shards") or {}).get("sentence")
    if problem:
        emit(Warned(task=request.name, message=problem))
    return result


def _run_with_service(request: TrainRequest, setting: TrainSetting, emit: Emit, should_stop: ShouldStop) -> TrainResult:
    if request.task.data.service is None:
        return _run_attempts(request, setting, emit, should_stop)
    from tuneyard.runtime.ingest.service import ROWS, TABLES, TOKENIZERS, Ingestion

    loads = TABLES if request.rank is not None else ROWS if request.task.program is not None else TOKENIZERS
    ingestion = Ingestion(request.job, request.name, request.task.data.service, loads=loads)
    try:
        result = _run_attempts(replace(request, ingestion=ingestion.name), setting, emit, should_stop)
        if request.shared is not None:
            ingestion.finish()
        account = ingestion.report()
        return result if account is None else replace(result, details=_with_service(result, asdict(account)))
    finally:
        ingestion.close()


def _with_service(result: TrainResult, service: dict[str, Any]) -> dict[str, Any]:
    """Details of a result with the figures of its ingestion service, and the bottleneck that follows from both."""
    shared = service.pop("shared")
    details = {**result.details, "data_service": service}
    if "shared_shards" in details:
        details["shared_shards"] = with_counts(details["shared_shards"], Counts(**shared))
    if "stream" not in details:
        return details
    return details | {"bottleneck": asdict(bottleneck_of(result.split, details["stream"], service))}


def _run_attempts(request: TrainRequest, setting: TrainSetting, emit: Emit, should_stop: ShouldStop) -> TrainResult:
    first = request.attempt
    while True:
        setting.on_attempt(request)
        try:
            return TrainAttempt(request, setting, emit, should_stop).run()
        except TuneyardError as error:
            setting.on_failure(request, error)
            following = _next_attempt(request, error, setting, starts=request.attempt - first + 1)
            if following is None or should_stop():
                raise
            if not setting.machines.can_go_on(error, following.plan.workers, should_stop):
                raise
            emit(Warned(task=request.name, message=_announcement(error, following, first, setting.retries)))
            request = following


def _next_attempt(request: TrainRequest, error: TuneyardError, setting: TrainSetting, *, starts: int) -> TrainRequest | None:
    answer = answer_to(error.kind, setting.retries, failures=starts, place="here")
    if answer == "stop":
        return None
    plan = shrunk(request.plan) if answer == "shrink" else request.plan
    return None if plan is None else replace(request, plan=plan, attempt=request.attempt + 1, resume=True)


def _announcement(error: TuneyardError, following: TrainRequest, first: int, retries: Retries) -> str:
    smaller = f" with micro-batch {following.plan.micro_batch}" if error.kind is FailureKind.OUT_OF_MEMORY else ""
    cause = error.cause.splitlines()[0].rstrip(":;")
    return f"{cause}; starting attempt {following.attempt - first + 1} of {retries.max + 1}{smaller} from the last committed checkpoint"
