"""Schedules: when runs are due, what each of them is, and how it compares with the runs before it. Pure: the present time is handed in.

1. `times` finds the times of a cron line in its time zone, on days when clocks change too.
2. `advance_schedule` decides, from the stored status and the jobs that exist: the outcome of runs (`outcomes`, `regression`), runs that are
   due (`due_runs`) or asked for (`requests`), runs whose data have not arrived (`waits`), runs to start, cancel and remove.
3. `rendering` makes the JobSpec of a run: `{{ run.date }}` and other `expressions` in its texts, and a folder of its own.

The hub (`tuneyard_operators.hub.schedules`) and `tuneyard schedule run` (`tuneyard.runtime.scheduled`) do what the step says, and store its
status afterwards. Names of runs depend on their due time alone, so that a step that is repeated after a kill starts nothing twice.
"""

from tuneyard.schedules.advancing import ScheduleStep, advance_schedule
from tuneyard.schedules.expressions import BadExpression, Moment
from tuneyard.schedules.last_good import LAST_GOOD, LAST_GOOD_OUTPUT, LastGood, last_good
from tuneyard.schedules.names import due_of, requested_name, run_name
from tuneyard.schedules.news import LIMIT_S, PAUSES_S, SENT, News, notice_body
from tuneyard.schedules.outcomes import NOT_COMPARED, Run, figures_of, why_not_compared, with_notices
from tuneyard.schedules.rendering import expression_problems, rendered, run_spec
from tuneyard.schedules.starts import Start
from tuneyard.schedules.times import next_after, times_between
from tuneyard.schedules.waits import Look

__all__ = [
    "LAST_GOOD",
    "LAST_GOOD_OUTPUT",
    "LIMIT_S",
    "NOT_COMPARED",
    "PAUSES_S",
    "SENT",
    "BadExpression",
    "LastGood",
    "Look",
    "Moment",
    "News",
    "Run",
    "ScheduleStep",
    "Start",
    "advance_schedule",
    "due_of",
    "expression_problems",
    "figures_of",
    "last_good",
    "next_after",
    "notice_body",
    "rendered",
    "requested_name",
    "run_name",
    "run_spec",
    "times_between",
    "why_not_compared",
    "with_notices",
]
