"""The `Machines` of a local run: this machine, or a Ray cluster that it has joined."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from tuneyard.admission import Machine
from tuneyard.api import FailureKind, JobSpec, Task, TuneyardError
from tuneyard.api.tasks import LOGS
from tuneyard.runtime.attempt.log_shipper import tail_of
from tuneyard.runtime.environment import environment, hide, scrub
from tuneyard.runtime.gang.gang import Gangs
from tuneyard.runtime.gang.mailbox import RankProcess
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.machines import LogName, LostMachine
from tuneyard.runtime.nodes.oom import oom_kills
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.sessions.stacks import WarmStacks
from tuneyard.runtime.sessions.start import RayStart
from tuneyard.runtime.setup_commands import SETUP_LOG, forget, run_once, set_up
from tuneyard.tracking import Emit
from tuneyard.training.request import NetworkChecks

_ASKED_HERE_S = 600.0
"""Seconds that ranks have to stop: for a step, and the checkpoint after it. It is long, because a person can press Ctrl-C again."""
_SHOWN_LINES = 12
_TAIL_LIMIT_S = 20.0


class Here:
    """Logs are written to a local output directly, and are copied to a remote one at the end. Only Ray tells which ranks are gone."""

    go_on = after_stop = "go on with --resume"
    transient: frozenset[FailureKind] = frozenset()
    repair_limit_s = 0.0
    begin_limit_s = math.inf
    network: NetworkChecks | None = None
    noticed = False

    def __init__(self, job: JobSpec, ray: RayStart, *, output: JobOutput, scratch: Path, secrets: Sequence[str]) -> None:
        self._job, self._ray, self._output, self._secrets = job, ray, output, secrets
        self._followed: dict[LogName, RankProcess] = {}
        self.run, self.retries = ray.run, job.spec.retries
        self.logs = (output.local_folder or scratch) / LOGS
        self.warm = WarmStacks(job, on_gpu=ray.machine.has_gpus, logs=self.logs, own=ray.embedded)
        self.gangs = Gangs(self.warm.training, scratch)

    # The run

    def chosen(self, job: JobSpec) -> JobSpec:
        return job

    def first_start(self, _failures_in_place: int) -> int:
        return 1

    def number(self, starts: int) -> int:
        return max(1, starts)

    # Use

    @contextmanager
    def in_use(self) -> Iterator[None]:
        self.logs.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.callback(self._keep_logs)
            stack.callback(self.warm.close)
            stack.callback(self.gangs.release)
            self._in_use = stack
            yield

    def set_up(self, should_stop: ShouldStop) -> None:
        commands, secrets = self._job.spec.setup, self._secrets
        if self._ray.embedded:
            self._in_use.enter_context(set_up(commands, log=self.logs / SETUP_LOG, secrets=secrets, should_stop=should_stop))
        else:  # commands of process tasks run on this machine; it may be a node of the cluster, whose ranks then find `setup` done
            self._in_use.callback(forget, self.run)
            self._in_use.enter_context(environment(run_once(commands, secrets=secrets, run=self.run)))
        self.warm.training()  # loads while Ray starts and data is read, but after `setup`, which may change packages

    def ready_for(self, _task: Task, _emit: Emit, _should_stop: ShouldStop) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def begin_ray(self) -> None:
        self._ray.begin()

    def use_ray(self) -> None:
        self._ray.use()

    # Facts

    @property
    def machine(self) -> Machine:
        return self._ray.machine

    def stop_grace_s(self) -> float:
        return _ASKED_HERE_S

    # Loss: Ray reports it

    def gone(self, _processes: Sequence[RankProcess]) -> list[RankProcess]:
        return []

    def why_lost(self, _process: RankProcess) -> str:
        return ""

    def short_of(self, _workers: int) -> LostMachine | None:
        return None

    def settle(self) -> None: ...

    def check_living(self) -> None: ...

    def can_go_on(self, _error: TuneyardError, _workers: int, _should_stop: ShouldStop) -> bool:
        return True

    def oom_kills(self) -> int:
        return oom_kills()

    # Logs

    def follow(self, process: RankProcess, log: LogName) -> None:
        self._followed[log] = process

    def ship(self, log: LogName) -> None: ...

    def address(self, log: LogName) -> str:
        return str(self.logs / log.file)

    def tail(self, log: LogName) -> str:
        return hide(_tail_of(self._followed.get(log), self.logs / log.file), self._secrets)

    def quoted(self, tail: str) -> str:
        return "; its last lines:\n" + "\n".join(f"  {line}" for line in tail.splitlines()) if tail else ""

    def _keep_logs(self) -> None:
        for log in self.logs.glob("*.log"):
            scrub(log, self._secrets)
            if self._output.local_folder is None:
                self._output.store.put_file(f"{LOGS}/{log.name}", log)


def _tail_of(process: RankProcess | None, log: Path) -> str:
    """The last lines of a log, from the machine of its process; empty if the machine does not answer."""
    if process is None or process.host == socket.gethostname():
        return tail_of(log, _SHOWN_LINES)
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(process.ray_node, soft=False)
    try:
        return str(ray.get(ray.remote(num_cpus=0, scheduling_strategy=there)(tail_of).remote(log, _SHOWN_LINES), timeout=_TAIL_LIMIT_S))
    except ray.exceptions.RayError:
        return ""
