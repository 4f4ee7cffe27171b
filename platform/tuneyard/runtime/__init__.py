"""Runs a JobSpec on a Ray cluster: one embedded in this process, or one that is there already.

Two doors lead in. `run_job` runs all tasks of a job here; `run_attempt` runs one of them in the Ray cluster that a hub has made for it.
Behind both a `Conductor` runs the tasks in order: checks, skips, retries, stop and resume, results, report. It asks `Machines` for what
lies under a task: `Here`, or `Pods`. The tasks themselves are done elsewhere: train tasks by `training` in the ranks of a gang, score
tasks by `scoring` in the engines of a pool, process tasks by a command. Importing this room loads neither Ray nor torch.
"""

from tuneyard.runtime.attempt.run import run_attempt
from tuneyard.runtime.interrupt import stop_on_interrupt
from tuneyard.runtime.job import run_job
from tuneyard.runtime.output import default_output

__all__ = ["default_output", "run_attempt", "run_job", "stop_on_interrupt"]
