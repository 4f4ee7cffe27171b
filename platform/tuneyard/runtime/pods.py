"""The `Machines` of an attempt: the pods of a Ray cluster that a hub has made for one task, with an agent in each pod of ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from tuneyard.admission import Machine
from tuneyard.api import FailureKind, JobFailed, JobSpec, Retries, Task, TuneyardError
from tuneyard.catalog import needs_measuring
from tuneyard.catalog.measured import keep_measurement, shown
from tuneyard.runtime.attempt.assignment import Assignment
from tuneyard.runtime.attempt.log_shipper import LogShipper
from tuneyard.runtime.checks import check_job
from tuneyard.runtime.gang.gang import Gangs
from tuneyard.runtime.gang.mailbox import RankProcess
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.machines import LogName, LostMachine
from tuneyard.runtime.nodes.agent import LogTarget
from tuneyard.runtime.nodes.nodes import Nodes
from tuneyard.runtime.nodes.pod import this_pod
from tuneyard.runtime.nodes.preflight import Finding, NodeChecks, check_node, verdict
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.placing import gpus_per_host
from tuneyard.runtime.sessions.session import ray_session
from tuneyard.runtime.sessions.stacks import WarmStacks
from tuneyard.storage import join
from tuneyard.tracking import Emit, Stage, Warned
from tuneyard.tracking.task_logs import task_folder
from tuneyard.training.request import NetworkChecks

_JOIN_LIMIT_S = 600.0
_SETTLE_S = 15.0
_SHOWN_LINES = 12
_TICK_S = 0.5
_OF_MACHINES = (FailureKind.NODE_LOST, FailureKind.NETWORK)


class Pods:
    """The machines of one assignment. `logs`: copies the logs of this pod. `scratch`: a folder for the attempt, on each machine.

    A process task runs in this pod alone, without Ray: no other machine is used.
    """

    go_on = ""
    after_stop = "its checkpoints are kept"
    retries = Retries(max=0)
    transient = frozenset({FailureKind.NODE_LOST, FailureKind.NETWORK, FailureKind.STORAGE, FailureKind.PREEMPTED})
    begin_limit_s = 600.0
    network: NetworkChecks | None = None

    def __init__(
        self,
        job: JobSpec,
        assignment: Assignment,
        *,
        base_dir: Path,
        output: JobOutput,
        scratch: Path,
        logs: LogShipper,
        secrets: Sequence[str],
        stop_grace_s: Callable[[], float],
    ) -> None:
        self._assignment, self._job = assignment, assignment.applied(job)
        self._task = self._job.spec.task(assignment.task)
        self._base_dir, self._output, self._scratch, self._secrets = base_dir, output, scratch, secrets
        self._shipper, self._stop_grace_s = logs, stop_grace_s
        self._nodes = Nodes(LogTarget(output.uri, assignment.task, assignment.attempt, tuple(job.spec.env)), secrets)
        self._failed_nodes: list[str] = []
        """The node of each failure so far, by its name in Kubernetes; an empty name if no node is to blame."""
        self.run, self.repair_limit_s = assignment.run, assignment.repair_limit_s
        self.logs = scratch / "logs"
        self.machine = Machine(assignment.sku, self._slots, price_per_device_hour=assignment.price_per_gpu_hour)
        self.warm = WarmStacks(self._job, on_gpu=self.machine.has_gpus, logs=scratch, own=False)
        self.gangs = Gangs(self.warm.training, scratch)

    # The run

    def chosen(self, job: JobSpec) -> JobSpec:
        return self._assignment.applied(job)

    def first_start(self, failures_in_place: int) -> int:
        return self._assignment.first_number(failures_in_place)

    def number(self, _starts: int) -> int:
        return self._assignment.attempt

    # Use

    def in_use(self) -> AbstractContextManager[object]:
        return nullcontext()

    def set_up(self, should_stop: ShouldStop) -> None: ...  # every container has run `setup` before

    @contextmanager
    def ready_for(self, task: Task, emit: Emit, should_stop: ShouldStop) -> Iterator[bool]:
        if task.kind == "process":
            self._judge(check_node(self._checks, this_pod()), emit)
            self._check_job()
            yield True
            return
        with ray_session(address="auto", cpus=0, gpus=0, values={}, setup=[], secrets=self._secrets, run=self.run):
            if task.endpoint is not None:  # its clients run on the head, and it has no other machines
                self._judge(check_node(self._checks, this_pod()), emit)
                self._check_job()
                yield True
                return
            if not self._wait_for_machines(emit, should_stop):
                yield False
                return
            try:
                gang = self._job.spec.gang_of(task)
                if gang.training is not None:  # agents start while the machines are checked
                    named = gang.resources.workers
                    self.gangs.of(named if isinstance(named, int) else self._slots, use_gpu=self.machine.has_gpus)
                self._try_machines(emit)
                self._check_job()
                yield True
            finally:
                self.gangs.release()
                self._nodes.close()

    def begin_ray(self) -> None: ...

    def use_ray(self) -> None: ...

    def _wait_for_machines(self, emit: Emit, should_stop: ShouldStop) -> bool:
        """Wait until enough machines have joined the Ray cluster: its pods start one after the other. False if a stop was asked for.

        Raises JobFailed after ten minutes.
        """
        import ray

        began = time.monotonic()
        said = -1
        while True:
            there = int(ray.cluster_resources().get(self._kind, 0))
            if there >= self._slots:
                return True
            if should_stop():
                return False
            if time.monotonic() - began > _JOIN_LIMIT_S:
                raise JobFailed(
                    f"{there} of {self._slots} {self._kind}s joined the Ray cluster within {_JOIN_LIMIT_S:g} s",
                    "look at the worker pods: kubectl get pods, kubectl describe pod",
                    kind=FailureKind.NODE_LOST,
                )
            if there != said:
                said = there
                emit(Stage(task=self._task.name, name="waiting for machines", done=there, of=self._slots, unit=f"{self._kind}s"))
            time.sleep(_TICK_S)

    # Preflight

    def _try_machines(self, emit: Emit) -> None:
        """Start an agent on each machine, check all machines, and read their facts. Raises TuneyardError if one is broken or lost."""
        began, sku = time.monotonic(), self.machine.sku
        self._nodes.start()
        emit(Stage(task=self._task.name, name="preflight: machines"))
        self._judge(self._nodes.check(self._checks), emit)
        if needs_measuring(sku):  # the head has no GPU, and may be on another machine
            self._measure(sku, emit)
        self.network = NetworkChecks(promised_gb_per_s=self._assignment.promised_gb_per_s, before_s=time.monotonic() - began)
        self.machine = replace(self.machine, memory_gb=self._nodes.memory_gb(), per_host=gpus_per_host())

    def _measure(self, sku: str, emit: Emit) -> None:
        if sku == "cpu":
            keep_measurement(sku, self._nodes.measured(sku))
            return
        emit(Stage(task=self._task.name, name=f"measuring {sku}, which the catalog lacks"))
        measured = self._nodes.measured(sku)
        keep_measurement(sku, measured)
        emit(Warned(task=self._task.name, message=shown(measured)))

    @property
    def _checks(self) -> NodeChecks:
        return NodeChecks(
            scratch=self._assignment.scratch,
            scratch_bytes=self._job.spec.storage.scratch or 0,
            output=self._output.uri,
            probe=self._task.name,  # it holds the report of the attempt by now
            gpus=self.machine.has_gpus,
        )

    def _judge(self, findings: list[Finding], emit: Emit) -> None:
        for finding in findings:
            if not finding.fatal:
                emit(Warned(task=self._task.name, message=f"preflight: {finding.pod}: {finding.message}"))
        error = verdict(findings)
        if error is not None:
            raise error

    def _check_job(self) -> None:
        names = {self._task.name, self._job.spec.gang_of(self._task).name}
        check_job(self._job, base_dir=self._base_dir, machine=self.machine, names=names)

    # Facts

    @property
    def _slots(self) -> int:
        """Number of ranks that the hub has placed. An engine of a score task has `tensorParallel` ranks."""
        workers = self._assignment.workers or 1
        return workers * (self._task.engine_ranks or 1)

    @property
    def _kind(self) -> str:
        """Ray's resource that a rank takes one unit of."""
        return "GPU" if self.machine.has_gpus else "CPU"

    def stop_grace_s(self) -> float:
        return self._stop_grace_s()

    # Loss

    @property
    def noticed(self) -> bool:
        return self._nodes.noticed

    def gone(self, processes: Sequence[RankProcess]) -> list[RankProcess]:
        return self._nodes.gone(processes)

    def why_lost(self, process: RankProcess) -> str:
        return self._nodes.why_lost(process)

    def short_of(self, workers: int) -> LostMachine | None:
        if self._nodes.room(self._kind) >= workers or (lost := self._nodes.last_lost) is None:
            return None
        return LostMachine(lost.pod, lost.lost)

    def settle(self) -> None:
        self._nodes.settle(_SETTLE_S)

    def check_living(self) -> None:
        self._nodes.raise_if_none_is_left()

    def can_go_on(self, error: TuneyardError, workers: int, should_stop: ShouldStop) -> bool:
        """Whether the ranks can start again here. The Ray cluster survives the loss of a rank or a worker pod, and KubeRay replaces the
        pod. After two failures on one node the attempt ends, so that the hub places the next one on other nodes."""
        if error.kind not in _OF_MACHINES:
            return True
        node = error.blame.node
        self._failed_nodes.append(node)
        if node and self._failed_nodes.count(node) > 1:
            return False
        return self._nodes.whole(workers, kind=self._kind, limit_s=self.repair_limit_s, should_stop=should_stop)

    def oom_kills(self) -> int:
        return self._nodes.oom_kills()

    # Logs

    def follow(self, process: RankProcess, log: LogName) -> None:
        self._nodes.follow(process, log.source)

    def ship(self, log: LogName) -> None:
        self._shipper.add(log.source, self.logs / log.file)

    def address(self, log: LogName) -> str:
        return join(self._output.uri, task_folder(self._task.name), str(self._assignment.attempt), log.source)

    def tail(self, log: LogName) -> str:
        return self._nodes.tail(log.source, _SHOWN_LINES)

    def quoted(self, _tail: str) -> str:
        return ""
