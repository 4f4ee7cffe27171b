"""Pure scheduling: World (a snapshot) + policy -> Decisions. No clock, no network: the same arguments give the same answer.

`schedule` decides from a snapshot; `Scheduler` is the same brought up to date by changes, for whoever decides again and again.
"""

from tuneyard.federation.cycle import running_of
from tuneyard.federation.fitting import pod_sizes
from tuneyard.federation.forecast import forecast
from tuneyard.federation.from_api import ask_of, attempts_of, held_hours, job_name, member_of, same_month, team_of, unknown_team
from tuneyard.federation.policy import POLICIES, Policy, Speed, by_roofline
from tuneyard.federation.scheduler import Scheduler, schedule, scheduler_of
from tuneyard.federation.world import (
    PRIORITIES,
    UNKNOWN_DURATION_S,
    Ask,
    Decision,
    Fail,
    Member,
    Node,
    Place,
    Preempt,
    Running,
    SkuFacts,
    Team,
    Wait,
    World,
)

__all__ = [
    "POLICIES",
    "PRIORITIES",
    "UNKNOWN_DURATION_S",
    "Ask",
    "Decision",
    "Fail",
    "Member",
    "Node",
    "Place",
    "Policy",
    "Preempt",
    "Running",
    "Scheduler",
    "SkuFacts",
    "Speed",
    "Team",
    "Wait",
    "World",
    "ask_of",
    "attempts_of",
    "by_roofline",
    "forecast",
    "held_hours",
    "job_name",
    "member_of",
    "pod_sizes",
    "running_of",
    "same_month",
    "schedule",
    "scheduler_of",
    "team_of",
    "unknown_team",
]
