"""How a scheduler orders and chooses: four policies, which differ in values alone, so that a simulation compares nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

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
    stretch: float = 10.0
    longest_s: float = 60 * 86400.0
    fairness_s: float = 0.0
    borrowing_s: float = 0.0
    """By how much whoever would borrow is put back behind those who ask for their team's own (Kueue orders its workloads so too)."""
    settled_s: float = 0.0
    """For how long an attempt runs at least before others of its priority may take back the quota that it has borrowed."""
    starves_from: int = 0
    """Gangs of so many GPUs may ask settled attempts of their own priority to go, once they have starved; 0: none may.
    For teams without quota; those of their own team, and of others that hold more than their quota."""
    starves_after: float = 10.0
    """A gang has starved once it has waited for so many times its own predicted duration, and for `starves_least_s`."""
    starves_least_s: float = 4 * 3600.0
    starves_unsaved_s: float = 3600.0
    """Nobody goes for it whose last checkpoint is older: what starts from scratch is left alone."""
    half_life_s: float = 7 * 86400.0
    """Usage counts half after so long."""
    longest_settled_s: float = 8 * 3600.0
    """It runs for twice as long each time that it was asked to go before, up to this."""
    grace_s: float = 120.0
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
            settled_s=1800.0,
            starves_from=8,
        ),
    )
}


def policy_of(policy: Policy | str) -> Policy:
    """A policy by its name. Raises KeyError on an unknown one."""
    return POLICIES[policy] if isinstance(policy, str) else policy
