"""The trace of a run on one machine, from its events, sent from a thread of its own: a slow receiver neither slows nor ends the job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Condition, Thread
from uuid import uuid4

from tuneyard.api import BadInput, JobSpec
from tuneyard.tracing import Context, Exporter, Span, bounded, cut, exporter_from, id_of, stage_spans, told, trace_id_of
from tuneyard.tracking.events import Event, TaskEvent
from tuneyard.tracking.sink import Warnings
from tuneyard.tracking.stage_times import PREPARATION, Stages, begun, stages_after

END_LIMIT_S = 10.0
"""Seconds that the end of a job waits for its last spans."""
_EVERY_S = 10.0
_FIGURES = ("tokens_per_s", "rows_per_s", "mfu", "steps", "rows", "errors")
OpenExporter = Callable[[], Exporter | None]


@dataclass(frozen=True)
class _Attempt:
    """An attempt at a task. `end`: its last event."""

    began: TaskEvent
    at: datetime
    stages: Stages
    end: TaskEvent | None = None
    ended_at: datetime | None = None


class SpanSink:
    """The spans of one job, as one sink. Spans are sent every few seconds, once they have ended."""

    def __init__(self, job: JobSpec, warnings: Warnings, open_exporter: OpenExporter | None = None) -> None:
        run = uuid4().hex
        outer = Context.parse(os.environ.get("TRACEPARENT", ""))
        self._root = Span(
            name="job",
            context=Context(
                trace_id=outer.trace_id if outer is not None else trace_id_of(run),
                span_id=id_of(run, "job"),
                sampled=outer.sampled if outer is not None else True,
            ),
            parent_id=outer.span_id if outer is not None else None,
            start=datetime.now(UTC),
            end=None,
            attributes=told({"tuneyard.job.name": job.metadata.name, "tuneyard.team": job.team}),
        )
        self._attempts: list[_Attempt] = []
        self._warnings = warnings
        self._open_exporter = open_exporter or (lambda: exporter_from(os.environ, "tuneyard"))
        self._sent: set[int] = set()
        self._changed = Condition()
        self._closing = False
        # A daemon: the process ends even while a receiver hangs.
        self._thread = Thread(target=self._send_all, name="tuneyard-traces", daemon=True)
        self._thread.start()

    def record(self, event: Event) -> None:
        if not event.task or "/" in event.task:  # with a slash: a trial of a tune task
            return
        now = datetime.now(UTC)
        with self._changed:
            if isinstance(event, TaskEvent) and event.state == "started":
                self._attempts.append(_Attempt(event, now, begun(PREPARATION, now)))
                return
            index = next((i for i in reversed(range(len(self._attempts))) if self._attempts[i].began.task == event.task), None)
            if index is None or self._attempts[index].end is not None:
                return
            known = self._attempts[index]
            end = event if isinstance(event, TaskEvent) else None
            ended_at = now if end is not None else None
            self._attempts[index] = replace(known, stages=stages_after(known.stages, event, now), end=end, ended_at=ended_at)

    def close(self, status: str, message: str) -> None:
        """The job ended: its last spans are sent, within END_LIMIT_S."""
        now = datetime.now(UTC)
        error = bounded(message or status) if status == "failed" else ""
        with self._changed:
            self._root = replace(self._root, end=now, attributes={**self._root.attributes, "tuneyard.job.status": status}, error=error)
            self._closing = True
            self._changed.notify()
        self._thread.join(END_LIMIT_S)
        if self._thread.is_alive():
            self._warnings.add("traces", f"the receiver of traces did not take all spans within {END_LIMIT_S:.0f} s")

    def spans(self) -> list[Span]:
        """All spans as of now; spans without an end go on."""
        with self._changed:
            root, attempts = self._root, list(self._attempts)
        return [root, *(span for number, attempt in enumerate(attempts, 1) for span in _spans(root, attempt, number))]

    def _send_all(self) -> None:
        exporter: Exporter | None = None
        pause_s = 0.0  # the exporter loads while the job starts
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing, timeout=pause_s)
                closing, pause_s = self._closing, _EVERY_S
            try:
                exporter = exporter or self._open_exporter()
                reason = self._send(exporter) if exporter is not None else ""
            except BadInput as error:
                reason = f"{error.cause}: {error.next_step}"
            except Exception as error:  # noqa: BLE001 - a trace must not end a job
                reason = f"{type(error).__name__}: {error}"
            if reason:
                self._warnings.add("traces", f"traces are not sent: {bounded(reason)}. The job goes on")
            if closing:
                return

    def _send(self, exporter: Exporter) -> str:
        ended = [span for span in self.spans() if span.end is not None and span.id not in self._sent]
        reason = exporter.send(ended) if ended else ""
        if not reason:
            self._sent |= {span.id for span in ended}
        return reason


def _spans(root: Span, attempt: _Attempt, number: int) -> Iterator[Span]:
    began, end = attempt.began, attempt.end
    result = (end.result or {}) if end is not None else {}
    figures = {f"tuneyard.{name}": result[name] for name in _FIGURES if isinstance(result.get(name), int | float)}
    plan = began.plan or {}
    made = root.child(
        f"task {cut(began.task)}",
        attempt.at,
        attempt.ended_at,
        number,
        attributes=told(
            {
                "tuneyard.task.name": began.task,
                "tuneyard.task.kind": began.kind,
                "tuneyard.attempt.number": began.attempt,
                "tuneyard.sku": str(plan.get("sku", "")),
                "tuneyard.workers": plan.get("workers"),
                "tuneyard.task.phase": end.state if end is not None else None,
                "error.type": end.failure if end is not None else None,
                **figures,
            }
        ),
        error=bounded(f"{end.failure}: {end.message}") if end is not None and end.state == "failed" else "",
    )
    if attempt.ended_at is None and root.end is None:
        made = replace(made, end=None)
    yield made
    yield from stage_spans(made, (), attempt.stages)
