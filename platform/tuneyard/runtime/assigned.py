"""One task of a job on the Ray cluster that a hub has made for it: what `run_job` does for all tasks of a job on one machine.

Other tasks of the job may run at this moment, in clusters of their own, on the same output.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tuneyard.admission import Machine
from tuneyard.api import FailureKind, JobFailed, JobSpec, StorageError, Task, TuneyardError
from tuneyard.catalog import needs_measuring
from tuneyard.catalog.measured import keep_measurement, shown
from tuneyard.runtime.assignment import Assignment, pod_environment
from tuneyard.runtime.checks import check_job
from tuneyard.runtime.environment import environment, hide
from tuneyard.runtime.gang import Gangs
from tuneyard.runtime.inputs import inputs_of
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.job import Listener, run_one
from tuneyard.runtime.joint_report import JointReport
from tuneyard.runtime.log_shipper import LogShipper, secrets_here
from tuneyard.runtime.node_agent import LogTarget
from tuneyard.runtime.nodes import Nodes
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.placing import gpus_per_host
from tuneyard.runtime.pod import this_pod
from tuneyard.runtime.preflight import Finding, NodeChecks, check_node, verdict
from tuneyard.runtime.process import process_log
from tuneyard.runtime.ray_session import ray_session
from tuneyard.runtime.stacks import WarmStacks
from tuneyard.runtime.tasks import HubAttempt, Result, TaskContext
from tuneyard.storage import join
from tuneyard.tracking import Event, Recorder, Report, Stage, TaskEvent, Warned, open_recorder
from tuneyard.tracking.task_logs import task_folder
from tuneyard.training.request import NetworkChecks

_JOIN_LIMIT_S = 600.0
_SHOWN_LINES = 12
_TICK_S = 0.5


def run_assigned(
    job: JobSpec,
    assignment: Assignment,
    *,
    base_dir: Path,
    out: str,
    listener: Listener,
    should_stop: ShouldStop,
    stop_grace_s: Callable[[], float],
    scratch: Path,
    logs: LogShipper,
) -> str:
    """Run the assigned task to its end (`succeeded`), or to a stop that `should_stop` asks for (`stopped`).

    `setup` has run in every container before, and the job's variables are set. `stop_grace_s`: what it has to stop once it is asked, in
    seconds. `scratch`: a folder for this attempt, on each machine.
    `logs`: copies what this one writes. What earlier attempts committed is gone on from, and a task that has succeeded is not run
    again. Raises TuneyardError; in every case from the
    moment that the output was taken, the report is written.
    """
    values = pod_environment(job.spec.env, os.environ)
    chosen = assignment.applied(job)
    task = chosen.spec.task(assignment.task)
    output = JobOutput(out)
    with ExitStack() as stack:
        stack.enter_context(environment(values))
        output.claim(job, resume=True)
        recorder = open_recorder(job, output=output.uri, folder=scratch, warn=listener)

        def emit(event: Event) -> None:
            recorder(event)
            listener(event)

        run = _Run(
            job=chosen,
            task=task,
            assignment=assignment,
            base_dir=base_dir,
            output=output,
            scratch=scratch,
            emit=emit,
            should_stop=should_stop,
            stop_grace_s=stop_grace_s,
            logs=logs,
            report=JointReport(output, job, task.name, assignment.attempt),
            recorder=recorder,
        )
        return run.conduct()


@dataclass(frozen=True, kw_only=True)
class _Run:
    """From the claim of the output to the report."""

    job: JobSpec
    task: Task
    assignment: Assignment
    base_dir: Path
    output: JobOutput
    scratch: Path
    emit: Listener
    should_stop: ShouldStop
    stop_grace_s: Callable[[], float]
    logs: LogShipper
    report: JointReport
    recorder: Recorder

    def conduct(self) -> str:
        secrets = secrets_here(self.job.spec.env)
        status, message = "failed", ""
        try:
            result = self._run(secrets)
            status, message = str(result["status"]), "stopped as asked; its checkpoints are kept" if result["status"] == "stopped" else ""
        except TuneyardError as error:
            message = hide(str(error), secrets)
            raise
        except BaseException as error:
            message = hide(f"bug in Tuneyard: {type(error).__name__}: {error}", secrets)
            raise
        finally:
            self._write(self.recorder.close(status, message))
        return status

    def _write(self, own: Report) -> None:
        """Where this fails after the task has failed, the task's own error is the one to show; and its success is in result.json."""
        try:
            self.report.write(own)
        except StorageError as error:
            self.emit(Warned(task=self.task.name, message=f"the report could not be written: {error.cause}"))

    def _run(self, secrets: list[str]) -> Result:
        done = self.output.finished(self.task, inputs_of(self.task, self.base_dir))
        if done is not None:
            self.emit(TaskEvent(task=self.task.name, state="skipped", kind=self.task.kind, result=done))
            return done
        results = {name: self._result_of(name) for name in self.job.spec.needs(self.task)}
        self._write(self.recorder.report())
        if self.task.kind == "process":
            self._judge(check_node(self._node_checks(), this_pod()))
            return self._run_with(None, None, self._gangs(), secrets, results)
        with ray_session(address="auto", cpus=0, gpus=0, values={}, setup=[], secrets=secrets, job=self.job.metadata.name):
            if not self._wait_for_machines():
                return {"status": "stopped"}
            nodes, gangs = Nodes(self._log_target(), secrets), self._gangs()
            if self.job.spec.gang_of(self.task).training is not None:  # agents come up while the machines are tried
                gangs.of(self._slots(), use_gpu=self.assignment.sku != "cpu")
            try:
                began = time.monotonic()
                nodes.start()
                self.emit(Stage(task=self.task.name, name="preflight: machines"))
                self._judge(nodes.check(self._node_checks()))
                if needs_measuring(self.assignment.sku):  # the head may be another machine, and has no GPU
                    if self.assignment.sku != "cpu":
                        self.emit(Stage(task=self.task.name, name=f"measuring {self.assignment.sku}, which the catalog lacks"))
                    measured = nodes.measured(self.assignment.sku)
                    keep_measurement(self.assignment.sku, measured)
                    if self.assignment.sku != "cpu":
                        self.emit(Warned(task=self.task.name, message=shown(measured)))
                network = NetworkChecks(
                    promised_gb_per_s=self.assignment.promised_gb_per_s,
                    before_s=time.monotonic() - began,
                )
                return self._run_with(nodes, network, gangs, secrets, results)
            finally:
                gangs.release()
                nodes.close()

    @cached_property
    def _warm(self) -> WarmStacks:
        return WarmStacks(self.job, on_gpu=self.assignment.sku != "cpu", logs=self.scratch, own=False)

    def _gangs(self) -> Gangs:
        return Gangs(self._warm.training, self.scratch)

    def _run_with(
        self, nodes: Nodes | None, network: NetworkChecks | None, gangs: Gangs, secrets: list[str], results: dict[str, Result]
    ) -> Result:
        def should_stop() -> bool:
            return self.should_stop() or (nodes is not None and nodes.noticed)

        machine = Machine(self.assignment.sku, self._slots(), nodes.memory_gb() if nodes else None, gpus_per_host())
        own = {self.task.name, self.job.spec.gang_of(self.task).name}
        check_job(self.job, base_dir=self.base_dir, machine=machine, names=own)
        if should_stop():
            return {"status": "stopped"}
        target = self._log_target()
        context = TaskContext(
            job=self.job,
            base_dir=self.base_dir,
            output=self.output,
            machine=machine,
            scratch=self.scratch,
            logs=self.scratch / "logs",
            secrets=secrets,
            emit=self.emit,
            should_stop=should_stop,
            begin_ray=lambda: None,
            use_ray=lambda: None,
            gangs=gangs,
            warm=self._warm,
            results=results,
            hub=HubAttempt(
                assignment=self.assignment,
                nodes=nodes,
                network=network,
                logs_uri=join(self.output.uri, task_folder(target.task), str(target.attempt)),
                stop_grace_s=self.stop_grace_s,
            ),
        )
        if self.task.kind == "process":
            self.logs.add("process", process_log(context.logs, self.task.name))
        try:
            return run_one(self.task, context)
        except TuneyardError as error:
            self._add_tail(error, nodes)
            raise

    def _add_tail(self, error: TuneyardError, nodes: Nodes | None) -> None:
        """The last lines of the engine to blame: what raised the error did not have them at hand."""
        blame = error.blame
        if nodes is not None and blame.rank is not None and not blame.log_tail:
            source = f"{'engine' if self.task.kind == 'score' else 'rank'}-{blame.rank}"
            error.blame = replace(blame, log_tail=nodes.tail(source, _SHOWN_LINES))

    def _result_of(self, name: str) -> Result:
        result = self.output.finished(self.job.spec.task(name))
        if result is None:
            raise StorageError(
                f"task {self.task.name} needs the result of task {name}, and {self.output.store.url(name)} holds none",
                "check that all attempts of the job use the same output",
            )
        return result

    def _log_target(self) -> LogTarget:
        return LogTarget(self.output.uri, self.task.name, self.assignment.attempt, tuple(self.job.spec.env))

    def _node_checks(self) -> NodeChecks:
        return NodeChecks(
            scratch=self.assignment.scratch,
            scratch_bytes=self.job.spec.storage.scratch or 0,
            output=self.output.uri,
            probe=self.task.name,  # where the report of the attempt lies by now
            gpus=self.assignment.sku != "cpu",
        )

    def _judge(self, findings: list[Finding]) -> None:
        for finding in findings:
            if not finding.fatal:
                self.emit(Warned(task=self.task.name, message=f"preflight: {finding.pod}: {finding.message}"))
        error = verdict(findings)
        if error is not None:
            raise error

    def _slots(self) -> int:
        """Ranks or engines that a hub has made room for."""
        workers = self.assignment.workers or 1
        return workers * self.task.score.engine.tensor_parallel if self.task.score is not None else workers

    def _wait_for_machines(self) -> bool:
        """Until Ray has what the task needs: pods of one cluster come up one after the other. False if it was asked to stop meanwhile.

        Raises JobFailed after ten minutes.
        """
        import ray

        kind = "CPU" if self.assignment.sku == "cpu" else "GPU"
        began = time.monotonic()
        said = -1
        while True:
            there = int(ray.cluster_resources().get(kind, 0))
            if there >= self._slots():
                return True
            if self.should_stop():
                return False
            if time.monotonic() - began > _JOIN_LIMIT_S:
                raise JobFailed(
                    f"{there} of {self._slots()} {kind}s joined the Ray cluster within {_JOIN_LIMIT_S:g} s",
                    "look at the worker pods: kubectl get pods, kubectl describe pod",
                    kind=FailureKind.NODE_LOST,
                )
            if there != said:
                said = there
                self.emit(Stage(task=self.task.name, name="waiting for machines", done=there, of=self._slots(), unit=f"{kind}s"))
            time.sleep(_TICK_S)
