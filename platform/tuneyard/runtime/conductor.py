"""Runs tasks of one job, one after the other: all of them on this machine for `run_job`, one of them in pods for `run_assigned`.

Upstream tasks run first. On one machine, two tasks at a time would only share cores or GPUs; a hub starts each task in pods of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuneyard.api import FailureKind, JobFailed, JobSpec, StorageError, Task, TuneyardError
from tuneyard.runtime.environment import hide
from tuneyard.runtime.inputs import inputs_of
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.job_report import JobReport
from tuneyard.runtime.machines import Machines, engine_log, rank_log
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.score.comparing import changes_since_last_good, compare_finished, with_comparisons
from tuneyard.runtime.task_context import Result, TaskContext
from tuneyard.runtime.tasks import run_task
from tuneyard.tracking import REPORT_JSON, Event, Recorder, Report, TaskEvent, Warned, open_recorder

Listener = Callable[[Event], None]
_STOPPED: Result = {"status": "stopped"}


@dataclass(frozen=True)
class Watch:
    """Tells whether a job must stop. `asked`: whether a person or a hub has asked for it. `deadline_s`: in seconds from `began`."""

    asked: ShouldStop
    deadline_s: float | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def past_deadline(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline_s is not None and time.monotonic() - self.began > self.deadline_s

    def should_stop(self) -> bool:
        """Whether tasks must stop."""
        return self.asked() or self.past_deadline


@dataclass(frozen=True, kw_only=True)
class Conductor:
    """`job`: the job as written. `wanted`: names of the tasks to run. `resume`: resume from the content of the output. `records`: local
    folder for files of trackers. `previous`: the report of the resumed run. `on_report` is called with the URI of the last
    report."""

    job: JobSpec
    wanted: Collection[str]
    machines: Machines
    output: JobOutput
    report: JobReport
    watch: Watch
    listener: Listener
    secrets: Sequence[str]
    base_dir: Path
    scratch: Path
    records: Path
    resume: bool
    previous: Report | None = None
    traced: bool = True
    """Whether the run has a trace of its own. An attempt has none: its hub sends its spans."""
    on_report: Callable[[str], None] = lambda _uri: None
    warned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Warnings by task, of a look at the data before anything started."""

    def run(self) -> Report:
        """Claim the output, run the tasks, and write the report in every case.

        Raises the error of the failed task, BadInput if the output cannot be claimed, and JobFailed past the deadline.
        """
        self.output.claim(self.job, resume=self.resume)
        recorder = open_recorder(
            self.job,
            output=self.output.uri,
            folder=self.records,
            keep=None if self.records == self.output.local_folder else self.output.store.put,
            warn=self.listener,
            previous=self.previous,
            traced=self.traced,
        )
        status, message = "failed", ""
        with self.machines.in_use():
            try:
                self.machines.set_up(self.watch.should_stop)
                status, message = self._run_tasks(recorder)
            except TuneyardError as error:
                message = hide(str(error), self.secrets)
                raise
            except KeyboardInterrupt:
                status, message = "stopped", self._then("ended at once by a second Ctrl-C")
                raise
            except BaseException as error:
                message = hide(f"bug in Tuneyard: {type(error).__name__}: {error}", self.secrets)
                raise
            finally:
                report = self._with_comparisons(recorder.close(status, message))
                if self._write(report):
                    self.on_report(self.output.store.url(REPORT_JSON))
        return report

    def _with_comparisons(self, report: Report) -> Report:
        try:
            return with_comparisons(report, self.output.store)
        except StorageError:  # writing the report says why
            return report

    def _run_tasks(self, recorder: Recorder) -> tuple[str, str]:
        """Run the wanted tasks. Returns status and message of the job."""
        context = self._context(recorder)
        for task in context.job.spec.task_order():
            if task.name not in self.wanted:
                continue
            self._write(recorder.report())  # the report that a killed process leaves behind
            done = self.output.finished(task, inputs_of(task, self.base_dir)) if self.resume else None
            if done is not None and (lost := self.output.lost(task)):
                message = f"goes on from its newest checkpoint, to write what was lost or changed since: {', '.join(lost[:3])}"
                context.emit(Warned(task=task.name, message=message))
            elif done is not None:
                context.results[task.name] = done
                if task.score is not None:
                    compare_finished(context.job, task.name, context.output, context.emit, anew=False)
                    done = {**done, **changes_since_last_good(context.job, task.name, context.output, context.emit, anew=False)}
                context.emit(TaskEvent(task=task.name, state="skipped", kind=task.kind, result=done))
                continue
            result = self._run(task, context)
            if result["status"] == "stopped":
                return "stopped", result.get("why") or self._why_stopped(task)
            context.results[task.name] = result
        return "succeeded", ""

    def _context(self, recorder: Recorder) -> TaskContext:
        def emit(event: Event) -> None:
            self.listener(recorder(event))
            if isinstance(event, TaskEvent) and event.state == "started":  # what came before is not in the task's report
                for message in self.warned.get(event.task, ()):
                    self.listener(recorder(Warned(task=event.task, message=message)))

        return TaskContext(
            job=self.machines.chosen(self.job),
            base_dir=self.base_dir,
            output=self.output,
            machines=self.machines,
            scratch=self.scratch,
            secrets=self.secrets,
            emit=emit,
            should_stop=lambda: self.watch.should_stop() or self.machines.noticed,
            wanted=self.wanted,
        )

    def _run(self, task: Task, context: TaskContext) -> Result:
        """Run a task that has not succeeded yet, once the machines are ready for it."""
        if context.should_stop():
            return _STOPPED
        for name in context.job.spec.needs(task):
            if name not in context.results:
                context.results[name] = self._result_of(name, task)
        with self.machines.ready_for(task, context.emit, context.should_stop) as ready:
            if not ready or context.should_stop():
                return _STOPPED
            try:
                return _run_and_commit(task, context)
            except TuneyardError as error:
                self._add_tail(error, task)
                raise

    def _result_of(self, name: str, task: Task) -> Result:
        result = self.output.finished(self.job.spec.task(name))
        if result is None:
            raise StorageError(
                f"task {task.name} needs the result of task {name}, and {self.output.store.url(name)} holds none",
                "check that all attempts of the job use the same output",
            )
        return result

    def _why_stopped(self, task: Task) -> str:
        """The message of a stopped job. Raises JobFailed if only the deadline has stopped it."""
        if self.watch.past_deadline and not self.watch.asked():
            raise JobFailed(
                f"the job's deadline of {self.watch.deadline_s:g} s has passed in task {task.name}; its checkpoints are kept",
                "set a later deadline and resume with --resume",
                kind=FailureKind.DEADLINE,
            )
        return self._then(f"stopped in task {task.name}")

    def _then(self, what: str) -> str:
        return f"{what}; {self.machines.after_stop}"

    def _add_tail(self, error: TuneyardError, task: Task) -> None:
        """Add the last log lines of the rank or engine to blame, unless the error has them."""
        blame = error.blame
        if blame.rank is not None and not blame.log_tail:
            log = engine_log(task.name, blame.rank) if task.score is not None else rank_log(task.name, blame.rank)
            error.blame = replace(blame, log_tail=self.machines.tail(log))

    def _write(self, report: Report) -> bool:
        """Write the report. False if it could not be written. Raises StorageError if this report is required."""
        try:
            self.report.write(report)
        except StorageError as error:
            if report.status in self.report.required:
                raise
            about = next(iter(self.wanted)) if len(self.wanted) == 1 else ""
            self.listener(Warned(task=about, message=f"the report could not be written: {error.cause}"))
            return False
        return True


def _run_and_commit(task: Task, context: TaskContext) -> Result:
    """Run a task, and commit its result if it succeeded. Raises TuneyardError if it failed for good."""
    if context.job.spec.gang_of(task).training is None:
        context.machines.gangs.release()
    inputs = inputs_of(task, context.base_dir)
    if context.output.goes_on(task):
        for name in context.output.reopen(task, context.job, inputs):
            context.emit(Warned(task=name, message=f"runs again: task {task.name} goes on, and its model will be another"))
    context.output.begin(task, inputs)
    result = run_task(task, context)
    if result["status"] == "succeeded":
        context.output.finish(task.name, result)
        if task.score is not None:
            compare_finished(context.job, task.name, context.output, context.emit, anew=True)
            result = {**result, **changes_since_last_good(context.job, task.name, context.output, context.emit, anew=True)}
    number = context.machines.number(len(result["attempts"]))
    context.emit(TaskEvent(task=task.name, state=result["status"], kind=task.kind, attempt=number, result=result))
    return result
