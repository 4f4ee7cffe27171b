"""What a running task may ask of the machines under it. `Here` answers for local runs, `Pods` for the attempts of a hub."""

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
    """`prefix`: what the sources of this task's ranks are called, before the number of the rank."""
    return LogName(f"{task}-rank-{rank}.log", f"{prefix}-{rank}")


def engine_log(task: str, rank: int) -> LogName:
    """The log of an engine of a score task."""
    return LogName(f"{task}-engine-{rank}.log", f"engine-{rank}")


def process_log(task: str) -> LogName:
    """What the command of a process task prints. No log of another task, of `setup` or of a fork server can have this name."""
    return LogName(f"{task}-process.log", "process")


@dataclass(frozen=True)
class LostMachine:
    """A machine that is gone, and why it counts as gone."""

    pod: Pod
    why: str


class Machines(Protocol):
    """The machines of one run. The conductor calls `in_use`, `set_up` and `ready_for`; tasks call the rest."""

    logs: Path
    """Folder for logs; every machine has it, or makes it."""
    warm: WarmStacks
    """Fork servers."""
    gangs: Gangs
    """The ranks that stay up from one train task to the next."""

    # The run

    run: str
    """Equal for all starts of this job's tasks that may follow each other; no other job has the same."""
    go_on: str
    """How a person goes on after a failure; empty where a hub starts the next attempt."""
    after_stop: str
    """What a person may do after a stop, or what becomes of the task."""
    retries: Retries
    """Whole tasks that may be started again here; none where a hub starts attempts itself. Ranks start again in place beside that."""
    transient: frozenset[FailureKind]
    """Failures that say nothing about a task's settings: the next attempt may get other machines."""

    def chosen(self, job: JobSpec) -> JobSpec:
        """The job with the SKU and the number of workers that were chosen for these machines."""
        ...

    def first_start(self, failures_in_place: int, /) -> int:
        """Number of the first start of ranks, above all that earlier runs can have made."""
        ...

    def number(self, starts: int, /) -> int:
        """Number under which people know an attempt, from the starts of its task in this process."""
        ...

    # Use

    def in_use(self) -> AbstractContextManager[object]:
        """From the claim of the output to the report."""
        ...

    def set_up(self) -> None:
        """Prepare the machines for the job. Raises JobFailed where a `setup` command fails."""
        ...

    def ready_for(self, task: Task, emit: Emit, should_stop: ShouldStop, /) -> AbstractContextManager[bool]:
        """Machines that were tried, for one task. False where a stop was asked for meanwhile. Raises TuneyardError."""
        ...

    def begin_ray(self) -> None:
        """Start Ray in the background, unless it runs."""
        ...

    def use_ray(self) -> None:
        """Wait until Ray runs. Raises what made it fail to start."""
        ...

    # Facts

    @property
    def machine(self) -> Machine:
        """SKU, number and memory of what the job may use."""
        ...

    @property
    def network(self) -> NetworkChecks | None:
        """What ranks try before they load the model."""
        ...

    def stop_grace_s(self) -> float:
        """Seconds in which ranks must stop once they are asked."""
        ...

    # Loss

    repair_limit_s: float
    """Seconds that a lost machine may take to be replaced in place."""
    begin_limit_s: float
    """Seconds in which all ranks must have begun."""

    @property
    def noticed(self) -> bool:
        """Whether a machine is wanted back: the task must stop and keep its checkpoint."""
        ...

    def gone(self, processes: Sequence[RankProcess], /) -> list[RankProcess]:
        """Processes that have ended, or whose machine is lost."""
        ...

    def why_lost(self, process: RankProcess, /) -> str:
        """Why the machine of a process counts as lost; empty where it lives, or where that is not known."""
        ...

    def short_of(self, workers: int, /) -> LostMachine | None:
        """The machine lost last, where the living ones have no room for so many ranks; None where they have, or none was lost."""
        ...

    def settle(self) -> None:
        """Wait until the loss of a machine in this moment would be known."""
        ...

    def check_living(self) -> None:
        """Raises JobFailed where all machines are lost."""
        ...

    def can_go_on(self, error: TuneyardError, workers: int, should_stop: ShouldStop, /) -> bool:
        """Whether ranks can start again on these machines after a failure."""
        ...

    def oom_kills(self) -> int:
        """Processes that kernels have killed for want of memory; only the difference of two calls means something."""
        ...

    # Logs

    def follow(self, process: RankProcess, log: LogName) -> None:
        """Watch a rank or an engine, and keep its log."""
        ...

    def ship(self, log: LogName) -> None:
        """Keep the log of a process that this process starts itself."""
        ...

    def address(self, log: LogName) -> str:
        """Where people find a log."""
        ...

    def tail(self, log: LogName) -> str:
        """The last lines of a log, without secrets; empty where there is none."""
        ...

    def quoted(self, tail: str, /) -> str:
        """What an error's message shows of the last lines of a log; empty where its reader has a place of their own for them."""
        ...
