"""Runs a JobSpec on a Ray cluster: one embedded in this process, or a running one.

There are two entry points. `run_job` runs all tasks of a job here; `run_attempt` runs one task in the Ray cluster that a hub has made for
it. Behind both, a `Conductor` runs the tasks in order: checks, skips, retries, stop and resume, results, report. It uses the machines of a
task through `Machines`: `Here`, or `Pods`. Other rooms do the work of the tasks: `training` in the ranks of a gang, `scoring` in the
workers of a pool; a process task is a command. Importing this room loads neither Ray nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.runtime.attempt.run import run_attempt
    from tuneyard.runtime.interrupt import stop_on_interrupt
    from tuneyard.runtime.job import run_job
    from tuneyard.runtime.output import default_output

__all__ = ["default_output", "run_attempt", "run_job", "stop_on_interrupt"]
_FILES = {"default_output": "output", "run_attempt": "attempt.run", "run_job": "job", "stop_on_interrupt": "interrupt"}


def __getattr__(name: str) -> Any:
    # Imported at their first use: each actor of a job imports a file of this room, and few need more of it.
    if name in _FILES:
        return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
