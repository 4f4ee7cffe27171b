"""Runs a JobSpec on a Ray cluster: one embedded in this process, or one that is there already.

`run_job` is the whole of it: checks, tasks in order, retries, stop and resume, report. The tasks themselves are done elsewhere:
train tasks by `training` in the ranks of a TorchTrainer, score tasks by `scoring` in the engines of a pool, process tasks by a
command. `run_attempt` runs one of them in the Ray cluster that a hub has made for it. Importing this room loads neither Ray nor torch.
"""

from tuneyard.runtime.attempt import run_attempt
from tuneyard.runtime.interrupt import stop_on_interrupt
from tuneyard.runtime.job import run_job
from tuneyard.runtime.output import default_output

__all__ = ["default_output", "run_attempt", "run_job", "stop_on_interrupt"]
