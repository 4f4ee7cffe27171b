"""Pure scheduling: World (a snapshot) + policy -> Decisions. No clock, no network: the same arguments give the same answer.

`schedule` decides from a snapshot; `Scheduler` is the same brought up to date by changes, for whoever decides again and again.
"""

from tuneyard.federation.cycle import running_of
from tuneyard.federation.deciding import schedule
from tuneyard.federation.fitting import pod_sizes
from tuneyard.federation.forecast import forecast
from tuneyard.federation.from_api import (
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
from tuneyard.federation.native import NativeScheduler, new_scheduler, scheduler_of
from tuneyard.federation.policy import POLICIES, REFERENCE_SKU, Policy, Speed, by_roofline, speed_factor
from tuneyard.federation.scheduler import Scheduler
from tuneyard.federation.team_objects import read_team, rights_of, same_month, team_of, unknown_team
from tuneyard.federation.world import (
    FITS_NEVER,
    PRIORITIES,
    UNKNOWN_DURATION_S,
    Ask,
    Basis,
    Decision,
    Fail,
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
)

__all__ = [
    "FITS_NEVER",
    "POLICIES",
    "PRIORITIES",
    "REFERENCE_SKU",
    "UNKNOWN_DURATION_S",
    "Ask",
    "Basis",
    "Decision",
    "Fail",
    "Fits",
    "Guesses",
    "Member",
    "NativeScheduler",
    "Node",
    "Place",
    "Policy",
    "Preempt",
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
    "sku_names",
    "skus_of",
    "speed_factor",
    "taken_by",
    "team_of",
    "unknown_team",
    "unmatched_skus",
    "worlds_of",
]
