"""Schedules on one machine: `tuneyard schedule run` follows a file in the foreground, and each run is a process of `tuneyard run`.

1. `Runner` asks `tuneyard.schedules.advance_schedule` for the step that is due, stores the status in the data folder, and then does the
   step. A runner that was killed goes on from there: runs have fixed names and folders, and resume.
2. `ScheduleFolder` is the data folder: the Schedule with its status, wishes of other commands, a lock, and the jobs and logs of runs.
3. `RunProcess` is the process of one run. It is asked to stop when the runner ends, also when the runner is killed.
"""

from tuneyard.runtime.scheduled.clock import Clock, SystemClock
from tuneyard.runtime.scheduled.folder import ScheduleFolder, folders_below
from tuneyard.runtime.scheduled.runner import Runner

__all__ = ["Clock", "Runner", "ScheduleFolder", "SystemClock", "folders_below"]
