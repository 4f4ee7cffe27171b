"""Pure scheduling: World (a snapshot) + policy -> Decisions. No clock, no network: the same arguments give the same answer.

Only the policy `fifo-first-fit` exists so far: the simplest that places whole gangs on nodes. The hub operator calls `schedule` and knows
nothing of policies, so that better ones come in behind this door.
"""

from tuneyard.federation.fitting import Gang, fit, pod_sizes
from tuneyard.federation.schedule import POLICIES, schedule
from tuneyard.federation.world import Ask, Decision, Fail, Member, Node, Place, SkuFacts, Wait, World

__all__ = [
    "POLICIES",
    "Ask",
    "Decision",
    "Fail",
    "Gang",
    "Member",
    "Node",
    "Place",
    "SkuFacts",
    "Wait",
    "World",
    "fit",
    "pod_sizes",
    "schedule",
]
