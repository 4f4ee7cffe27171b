"""Events of one job into run history, from a thread of its own: a locked or lost database neither slows nor ends the job."""

from __future__ import annotations

import math
import uuid
from collections import deque
from dataclasses import asdict
from datetime import UTC, datetime
from threading import Condition, Thread
from typing import Any

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tuneyard.api import JobSpec, TuneyardError
from tuneyard.api.secrets import redact, redact_fields
from tuneyard.tracking import tables
from tuneyard.tracking.events import Charged, Evaluated, Event, Step, TaskEvent
from tuneyard.tracking.history import History, Insert, Update
from tuneyard.tracking.machines import used
from tuneyard.tracking.progress.summary import StepSummary, summed
from tuneyard.tracking.sink import Warnings

FLUSH_S = 1.0
RETRY_S = 15.0
CLOSE_LIMIT_S = 15.0
"""How long the end of a job waits for the last rows."""
MOST_WAITING = 50_000
"""Rows kept for a database that is away; steps that come after them are dropped."""
_LONGEST_METRIC = 100
_LISTS_KEPT_ELSEWHERE = ("losses", "series")
"""Parts of a result that are rows of `steps` already."""


class HistorySink:
    """Writes a job, its attempts, steps, evaluations, charges and usage. Rows are written in batches, in order."""

    def __init__(self, job: JobSpec, output: str, warnings: Warnings, *, url: str | None = None) -> None:
        self._url = url
        self._job = job
        self._job_id = uuid.uuid4().hex
        self._attempts: dict[str, tuple[str, TaskEvent, datetime]] = {}
        self._summaries: dict[str, StepSummary] = {}
        self._warnings = warnings
        self._waiting: deque[Insert | Update] = deque()
        self._changed = Condition()
        self._closing = False
        self._add(
            Insert(
                tables.jobs,
                {
                    "id": self._job_id,
                    "name": job.metadata.name,
                    "namespace": job.metadata.namespace,
                    "team": job.team,
                    "status": "running",
                    "message": "",
                    "output": redact(output),
                    "spec": redact_fields(job.to_yaml_dict()),
                    "started_at": datetime.now(UTC),
                    "ended_at": None,
                },
            )
        )
        # A daemon: the process ends even while the database hangs.
        self._thread = Thread(target=self._write_all, name="tuneyard-history", daemon=True)
        self._thread.start()

    def record(self, event: Event) -> None:
        if isinstance(event, TaskEvent):
            self._record_task(event)
        elif isinstance(event, Step):
            values = {"attempt_id": self._attempt_id(event.task), **_numbers(asdict(event))}
            self._summaries[event.task] = self._summaries.get(event.task, StepSummary()).after(event)
            self._add(Insert(tables.steps, {column.name: values.get(column.name) for column in tables.steps.columns}))
        elif isinstance(event, Charged):
            values = {"attempt_id": self._attempt_id(event.task), "metric": tables.CHARGED, "value": event.amount}
            self._add(Insert(tables.scores, values))
        elif isinstance(event, Evaluated):
            values = {"attempt_id": self._attempt_id(event.task), "step": event.step, "loss": _finite(event.loss)}
            self._add(Insert(tables.evaluations, values))

    def close(self, status: str, message: str) -> None:
        self._add(Update(tables.jobs, self._job_id, {"status": status, "message": redact(message), "ended_at": datetime.now(UTC)}))
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_LIMIT_S)
        if self._waiting:
            self._warnings.add("lost", f"{len(self._waiting)} rows of run history were not written; the report has them all")

    def _add(self, change: Insert | Update) -> None:
        with self._changed:
            if len(self._waiting) < MOST_WAITING or change.table is not tables.steps:
                self._waiting.append(change)

    def _record_task(self, event: TaskEvent) -> None:
        if event.state == "started":
            self._begin(event)
        elif event.state != "skipped":
            self._end(event)

    def _begin(self, event: TaskEvent) -> str:
        attempt_id = uuid.uuid4().hex
        plan = event.plan or {}
        now = datetime.now(UTC)
        self._attempts[event.task] = (attempt_id, event, now)
        self._summaries.pop(event.task, None)
        values = {
            "id": attempt_id,
            "job_id": self._job_id,
            "task": event.task,
            "kind": event.kind,
            "number": event.attempt,
            "status": "running",
            "failure": "",
            "message": "",
            "sku": plan.get("sku", ""),
            "workers": plan.get("workers", 1),
            "gpus": _gpus(plan),
            "plan": redact_fields(event.plan),
            "result": None,
            "settings": event.settings,
            "started_at": now,
            "ended_at": None,
        }
        self._add(Insert(tables.attempts, values))
        return attempt_id

    def _attempt_id(self, task: str) -> str:
        known = self._attempts.get(task)
        return known[0] if known else self._begin(TaskEvent(task=task, state="started"))

    def _end(self, event: TaskEvent) -> None:
        attempt_id = self._attempt_id(event.task)
        _, begun, started_at = self._attempts.pop(event.task)
        now = datetime.now(UTC)
        result = {name: value for name, value in (event.result or {}).items() if name not in _LISTS_KEPT_ELSEWHERE}
        changes = {
            "status": event.state,
            "failure": event.failure,
            "message": redact(event.message),
            "result": redact_fields(_numbers(result)) if event.result is not None else None,
            "ended_at": now,
            "summary": summed(self._summaries.pop(event.task, StepSummary())),
        }
        self._add(Update(tables.attempts, attempt_id, changes))
        usage = _usage(begun, (now - started_at).total_seconds() if event.wall_s is None else event.wall_s)
        self._add(Insert(tables.usage, {"attempt_id": attempt_id, "team": self._job.team, **usage}))
        for metric, value in _figures(event.result or {}).items():
            self._add(Insert(tables.scores, {"attempt_id": attempt_id, "metric": metric, "value": value}))

    def _write_all(self) -> None:
        """The thread: connects, then writes what waits, until the job ends."""
        history: History | None = None
        pause_s = FLUSH_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing, timeout=pause_s if history or pause_s > FLUSH_S else 0)
                closing, batch = self._closing, list(self._waiting)
            try:
                history = history or History.open(self._url)
                if batch:
                    history.write(batch)
                pause_s = FLUSH_S
                self._forget(batch)
            except (SQLAlchemyError, TuneyardError) as error:
                pause_s = RETRY_S
                self._explain(error, batch)
            if closing:
                break
        if history:
            history.close()

    def _forget(self, batch: list[Insert | Update]) -> None:
        with self._changed:
            for _ in batch:
                self._waiting.popleft()

    def _explain(self, error: SQLAlchemyError | TuneyardError, batch: list[Insert | Update]) -> None:
        reason = redact(str(getattr(error, "orig", None) or getattr(error, "cause", None) or error)).strip().splitlines()[0]
        if isinstance(error, DBAPIError) and not _passes(error):
            # These rows would be refused every time, and hold up all that come after them.
            self._forget(batch)
            self._warnings.add("refused", f"run history refused {len(batch)} rows: {reason}")
            return
        self._warnings.add("away", f"run history is not written for now: {reason}. The job goes on; rows are kept and tried again")


def _passes(error: DBAPIError) -> bool:
    """True for locks, lost connections and full disks."""
    return error.connection_invalidated or type(error).__name__ in ("OperationalError", "InterfaceError", "InternalError")


def _usage(begun: TaskEvent, seconds: float) -> dict[str, Any]:
    plan = begun.plan or {}
    sku, workers = plan.get("sku", ""), plan.get("workers", 1)
    return {"sku": sku, "workers": workers, "seconds": seconds, "gpu_hours": seconds * _gpus(plan) / 3600}


def _gpus(plan: dict[str, Any]) -> int:
    """GPUs of an attempt; a worker on processors has none."""
    return int(plan.get("workers", 1)) if plan.get("sku", "") not in ("", "cpu") else 0


def _figures(result: dict[str, Any]) -> dict[str, float]:
    """The numbers of a result, what its machines did, and the metrics of a score task."""
    metrics = result.get("metrics")
    named = {**result, **used(result), **(metrics if isinstance(metrics, dict) else {})}
    plain = {name: value for name, value in named.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    return {str(name)[:_LONGEST_METRIC]: float(value) for name, value in plain.items() if math.isfinite(value)}


def _numbers(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with the parts of a time split at the top, and without NaN and infinity, which JSON columns refuse."""
    flat = {**values, **values["split"]} if isinstance(values.get("split"), dict) else values
    return {name: _finite(value) for name, value in flat.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
