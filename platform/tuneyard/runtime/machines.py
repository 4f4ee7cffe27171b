"""The interface of running tasks to their machines. `Here` implements it for local runs, `Pods` for attempts of a hub."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuneyard.admission import Machine
from tuneyard.api import FailureKind, JobSpec, Retries, Task, TuneyardError
from tuneyard.runtime.gang.gang import Gangs
from tuneyard.runtime.gang.mailbox import RankProcess
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.nodes.pod import Pod
from tuneyard.runtime.sessions.stacks import WarmStacks
from tuneyard.tracking import Emit
from tuneyard.training.request import NetworkChecks


@dataclass(frozen=True)
class LogName:
    """The log of one process. `file`: its name in the folder `logs` of its machine. `source`: its name among the copied logs."""

    file: str
    source: str


def rank_log(task: str, rank: int, prefix: str = "rank") -> LogName:
    """The log of a rank. `prefix`: name of the sources of this task's ranks, before the number of the rank."""
    return LogName(f"{task}-rank-{rank}.log", f"{prefix}-{rank}")


def engine_log(task: str, rank: int, prefix: str = "engine") -> LogName:
    """The log of an engine of a score task. `prefix`: as in `rank_log`."""
    return LogName(f"{task}-engine-{rank}.log", f"{prefix}-{rank}")


def process_log(task: str) -> LogName:
    """The log of a process task's command. No log of another task, of `setup` or of a fork server can have this name."""
    return LogName(f"{task}-process.log", "process")


@dataclass(frozen=True)
class LostMachine:
    """A lost machine, and the reason why it counts as lost."""

    pod: Pod
    why: str


class Machines(Protocol):
    """The machines of one run. The conductor calls `in_use`, `set_up` and `ready_for`; tasks call the rest."""

    logs: Path
    """Folder for logs, the same path on every machine."""
    warm: WarmStacks
    """Fork servers."""
    gangs: Gangs
    """The gang that stays up from one train task to the next."""

    # The run

    run: str
    """Id of the run: the same for all starts of this job's tasks that may resume each other; different for other jobs."""
    go_on: str
    """How a person resumes after a failure; empty if a hub starts the next attempt."""
    after_stop: str
    """Advice for a person after a stop, or a note on what is kept."""
    retries: Retries
    """Restarts of whole tasks in this process; none if a hub starts attempts. Restarts of ranks in place do not count here."""
    transient: frozenset[FailureKind]
    """Kinds of failure that do not depend on a task's settings: the next attempt may get other machines."""

    def chosen(self, job: JobSpec) -> JobSpec:
        """The job with the SKU and the number of workers chosen for these machines."""
        ...

    def first_start(self, failures_in_place: int, /) -> int:
        """Number of the first start of ranks, higher than any start of an earlier run."""
        ...

    def number(self, starts: int, /) -> int:
        """Number of an attempt for people. `starts`: starts of its task in this process."""
        ...

    # Use

    def in_use(self) -> AbstractContextManager[object]:
        """A context from the claim of the output to the report."""
        ...

    def set_up(self, should_stop: ShouldStop) -> None:
        """Prepare the machines for the job. `should_stop` ends it early. Raises JobFailed if a `setup` command fails."""
        ...

    def ready_for(self, task: Task, emit: Emit, should_stop: ShouldStop, /) -> AbstractContextManager[bool]:
        """A context with checked machines for one task. Its value is False if a stop was asked for meanwhile. Raises TuneyardError."""
        ...

    def begin_ray(self) -> None:
        """Start Ray in the background, unless it runs."""
        ...

    def use_ray(self) -> None:
        """Wait until Ray runs. Raises the error of its start."""
        ...

    # Facts

    @property
    def machine(self) -> Machine:
        """SKU, number and memory of the devices that the job may use."""
        ...

    @property
    def network(self) -> NetworkChecks | None:
        """Network checks that ranks make before they load the model; None for none."""
        ...

    def stop_grace_s(self) -> float:
        """Seconds that ranks have to stop."""
        ...

    # Loss

    repair_limit_s: float
    """Most seconds until a lost machine is replaced in place."""
    begin_limit_s: float
    """Most seconds until all ranks have started."""

    @property
    def noticed(self) -> bool:
        """Whether a machine is being drained or reclaimed: the task must stop with a checkpoint."""
        ...

    def gone(self, processes: Sequence[RankProcess], /) -> list[RankProcess]:
        """Processes that have ended, or whose machine is lost."""
        ...

    def why_lost(self, process: RankProcess, /) -> str:
        """Why the machine of a process counts as lost; empty if it lives, or if nothing is known."""
        ...

    def short_of(self, workers: int, /) -> LostMachine | None:
        """The last lost machine, if the living machines have no room for `workers` ranks; None if they have, or if none was lost."""
        ...

    def settle(self) -> None:
        """Wait until the loss of a machine at this moment would have been noticed."""
        ...

    def check_living(self) -> None:
        """Raises JobFailed if all machines are lost."""
        ...

    def can_go_on(self, error: TuneyardError, workers: int, should_stop: ShouldStop, /) -> bool:
        """Whether ranks can start again on these machines after a failure."""
        ...

    def oom_kills(self) -> int:
        """Processes that kernels have killed for lack of memory. Only the difference of two calls has a meaning."""
        ...

    # Logs

    def follow(self, process: RankProcess, log: LogName) -> None:
        """Watch a rank or an engine, and copy its log."""
        ...

    def ship(self, log: LogName) -> None:
        """Copy the log of a process that this process starts itself."""
        ...

    def address(self, log: LogName) -> str:
        """The path or URI of a log, for people."""
        ...

    def tail(self, log: LogName) -> str:
        """The last lines of a log, without secrets; empty if there is no log."""
        ...

    def quoted(self, tail: str, /) -> str:
        """The last lines of a log, formatted for an error's message; empty if they are shown in a field of their own."""
        ...
