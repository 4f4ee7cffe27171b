"""How a scheduler orders and chooses: policies, which differ in values alone, so that a simulation compares nothing else.

Two of them are peers' rules, as far as these values can express them: `KUEUE_RULES` and `SLURM_RULES`.
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
"""Predicted seconds of an ask on a SKU with so many workers."""

REFERENCE_SKU = "a100-80gb"


def by_roofline(ask: Ask, sku: str, workers: int) -> float:
    """`ask.seconds`, spread evenly over the workers, on a GPU that is faster by the geometric mean of its peak FLOP/s and its memory
    bandwidth over those of the reference: training is bound by either in turn (roofline; Williams et al. 2009). Unknown SKU: as fast."""
    most = ask.worlds[0]
    return ask.seconds * (most / workers if workers else 1.0) / speed_factor(sku)


@lru_cache(maxsize=1024)
def speed_factor(sku: str) -> float:
    """How many times as fast as the reference a SKU is thought to be; 1 for `cpu` and for one that is not known."""
    found = kinds().find(sku)
    return _factor(found, kinds().find(REFERENCE_SKU) or found) if found is not None else 1.0


def _factor(kind: Gpu, base: Gpu) -> float:
    return float((kind.best_flops / base.best_flops * kind.memory_bandwidth_gb_s / base.memory_bandwidth_gb_s) ** 0.5)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """All of a scheduler's settings. Priority always comes first; `order` ranks those of one priority.

    `age`: first come, first served. `shortest`: least predicted GPU-time first. `stretch`: by *deadline of fairness*, the time of
    submission plus `stretch` seconds for each predicted second of one GPU, approaching `longest_s`, plus `fairness_s` for each time that
    the team has had its fair share of the dominant resource (DRF; Ghodsi et al. 2011) lately. Short work overtakes long work by what it
    is shorter, not for ever: nobody is overtaken by who comes `longest_s` later and owes no more. With `fairness_s` of half-life / ln 2, a
    team is put back by the time in which it would have used as much at its fair rate (the virtual time of fair queueing; Demers et al.
    1989): who floods a cluster waits behind those who have not used theirs.
    """

    name: str
    order: Literal["age", "shortest", "stretch"] = "age"
    strict: bool = False
    """Nobody overtakes the first who waits."""
    choice: Literal["first", "score"] = "first"
    reservations: int = 0
    """How many of the first who wait are kept GPUs for, at the time at which they are predicted to be free (EASY backfilling with one;
    Lifka 1995, Mu'alem and Feitelson 2001). Others start before them only where they are predicted to end before, or take other GPUs."""
    preempts: bool = False
    corrects_guesses: bool = False
    """Durations that authors have guessed are corrected by how wrong their teams have been (`Guesses`)."""
    victims: Literal["cheapest", "youngest"] = "cheapest"
    """Which attempts go of those that may. `cheapest`: the set that loses the least GPU-time, over all pools. `youngest`: in order, until
    there is room: what is taken back first, then the lowest priority, then the latest start; in the first pool where that makes room."""
    owes_freed: bool = True
    """An ask for which others go is looked at before all others of its priority until it starts."""
    stretch: float = 10.0
    longest_s: float = 60 * 86400.0
    fairness_s: float = 0.0
    fairness: Literal["linear", "halving"] = "linear"
    """How a team's share puts its asks back. `linear`: by `fairness_s` for each fair share. `halving`: by `fairness_s` x (1 - 2^-share), at
    most `fairness_s` (the classic fair-share factor of Slurm)."""
    borrowing_s: float = 0.0
    """By how much whoever would borrow is put back behind those who ask for their team's own (Kueue orders its workloads so too)."""
    borrows_whole: bool = False
    """An ask counts as borrowing where any of its GPUs would be borrowed, as in Kueue; otherwise only where all would be."""
    reserves_quota: bool = True
    """The first ask of a team that lacks quota is promised the quota that is predicted to become free first."""
    settled_s: float = 0.0
    """For how long an attempt runs at least before others of its priority may take back the quota that it has borrowed, and for how long
    they wait at least before they do: most of what is borrowed ends meanwhile."""
    starves_from: int = 0
    """Gangs of so many GPUs may ask settled attempts of their own priority to go, once they have starved; 0: none may.
    For teams without quota; those of their own team, and of others that hold more than their quota."""
    starves_after: float = 10.0
    """A gang has starved once it has waited for so many times its own predicted duration, and for `starves_least_s`."""
    starves_least_s: float = 4 * 3600.0
    starves_settled_s: float = 3600.0
    """For how long an attempt runs at least before it may be asked to go for it."""
    starves_unsaved_s: float = 3600.0
    """Nobody goes for it whose last checkpoint is older, or who has none: what starts from scratch is left alone."""
    half_life_s: float = 7 * 86400.0
    """Usage counts half after so long."""
    longest_settled_s: float = 8 * 3600.0
    """It runs for twice as long each time that it was asked to go before, up to this."""
    grace_s: float = STOP_GRACE_S
    """What a victim has to checkpoint and to stop."""
    restart_s: float = 60.0
    """From the placement of an attempt to its first step: GPUs are held, and nothing is gained."""
    far_s: float = 600.0
    """What it counts for that data or the last checkpoint lie beside another cluster."""
    preference_s: float = 60.0
    """What each place further back in the asker's own lists of SKUs and clusters counts for."""
    seconds_per_price: float = 10.0
    """What a unit of money counts for."""
    fragmentation_s: float = 120.0
    """What tearing a whole free machine counts for."""
    speed: Speed = by_roofline


RULES_OF_PEERS = ("victims", "owes_freed", "fairness", "borrows_whole", "reserves_quota")
"""Settings that none of our policies sets."""
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

Expressed: priority, then borrowers last, then age. Owners take quota back from borrowers at once. Victims go by lowest priority, then
youngest admission, without those that turn out not to be needed. Neither durations nor reservations.

Not expressed: Kueue puts borrowers behind owners of lower priority too. It looks at one head of each queue in a cycle. It spares lower
priority in queues that do not borrow, and takes back from borrowers of higher priority. Fair sharing and `waitForPodsReady` are off. Kueue
counts quota, and sees nodes within one cluster alone, by its topology feature: these rules see the free nodes of all clusters.
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
around one reservation. Victims go by lowest priority, then latest start, whatever their checkpoints.

Not expressed: the age factor stops to grow after 7 days. Fair Tree ranks. Slurm reserves for up to `bf_max_job_test` asks (100), whole
nodes each, within a window of a day. Slurm ends a job at its limit, so that limits are too long rather than too short. Slurm has no quota
that others borrow: give its teams weights instead.
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
