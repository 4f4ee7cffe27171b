"""Pure scheduling: a `World` (snapshot) and a policy give decisions. No clock, no network: the same arguments give the same answer.

`schedule` decides about a snapshot. A `Scheduler` keeps its state up to date by changes, for the hub and the simulator. A cycle crosses
these modules, in this order:

    scheduler     state: pools, teams, queues; one `Cycle` after another
    cycle         the order of asks; starts, preempts or reserves for each
    queues        waiting asks by priority, shape and team, and where asks of a shape could run
    pools         free GPUs by member, SKU and node
    teams         quota, borrowing, fair share
    placement     the best pool with room
    reservations  GPUs and quota for asks that start later
    preemption    who stops for an ask: `candidates`, and the cheapest `victims` among them

`explanations` say why an ask waits, `forecast` when it will start. `native` does all this in C++.
"""

from tuneyard.federation.forecast import forecast
from tuneyard.federation.from_api import (
    SCHEDULE_LABEL,
    Fits,
    Taken,
    ask_of,
    attempts_of,
    held_hours,
    job_name,
    member_of,
    own_sku,
    sku_names,
    skus_of,
    taken_by,
    unmatched_skus,
    worlds_of,
)
from tuneyard.federation.guesses import Guesses
from tuneyard.federation.native import NativeScheduler, new_scheduler, schedule, scheduler_of
from tuneyard.federation.policy import POLICIES, REFERENCE_SKU, Policy, Speed, by_roofline, speed_factor
from tuneyard.federation.queues import pod_sizes
from tuneyard.federation.repeats import Repeats, series_of, spent_by
from tuneyard.federation.scheduler import Scheduler
from tuneyard.federation.team_objects import read_team, rights_of, same_month, team_of, unknown_team
from tuneyard.federation.world import (
    FITS_NEVER,
    PRIORITIES,
    UNKNOWN_DURATION_S,
    Ask,
    Basis,
    Decision,
    Infeasible,
    Member,
    Node,
    Place,
    Preempt,
    Running,
    SkuFacts,
    Team,
    Undecidable,
    Wait,
    World,
    duration_words,
    running_of,
)

__all__ = [
    "FITS_NEVER",
    "POLICIES",
    "PRIORITIES",
    "REFERENCE_SKU",
    "SCHEDULE_LABEL",
    "UNKNOWN_DURATION_S",
    "Ask",
    "Basis",
    "Decision",
    "Fits",
    "Guesses",
    "Infeasible",
    "Member",
    "NativeScheduler",
    "Node",
    "Place",
    "Policy",
    "Preempt",
    "Repeats",
    "Running",
    "Scheduler",
    "SkuFacts",
    "Speed",
    "Taken",
    "Team",
    "Undecidable",
    "Wait",
    "World",
    "ask_of",
    "attempts_of",
    "by_roofline",
    "duration_words",
    "forecast",
    "held_hours",
    "job_name",
    "member_of",
    "new_scheduler",
    "own_sku",
    "pod_sizes",
    "read_team",
    "rights_of",
    "running_of",
    "same_month",
    "schedule",
    "scheduler_of",
    "series_of",
    "sku_names",
    "skus_of",
    "speed_factor",
    "spent_by",
    "taken_by",
    "team_of",
    "unknown_team",
    "unmatched_skus",
    "worlds_of",
]
