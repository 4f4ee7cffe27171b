"""Runs the assigned task in the head pod of an attempt, reports its state to the hub, and copies its logs to the output.

docs/design/060 is the contract: the environment, the AttemptReport, the exit code.
"""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, cast

from tuneyard.api import BadInput, FailureKind, JobFailed, JobSpec, TuneyardError
from tuneyard.api.attempt_report import AttemptState, StopReason
from tuneyard.api.serve import IDLE_S
from tuneyard.runtime.assigned import run_assigned
from tuneyard.runtime.attempt.assignment import Assignment, job_of
from tuneyard.runtime.attempt.log_shipper import LogShipper, secrets_here
from tuneyard.runtime.attempt.member_api import ApiServer, ReportObject
from tuneyard.runtime.attempt.reporter import AttemptReporter
from tuneyard.runtime.attempt.state import asleep, failed, state_of, stopped, succeeded
from tuneyard.runtime.conductor import Listener
from tuneyard.runtime.environment import hide
from tuneyard.runtime.interrupt import stop_on_interrupt
from tuneyard.runtime.nodes.pod import PodNotice
from tuneyard.tracking import Event, TaskProgress, after
from tuneyard.tracking.stage_times import PREPARATION, begun, stages_after

SUCCEEDED, FAILED, STOPPED = 0, 1, 3
_LAST_LINES_S = 90.0

OpenListener = Callable[[JobSpec, TextIO], Listener]
"""Makes a listener that writes events as plain lines to a stream."""


def run_attempt(environment: Mapping[str, str], open_listener: OpenListener, server: ApiServer | None = None) -> int:
    """Run the attempt that `environment` describes. Returns its exit code: 0 succeeded, 3 stopped as asked, 1 failed.

    `server`: the API server to report to; by default that of the cluster that this pod runs in, if any.
    """
    reporter = AttemptReporter(
        ReportObject.of_this_pod(environment, server), complain=lambda text: print(text, file=sys.stderr, flush=True)
    )
    attempt = _Attempt(reporter)
    with stop_on_interrupt(attempt.interrupted) as interrupted:
        try:
            attempt.run(environment, open_listener, interrupted)
        except TuneyardError as error:
            attempt.fail(error)
        except KeyboardInterrupt:
            attempt.end_stopped()
        except Exception as error:  # noqa: BLE001 - a bug in Tuneyard is reported like any other failure, and never retried silently
            import traceback

            traceback.print_exc()
            attempt.fail(JobFailed(f"bug in Tuneyard: {type(error).__name__}: {error}", "please report it", kind=FailureKind.INTERNAL))
        reporter.finish(attempt.state)
    return attempt.exit_code


class _Attempt:
    """The reported state of an attempt, updated by each event, and its exit code."""

    def __init__(self, reporter: AttemptReporter) -> None:
        self.state = AttemptState()
        self.exit_code = FAILED
        self._progress = TaskProgress(name="")
        self._stages = begun(PREPARATION, datetime.now(UTC))
        self._reporter = reporter
        self._secrets: list[str] = []

    def run(self, environment: Mapping[str, str], open_listener: OpenListener, interrupted: Callable[[], bool]) -> None:
        job, assignment = job_of(environment), Assignment.from_environment(environment)
        self._progress = TaskProgress(name=assignment.task, attempt=assignment.attempt)
        out = environment.get("TUNEYARD_OUTPUT") or job.spec.storage.output
        if not out:
            raise BadInput("the attempt has no output: TUNEYARD_OUTPUT and storage.output are empty", "set storage.output")
        self._secrets = secrets_here(job.spec.env)
        logs = LogShipper(out, assignment.task, assignment.attempt, self._secrets)
        notice = PodNotice(assignment.scratch)
        with ExitStack() as stack:
            notice.begin_work()
            stack.callback(notice.end_work)
            scratch = stack.enter_context(_own_folder(assignment, job))
            stack.callback(logs.close, _LAST_LINES_S)
            stream = stack.enter_context(_both_ways(scratch / "driver.log", logs))
            tell = open_listener(job, stream)

            def listener(event: Event) -> None:
                tell(event)
                if event.task == assignment.task:
                    self.take(event)

            try:
                status = run_assigned(
                    job,
                    assignment,
                    base_dir=Path.cwd(),
                    out=out,
                    listener=listener,
                    should_stop=lambda: interrupted() or self._reporter.stop is not None or notice.given,
                    stop_grace_s=lambda: self._reporter.stop.grace_s if self._reporter.stop is not None else assignment.stop_grace_s,
                    scratch=scratch,
                    logs=logs,
                )
            except TuneyardError as error:
                self.fail(error, stream)
                raise
        if status == "stopped":
            self.end_stopped()
        else:
            self.state, self.exit_code = succeeded(self.state), SUCCEEDED

    def take(self, event: Event) -> None:
        self._progress = after(self._progress, event, time.monotonic())
        self._stages = stages_after(self._stages, event, datetime.now(UTC))
        self.state = state_of(self._progress, self._stages)
        self._reporter.tell(self.state)

    def interrupted(self) -> None:
        print("asked to end: stopping at the next step, keeping the checkpoint", file=sys.stderr, flush=True)

    def end_stopped(self) -> None:
        if self._reporter.stop is None and self._progress.result is not None and IDLE_S in self._progress.result:
            self.state, self.exit_code = asleep(self.state, str(self._progress.result["why"])), STOPPED
            return
        # A signal or a notice without a request from the hub: the node is drained, or the pod evicted.
        reason: StopReason = self._reporter.stop.reason if self._reporter.stop is not None else "Preempted"
        self.state, self.exit_code = stopped(self.state, reason), STOPPED

    def fail(self, error: TuneyardError, stream: TextIO = sys.stderr) -> None:
        """Record and print the failure, once."""
        if self.state.failure is not None:
            return
        error.cause, error.next_step = hide(error.cause, self._secrets), hide(error.next_step, self._secrets)
        self.state, self.exit_code = failed(self.state, error), FAILED
        print(f"error: {error.cause}\nnext: {error.next_step}", file=stream, flush=True)


@contextmanager
def _own_folder(assignment: Assignment, job: JobSpec) -> Iterator[Path]:
    """A folder in the scratch volume of this machine. It has the same name on every machine."""
    folder = assignment.scratch / f"{job.metadata.name}-{assignment.task}-{assignment.attempt}"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _both_ways(path: Path, logs: LogShipper) -> Iterator[TextIO]:
    """A stream to this process's stderr (the log of the Ray job) and to the source `driver` of the attempt's logs."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = path.open("w", buffering=1)
    except OSError:
        # The preflight reports what is wrong with the disk.
        yield sys.stderr
        return
    with log:
        logs.add("driver", log.name)
        yield cast(TextIO, _Tee(sys.stderr, log))


class _Tee(io.TextIOBase):
    """Writes to several streams."""

    def __init__(self, *streams: TextIO) -> None:
        self._streams = streams

    def write(self, text: str) -> int:
        for stream in self._streams:
            stream.write(text)
        return len(text)

    def flush(self) -> None:
        for stream in self._streams:
            stream.flush()
