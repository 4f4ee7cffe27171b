"""Policies of a scheduler: the order of asks, the choice of pools and victims, and their weights in seconds.

Policies differ only in values, so that a simulation compares nothing else. `KUEUE_RULES` and `SLURM_RULES` are the rules of two other
schedulers, as far as these values can express them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tuneyard.api import STOP_GRACE_S
from tuneyard.catalog import Gpu, kinds
from tuneyard.federation.world import Ask

Speed = Callable[[Ask, str, int], float]
"""Predicted seconds of an ask, by SKU and number of workers."""

REFERENCE_SKU = "a100-80gb"


def by_roofline(ask: Ask, sku: str, workers: int) -> float:
    """Predicted seconds of an ask: `ask.seconds`, scaled linearly by the number of workers and divided by the SKU's `speed_factor`."""
    most = ask.worlds[0]
    return ask.seconds * (most / workers if workers else 1.0) / speed_factor(sku)


@lru_cache(maxsize=1024)
def speed_factor(sku: str) -> float:
    """Speed of a SKU relative to the reference: the geometric mean of the ratios of peak FLOP/s and of memory bandwidth. Training is bound
    by either in turn (roofline; Williams et al. 2009). 1 for `cpu` and for unknown SKUs."""
    found = kinds().find(sku)
    return _factor(found, kinds().find(REFERENCE_SKU) or found) if found is not None else 1.0


def _factor(kind: Gpu, base: Gpu) -> float:
    return float((kind.best_flops / base.best_flops * kind.memory_bandwidth_gb_s / base.memory_bandwidth_gb_s) ** 0.5)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """All settings of a scheduler. Priority always comes first. `order` ranks asks of one priority:

    - `age`: first come, first served.
    - `shortest`: least predicted GPU-time first.
    - `stretch`: by *deadline of fairness*. This is the time of submission, plus `stretch` seconds for each predicted GPU-second
      (approaching `longest_s`), plus `fairness_s` for each fair share of the dominant resource that the team has used recently (DRF;
      Ghodsi et al. 2011).

    With `stretch`, short asks overtake long ones without starving them: an ask never overtakes one that came `longest_s` earlier, unless
    its team has used less. With `fairness_s` = half-life / ln 2, a team is put back by the time in which it would have used as much at its
    fair rate (the virtual time of fair queueing; Demers et al. 1989). So a team that floods a cluster waits behind teams below their share.
    """

    name: str
    order: Literal["age", "shortest", "stretch"] = "age"
    strict: bool = False
    """No ask overtakes the first waiting ask."""
    choice: Literal["first", "score"] = "first"
    reservations: int = 0
    """The number of waiting asks with reservations, the first of the queue first. GPUs are reserved from the time at which they are
    predicted to be free. Other asks start earlier only where they are predicted to end before that time, or use other GPUs. 1 is EASY
    backfilling (Lifka 1995; Mu'alem and Feitelson 2001)."""
    preempts: bool = False
    corrects_guesses: bool = False
    """Authors' guesses of durations are corrected by the past errors of their teams (`Guesses`)."""
    victims: Literal["cheapest", "youngest"] = "cheapest"
    """The choice of victims among the candidates. `cheapest`: the set that loses the least GPU-time, over all pools. `youngest`: the first
    candidates that make room, in the first pool where they do: borrowed quota comes first, then lowest priority, then latest start."""
    owes_freed: bool = True
    """Freed GPUs are owed to the ask that preempted for them: it comes first within its priority until it starts."""
    stretch: float = 10.0
    longest_s: float = 60 * 86400.0
    fairness_s: float = 0.0
    fairness: Literal["linear", "halving"] = "linear"
    """How a team's share puts its asks back. `linear`: by `fairness_s` for each fair share. `halving`: by `fairness_s` x (1 - 2^-share), at
    most `fairness_s` (the classic fair-share factor of Slurm)."""
    borrowing_s: float = 0.0
    """Seconds by which a borrowing ask is put back behind asks within their team's quota (Kueue has the same order)."""
    borrows_whole: bool = False
    """An ask counts as borrowing where any of its GPUs would be borrowed, as in Kueue. Otherwise only where all would be."""
    reserves_quota: bool = True
    """The first ask that lacks quota reserves the quota of its team that is predicted to become free first."""
    settled_s: float = 0.0
    """The least running time of an attempt before asks of its own priority may reclaim its borrowed quota, and the least wait of these
    asks. Most borrowing attempts end by themselves meanwhile."""
    settled_late_s: float = 1800.0
    """`settled_s` of attempts that began while the ask waited already, at most `settled_s`. Without it, borrowing attempts shorter than
    `settled_s` that follow each other would keep an owner out for as long as they come."""
    spared_again_s: float = 0.0
    """Half of the least running time of an attempt whose task was preempted once, before asks of higher priority below `urgent` preempt it
    again. It doubles with each preemption, so that a job of low priority gets on however many of high priority come."""
    starves_from: int = 0
    """The least GPUs of a gang that may preempt settled attempts of its own priority once it has starved. 0: no gang may.
    Only for teams without a quota. Candidates are attempts of the same team, and of teams that borrow."""
    starves_after: float = 10.0
    """A gang has starved once it has waited for this multiple of its predicted duration, and at least for `starves_least_s`."""
    starves_least_s: float = 4 * 3600.0
    starves_settled_s: float = 3600.0
    """The least running time of an attempt before a starved gang may preempt it."""
    starves_unsaved_s: float = 3600.0
    """The greatest age of the last checkpoint of its victims. A starved gang spares attempts with an older checkpoint, or with none."""
    half_life_s: float = 7 * 86400.0
    """The half-life of usage: after this time, GPU-seconds count half."""
    longest_settled_s: float = 8 * 3600.0
    """`settled_s`, `settled_late_s`, `spared_again_s` and `starves_settled_s` double with each earlier preemption of a task, up to this."""
    grace_s: float = STOP_GRACE_S
    """The time in which a victim must save a checkpoint and stop."""
    restart_s: float = 60.0
    """From the placement of an attempt to its first step. The attempt holds its GPUs without progress."""
    far_s: float = 600.0
    """Added to a pool's score where data or the last checkpoint lie beside another cluster."""
    preference_s: float = 60.0
    """Added to a pool's score for each place further back in the ask's own lists of SKUs and clusters."""
    seconds_per_price: float = 10.0
    """Added to a pool's score for each unit of money that the run costs."""
    fragmentation_s: float = 120.0
    """Added to a pool's score, times the fragmentation by the gang, from 0 to 1 (`Pools.torn`)."""
    speed: Speed = by_roofline


RULES_OF_PEERS = ("victims", "owes_freed", "fairness", "borrows_whole", "reserves_quota")
"""Settings that only the rules of other schedulers use."""
_DAY_S = 86400.0

KUEUE_RULES = Policy(
    name="kueue-rules",
    preempts=True,
    victims="youngest",
    owes_freed=False,
    borrowing_s=3650 * _DAY_S,
    borrows_whole=True,
    reserves_quota=False,
)
"""Kueue with `BestEffortFIFO`, classic preemption, `withinClusterQueue: LowerPriority` and `reclaimWithinCohort: Any`.

Expressed: the order is priority, then owners before borrowers, then age. Owners reclaim quota from borrowers at once. Victims are chosen by
lowest priority, then by latest admission; superfluous victims are spared. There are neither durations nor reservations.

Not expressed: Kueue puts borrowers behind owners of lower priority too. It considers one head of each queue in a cycle. It spares lower
priority in queues that do not borrow, and reclaims from borrowers of higher priority. Fair sharing and `waitForPodsReady` are off. Kueue
counts quota, and sees nodes only within one cluster, by its topology feature. These rules see the free nodes of all clusters.
"""

SLURM_RULES = Policy(
    name="slurm-rules",
    reservations=1,
    preempts=True,
    victims="youngest",
    fairness_s=70 / 15 * 7 * _DAY_S,
    fairness="halving",
)
"""Slurm with `priority/multifactor`, `sched/backfill`, and preemption by QOS with `youngest_first`.

Expressed: priority, then the sum of an age factor (weight 15, full after the `PriorityMaxAge` of 7 days) and the classic fair-share factor
2^-(usage / share) (weight 70, half-life 7 days). These weights are the example of Slurm's documentation, without the size factor. Backfill
around one reservation. Victims are chosen by lowest priority, then by latest start; checkpoints do not count.

Not expressed: the age factor of Slurm stops growing after 7 days. Slurm ranks by Fair Tree. It reserves whole nodes for up to
`bf_max_job_test` asks (100), within a window of a day. It ends a job at its limit, so that limits are too long rather than too short. It
has no quota that others borrow: give its teams weights instead.
"""

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(name="fifo-first-fit", strict=True),
        Policy(name="best-effort-fifo"),
        Policy(name="shortest-first-oracle", order="shortest"),
        Policy(
            name="tuneyard",
            order="stretch",
            choice="score",
            reservations=1,
            preempts=True,
            fairness_s=7 * 86400.0 / math.log(2),
            borrowing_s=60 * 86400.0,
            settled_s=7200.0,
            spared_again_s=900.0,
            starves_from=8,
            corrects_guesses=True,
        ),
        KUEUE_RULES,
        SLURM_RULES,
    )
}


def policy_of(policy: Policy | str) -> Policy:
    """A policy by its name. Raises KeyError on an unknown one."""
    return POLICIES[policy] if isinstance(policy, str) else policy
