"""The listener of a job's events. It passes them to run history and trackers, and collects the report."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuneyard.api import JobSpec
from tuneyard.api.secrets import redact, redact_fields
from tuneyard.tracing import is_on
from tuneyard.tracking.events import Emit, Event, TaskEvent, Warned, silent
from tuneyard.tracking.progress.fold import TaskProgress, after, job_before
from tuneyard.tracking.report import Report
from tuneyard.tracking.series import TaskSeries
from tuneyard.tracking.sink import Sink, Warnings
from tuneyard.tracking.trackers import KeepFile, Trackers, asked_for


class Recorder:
    """Takes the events of one job, in the driver's thread: `recorder(event)`. Never raises and never waits. Returns the event for other
    listeners: the end of an attempt has its length.

    `previous`: the report of the run that this one resumes. Tasks that were done then keep their part of it.
    """

    def __init__(
        self,
        job: JobSpec,
        sinks: Sequence[Sink] = (),
        *,
        output: str = "",
        warnings: Warnings | None = None,
        warn: Emit = silent,
        previous: Report | None = None,
    ) -> None:
        self._job = job
        self._sinks = list(sinks)
        self._output = output
        self._warnings = warnings or Warnings()
        self._warn = warn
        self._previous = previous.tasks if previous else {}
        self._series: dict[str, TaskSeries] = {}
        self._progress = dict(job_before(job).tasks)
        self._started_at = datetime.now(UTC)
        self._began = time.monotonic()
        self._closed: tuple[str, str] | None = None
        self._took_s: float | None = None

    def __call__(self, event: Event) -> Event:
        if event.task and "/" not in event.task:  # with a slash: a trial of a tune task
            self._collect(event)
            event = self._timed(event)
        for sink in self._sinks:
            sink.record(event)
        self._pass_on_warnings()
        return event

    def _collect(self, event: Event) -> None:
        begins = isinstance(event, TaskEvent) and event.state == "started"
        if begins or event.task not in self._series:
            # A new attempt starts its curves again, from the checkpoint it resumes from.
            self._series[event.task] = TaskSeries()
        self._series[event.task].add(event)
        if event.task in self._progress or isinstance(event, TaskEvent):
            known = self._progress.get(event.task) or TaskProgress(name=event.task)
            self._progress[event.task] = after(known, event, time.monotonic())

    def _timed(self, event: Event) -> Event:
        """The end of an attempt with its length: the report, history and trackers show one measurement. A task's own measurement leaves
        out the start of its processes."""
        if not isinstance(event, TaskEvent) or event.state in ("started", "skipped"):
            return event
        seconds = self._progress[event.task].seconds(time.monotonic())
        if seconds is None:
            return event
        return replace(event, wall_s=seconds, result=None if event.result is None else {**event.result, "wall_s": seconds})

    def _pass_on_warnings(self) -> None:
        for message in self._warnings.take():
            self._warn(Warned(task="", message=message))

    def report(self, status: str = "running", message: str = "") -> Report:
        """The report as of now: at any time while the job runs, and at its end."""
        if self._closed:
            status, message = self._closed
        return Report(
            job=self._job.metadata.name,
            status=status,
            message=redact(message),
            team=self._job.team,
            output=redact(self._output),
            started_at=self._started_at.isoformat(timespec="seconds"),
            wall_s=self._took_s if self._took_s is not None else time.monotonic() - self._began,
            spec=redact_fields(self._job.to_yaml_dict()),
            tasks={name: self._task(self._at_the_end(task)) for name, task in self._progress.items()},
        )

    def _at_the_end(self, task: TaskProgress) -> TaskProgress:
        """A task that was at work when its job ended has ended as the job did: no event tells of it after a second Ctrl-C."""
        if not self._closed or not task.at_work:
            return task
        return replace(task, state="stopped" if self._closed[0] == "stopped" else "failed")

    def _task(self, task: TaskProgress) -> dict[str, Any]:
        series = self._series.get(task.name)
        before = self._previous.get(task.name, {}) if task.state in ("skipped", "waiting") else {}
        seen = series.to_dict() if series else {}
        facts = _facts(task)
        # The result of the task wins over its curves.
        values = {**before, **facts, **seen, **redact_fields(dict(task.result or {}))}
        known = facts.get("wall_s", before.get("wall_s"))
        return values if known is None else {**values, "wall_s": known}

    def close(self, status: str, message: str = "") -> Report:
        """The job ended: everything is written out, within bounded time, which is no part of the job's. The final report."""
        self._closed, self._took_s = (status, message), time.monotonic() - self._began
        for sink in self._sinks:
            sink.close(status, message)
        self._pass_on_warnings()
        return self.report()


def _facts(task: TaskProgress) -> dict[str, Any]:
    """What report.json holds of a task from its progress."""
    status = {"waiting": "pending", "starting": "running", "skipped": "succeeded"}.get(task.state, task.state)
    values: dict[str, Any] = {"kind": task.kind, "status": status}
    if task.state != "waiting":
        attempt = task.attempt if task.began_s is not None else None
        told = {"attempt": attempt, "plan": task.plan, "failure": task.failure, "message": redact(task.message)}
        values |= {name: value for name, value in told.items() if value}
    seconds = task.seconds(time.monotonic())
    if seconds is not None:
        values["wall_s"] = seconds
    return {**values, **({"progress": _counted(task)} if task.count is not None else {})}


def _counted(task: TaskProgress) -> dict[str, Any]:
    assert task.count is not None
    done = {task.count.noun: task.count.done, "of": task.count.of}
    if task.count.noun == "step":
        return {**done, "eta_s": task.eta_s}
    rates = {"tokens_per_s": task.tokens_per_s, "rows_per_s": task.rows_per_s}
    if task.count.noun == "rows":
        rates = {"errors": task.errors, "output_tokens_per_s": task.tokens_per_s, "rows_per_s": task.rows_per_s}
    return {**done, **{name: value for name, value in rates.items() if value is not None}}


def open_recorder(
    job: JobSpec,
    *,
    output: str,
    folder: Path,
    keep: KeepFile | None = None,
    warn: Emit = silent,
    previous: Report | None = None,
    traced: bool = True,
) -> Recorder:
    """The recorder of a job: run history (unless TUNEYARD_HISTORY=off), and the trackers that the job asks for.

    `output` is the job's output URI, `folder` a local folder: the files of a tracker go to `folder`/NAME. `keep` copies them below the
    output, if `folder` is not the output itself. Trouble with a sink is a Warned event to `warn`. `previous`: the report that a resumed
    run left. `traced`: the run has a trace of its own, where OpenTelemetry's variables name a receiver.
    """
    warnings = Warnings()
    sinks: list[Sink] = []
    if os.environ.get("TUNEYARD_HISTORY", "on") != "off":
        from tuneyard.tracking.history_sink import HistorySink

        sinks.append(HistorySink(job, output, warnings))
    if traced and is_on(os.environ):
        from tuneyard.tracking.span_sink import SpanSink

        sinks.append(SpanSink(job, warnings))
    trackers = list(asked_for(job.spec.tracking))
    if trackers:
        sinks.append(Trackers(job, trackers, folder, keep, warnings))
    return Recorder(job, sinks, output=output, warnings=warnings, warn=warn, previous=previous)
