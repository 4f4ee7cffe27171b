"""What the leading hub tells Prometheus about its present state: pure functions from statuses to samples, and the collector that asks them.

`families` declares every such metric. `job_series`, `team_series`, `gpu_series` and `schedule_series` make its samples from statuses and
inventories; `job_counters` keeps counters of jobs from falling; `consumption` adds up the GPU-seconds that attempts hold. `live` collects
the samples when Prometheus asks. Counters of events stand in `tuneyard_operators.hub.metrics`.
"""

from tuneyard_operators.metrics import families
from tuneyard_operators.metrics.consumption import Consumption
from tuneyard_operators.metrics.families import FAMILIES, Family, Sample
from tuneyard_operators.metrics.gpu_series import gpu_series
from tuneyard_operators.metrics.job_counters import JobCounters
from tuneyard_operators.metrics.job_series import MOST_JOBS, ListedJob, job_series, phase_series
from tuneyard_operators.metrics.live import LiveState
from tuneyard_operators.metrics.schedule_series import MOST_SCHEDULES, schedule_series
from tuneyard_operators.metrics.team_names import MOST_TEAMS, OTHER_TEAMS, TeamNames
from tuneyard_operators.metrics.team_series import Waiting, name_of, queue_series, team_series

__all__ = [
    "FAMILIES",
    "MOST_JOBS",
    "MOST_SCHEDULES",
    "MOST_TEAMS",
    "OTHER_TEAMS",
    "Consumption",
    "Family",
    "JobCounters",
    "ListedJob",
    "LiveState",
    "Sample",
    "TeamNames",
    "Waiting",
    "families",
    "gpu_series",
    "job_series",
    "name_of",
    "phase_series",
    "queue_series",
    "schedule_series",
    "team_series",
]
