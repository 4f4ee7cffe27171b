"""A job on this machine (or on a Ray cluster that it joins): checks first, then its tasks in order, then the report, whatever happened.

Tasks run one after the other, upstream first: on one machine two of them would only share the same cores or GPUs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuneyard.admission import Machine
from tuneyard.api import FailureKind, JobFailed, JobSpec, StorageError, Task, TuneyardError
from tuneyard.api.tasks import LOGS
from tuneyard.runtime.checks import check_installed, check_job
from tuneyard.runtime.environment import SETUP_LOG, environment, hide, resolve_environment, run_setup, scrub, secret_values
from tuneyard.runtime.gang import Gangs
from tuneyard.runtime.inputs import inputs_of
from tuneyard.runtime.interrupt import ShouldStop, never
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.placing import machine_of_cluster, this_machine
from tuneyard.runtime.ray_session import ray_session
from tuneyard.runtime.references import with_model
from tuneyard.runtime.stacks import WarmStacks
from tuneyard.runtime.tasks import Result, TaskContext, number_of, run_task
from tuneyard.tracking import REPORT_JSON, Event, Recorder, Report, TaskEvent, Warned, open_recorder, write_report
from tuneyard.warm import temporary_folder

Listener = Callable[[Event], None]


def run_job(
    job: JobSpec,
    *,
    base_dir: Path,
    out: str,
    resume: bool = False,
    ray_address: str | None = None,
    listener: Listener = lambda _event: None,
    model: str | None = None,
    until: str | None = None,
    should_stop: ShouldStop = never,
    on_report: Callable[[str], None] = lambda _uri: None,
) -> Report:
    """Run a job to its end, or to a clean stop that `should_stop` asks for, and return its report (status succeeded or stopped).

    `base_dir`: where relative paths of the JobSpec start. `out`: folder or URI of the output. `resume`: tasks that have succeeded
    there are not run again, and the others go on from what they committed. `ray_address`: a running cluster to join. `model`: see
    `with_model`. `until`: the last task to run; only what it needs runs before it.

    Raises BadInput before anything starts where something cannot work, and the error of the task that failed. In every case from
    the moment that `out` was taken, report.json and report.html are written there, and `on_report` is told where.
    """
    check_installed(job, base_dir)
    if model is not None:
        job = with_model(job, model, Path.cwd())
    values = resolve_environment(job.spec.env, os.environ)
    secrets = secret_values(job.spec.env, values)
    output = JobOutput(out)
    with ExitStack() as stack:
        stack.enter_context(environment(values))
        ray = _Ray(stack, job, ray_address, values, secrets)
        machine = ray.machine()
        check_job(job, base_dir=base_dir, machine=machine)
        stack.enter_context(output.locked())
        if resume:
            wanted = job.spec.needed_for(until) if until else {task.name for task in job.spec.tasks}
            output.check_settings(task for task in job.spec.tasks if task.name in wanted)
        output.claim(job, resume=resume)
        scratch = stack.enter_context(temporary_folder("tuneyard-job-"))
        watch = _Watch(should_stop, job.spec.deadline)
        previous = output.report() if resume else None
        recorder = open_recorder(job, output=output.uri, folder=output.local_folder or scratch, warn=listener, previous=previous)
        logs = stack.enter_context(_log_folder(output, scratch, secrets))
        warm = WarmStacks(job, on_gpu=machine.has_gpus, logs=logs, own=ray_address is None)
        stack.callback(warm.close)
        context = TaskContext(
            job=job,
            base_dir=base_dir,
            output=output,
            machine=machine,
            scratch=scratch,
            logs=logs,
            secrets=secrets,
            emit=_both(recorder, listener),
            should_stop=watch.should_stop,
            begin_ray=ray.begin,
            use_ray=ray.use,
            gangs=Gangs(warm.training, scratch),
            warm=warm,
            wanted=job.spec.needed_for(until) if until else None,
        )
        # A joined cluster has run `setup` on its nodes; this process runs nothing of the job there.
        setup = job.spec.setup if ray_address is None else []
        return _Run(context, recorder, watch, listener, on_report).conduct(setup, resume=resume, until=until)


def _both(first: Listener, second: Listener) -> Listener:
    def emit(event: Event) -> None:
        first(event)
        second(event)

    return emit


@dataclass
class _Watch:
    """Whether the job was asked to stop: by a person, or by its deadline."""

    asked: ShouldStop
    deadline_s: float | None

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    @property
    def past_deadline(self) -> bool:
        return self.deadline_s is not None and time.monotonic() - self._began > self.deadline_s

    def should_stop(self) -> bool:
        return self.asked() or self.past_deadline


@dataclass(frozen=True)
class _Run:
    """From the first task to the report."""

    context: TaskContext
    recorder: Recorder
    watch: _Watch
    listener: Listener
    on_report: Callable[[str], None]

    def conduct(self, setup: Sequence[str], *, resume: bool, until: str | None) -> Report:
        secrets = self.context.secrets
        status, message = "failed", ""
        try:
            run_setup(setup, log=self.context.logs / SETUP_LOG, secrets=secrets)
            self.context.warm.training()  # loads while Ray starts and data is read; not before `setup`, which may change packages
            status, message = _run_tasks(
                self.context, self.watch, resume=resume, until=until, save=lambda: self._write(self.recorder.report())
            )
        except TuneyardError as error:
            message = hide(str(error), secrets)
            raise
        except KeyboardInterrupt:
            status, message = "stopped", "ended at once by a second Ctrl-C; go on with --resume"
            raise
        except BaseException as error:
            message = hide(f"bug in Tuneyard: {type(error).__name__}: {error}", secrets)
            raise
        finally:
            try:
                report = self.recorder.close(status, message)
                if self._write(report):
                    self.on_report(self.context.output.store.url(REPORT_JSON))
            finally:
                self.context.gangs.release()
        return report

    def _write(self, report: Report) -> bool:
        """True if the report was written. Where that fails after the job has failed, the job's own error is the one to show."""
        try:
            write_report(self.context.output.store, report)
        except StorageError as error:
            if report.status in ("running", "succeeded"):
                raise
            self.listener(Warned(task="", message=f"the report could not be written: {error.cause}"))
            return False
        return True


def _run_tasks(context: TaskContext, watch: _Watch, *, resume: bool, until: str | None, save: Callable[[], object]) -> tuple[str, str]:
    """Status and message of the job. Raises the error of the task that failed, or JobFailed past the deadline.

    `save` writes the report as of now, before each task: what a killed process leaves behind.
    """
    spec = context.job.spec
    wanted = spec.needed_for(until) if until else {task.name for task in spec.tasks}
    for task in spec.task_order():
        if task.name not in wanted:
            continue
        save()
        done = context.output.finished(task, inputs_of(task, context.base_dir)) if resume else None
        if done is not None:
            context.results[task.name] = done
            context.emit(TaskEvent(task=task.name, state="skipped", kind=task.kind, result=done))
            continue
        result: Result = {"status": "stopped"}
        if not watch.should_stop():
            result = run_one(task, context)
        if result["status"] == "stopped":
            if watch.past_deadline and not watch.asked():
                raise JobFailed(
                    f"the job's deadline of {watch.deadline_s:g} s has passed in task {task.name}; its checkpoints are kept",
                    "set a later deadline and go on with --resume",
                    kind=FailureKind.DEADLINE,
                )
            return "stopped", f"stopped in task {task.name}; go on with --resume"
        context.results[task.name] = result
    return "succeeded", ""


def run_one(task: Task, context: TaskContext) -> Result:
    """Run a task, and commit its result where it succeeded. Raises TuneyardError where it failed for good."""
    if context.job.spec.gang_of(task).training is None:
        context.gangs.release()
    context.output.begin(task, inputs_of(task, context.base_dir))
    result = run_task(task, context)
    if result["status"] == "succeeded":
        context.output.finish(task.name, result)
    context.emit(
        TaskEvent(
            task=task.name, state=result["status"], kind=task.kind, attempt=number_of(context, len(result["attempts"])), result=result
        )
    )
    return result


class _Ray:
    """Ray when the first task needs it: an embedded one starts late, a cluster to join is joined at once, to see what it has."""

    def __init__(self, stack: ExitStack, job: JobSpec, address: str | None, values: dict[str, str], secrets: list[str]) -> None:
        self._stack = stack
        self._job = job
        self._address = address
        self._values = values
        self._secrets = secrets
        self._machine: Machine | None = None
        self._starting: _Starting | None = None

    def machine(self) -> Machine:
        if self._machine is None:
            if self._address is None:
                self._machine = this_machine()
            else:
                self.use()
                self._machine = machine_of_cluster()
        return self._machine

    def begin(self) -> None:
        """Start Ray meanwhile; `use` waits for it."""
        if self._starting is None:
            self._starting = _Starting(self._session())
            self._stack.callback(self._starting.close)

    def use(self) -> None:
        """Raises what made Ray fail to start."""
        self.begin()
        assert self._starting is not None
        self._starting.wait()

    def _session(self) -> AbstractContextManager[object]:
        machine = self._machine or Machine("cpu", 1)
        return ray_session(
            address=self._address,
            cpus=max(os.cpu_count() or 1, *(processes(task) for task in self._job.spec.tasks)),
            gpus=machine.devices if machine.has_gpus else 0,
            values=self._values,
            setup=self._job.spec.setup,
            secrets=self._secrets,
            job=self._job.metadata.name,
        )


class _Starting:
    """A context that a thread enters at once, and leaves at `close`. The thread lives as long: the kernel ends Ray's processes together
    with the thread that has started them (PR_SET_PDEATHSIG)."""

    def __init__(self, context: AbstractContextManager[object]) -> None:
        self._context = context
        self._settled, self._done = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._hold, name="ray-session", daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        try:
            with self._context:
                self._settled.set()
                self._done.wait()
        except BaseException as error:  # noqa: BLE001 - kept, and raised by whoever waits for this thread
            self._error = error
        finally:
            self._settled.set()

    def wait(self) -> None:
        """Until the context is entered. Raises what entering raised."""
        self._settled.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Leave the context, if it was entered."""
        self._done.set()
        self._thread.join()


def processes(task: Task) -> int:
    """How many processes of a task Ray must have room for, where that does not follow from the machine."""
    if task.training is not None and isinstance(task.resources.workers, int):
        return task.resources.workers
    return task.resources.instances if task.score is not None else 0


@contextmanager
def _log_folder(output: JobOutput, scratch: Path, secrets: list[str]) -> Iterator[Path]:
    """The folder for logs of this machine: in the output where that is local, else copied there at the end."""
    folder = (output.local_folder or scratch) / LOGS
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        for log in folder.glob("*.log"):
            scrub(log, secrets)
            if output.local_folder is None:
                output.store.put_file(f"{LOGS}/{log.name}", log)
