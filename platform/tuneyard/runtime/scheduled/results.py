"""The result of a run: from the report in its output, else from its process."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuneyard.api import Phase, TuneyardError
from tuneyard.api.schedule_status import RunFigure
from tuneyard.runtime.attempt.state import figures
from tuneyard.runtime.output import JOB, LOCK
from tuneyard.schedules import figures_of, why_not_compared
from tuneyard.storage import Store, is_local, local_path, open_store
from tuneyard.tracking import REPORT_JSON
from tuneyard.tracking.progress.words import first_line

_PHASES = {"succeeded": Phase.SUCCEEDED, "failed": Phase.FAILED}
_TAIL_BYTES = 4000
_STOPPED = (-15, -2, 130)
"""Exit codes of processes that were asked to stop."""
RUN_ID = "tuneyard.dev/run-id"
"""Annotation of a run's JobSpec that tells it from a run of the same name in another data folder. Its output repeats the JobSpec."""


@dataclass(frozen=True)
class Result:
    """`phase` is not final where a run was stopped, and can be resumed."""

    phase: Phase
    message: str = ""
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def figures(self, watched: Sequence[str]) -> tuple[RunFigure, ...]:
        return figures_of({name: figures(task) for name, task in self.tasks.items()}, watched)

    @property
    def rows_not_compared(self) -> str:
        return why_not_compared(self.tasks)


def result_at(output: str, code: int | None = None, log: Path | None = None, *, run: str = "") -> Result:
    """The result of the run with this output. `code`: exit code of its process; None: it is not known. `run`: its id, see `RUN_ID`.

    A report of another run does not count. The report of a killed process counts if it says that the run has succeeded.
    """
    report: dict[str, Any] = {}
    try:
        store = open_store(output)
        is_own = run_in(store) == run
        if is_own and store.exists(REPORT_JSON):
            report = json.loads(store.get(REPORT_JSON))
        elif code == 0 and not is_own:
            return Result(Phase.FAILED, of_another_run(output))
    except (TuneyardError, ValueError) as error:
        if code == 0:
            return Result(Phase.FAILED, f"its report cannot be read: {error}")
    phase = _PHASES.get(report.get("status", ""), Phase.PENDING)
    has_succeeded = phase is Phase.SUCCEEDED and code is not None and code < 0
    if code is not None and code not in (0, 1) and not has_succeeded:
        killed = f"its process was ended by signal {-code}" if code < 0 else ""
        return Result(Phase.PENDING if code in _STOPPED else Phase.FAILED, killed or _last_line(log))
    if code == 1 and phase is not Phase.FAILED and report.get("status") != "stopped":
        return Result(Phase.FAILED, _last_line(log))
    tasks = {name: task for name, task in (report.get("tasks") or {}).items() if isinstance(task, Mapping)}
    return Result(phase, first_line(str(report.get("message") or "")), tasks)


def run_in(store: Store) -> str:
    """The id of the run that has claimed an output; empty: none has, or it has no id. Raises StorageError, ValueError."""
    if not store.exists(JOB):
        return ""
    metadata = json.loads(store.get(JOB)).get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(RUN_ID, ""))


def is_of_another_run(output: str, run: str) -> bool:
    """Whether another run than `run` has claimed this output. False where it cannot be read: the run then says why."""
    try:
        store = open_store(output)
        return store.exists(JOB) and run_in(store) != run
    except (TuneyardError, ValueError):
        return False


def of_another_run(output: str) -> str:
    """The reason why a run fails whose output is in use by another one."""
    return f"{output} holds the run of another data folder or machine: give each its own storage.output"


def is_in_use(output: str) -> bool:
    """Whether a process writes to a local output now: it holds the lock of `JobOutput`. False for other storage."""
    if not is_local(output) or not (local_path(output) / LOCK).exists():
        return False
    with (local_path(output) / LOCK).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _last_line(log: Path | None) -> str:
    """The error that a process has printed last; empty where there is no log."""
    if log is None or not log.exists():
        return ""
    lines = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else next((line for line in reversed(lines) if line.strip()), "")
