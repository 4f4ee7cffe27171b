"""What a scheduling decision is made from, and what it is: plain values, without a reference to any API.

Times are seconds since the epoch, durations seconds. A GPU of the SKU `cpu` is a worker slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

PRIORITIES = {"low": 0, "normal": 1, "high": 2, "urgent": 3}
UNKNOWN_DURATION_S = 4 * 3600.0
"""What a task is assumed to take of which nothing is known."""
FITS_NEVER = 2**31 - 1
"""The least number of GPUs of a SKU on which a model fits that fits on no number of them."""
_SOON_S = 60.0
"""The least that an attempt which has overrun its prediction is expected to need."""
Basis = Literal["pace", "given", "corrected", "plan", "assumed"]
"""Where a predicted duration comes from: the task's own pace so far, `expectedDuration` of its job, the same times what such guesses of its
team were wrong by, the planner, or nowhere."""
_BASES: Mapping[str, str] = {
    "pace": "by its pace so far",
    "given": "by expectedDuration",
    "corrected": "by expectedDuration and by what such guesses of its team came to",
    "plan": "as planned",
    "assumed": "assumed, as nothing is known of it: set spec.expectedDuration",
}


def duration_words(seconds: float, basis: str) -> str:
    """A predicted duration for people, with where it comes from; an assumption is called one."""
    amount = f"{seconds / 60:.0f} min" if seconds < 3570 else f"{seconds / 3600:.1f} h"
    return f"about {amount}, {_BASES[basis]}" if basis in _BASES else f"about {amount}"


@dataclass(frozen=True)
class Node:
    """`gpus`: worker slots that the node has, `free`: those that nothing holds."""

    name: str
    sku: str
    gpus: int
    free: int


@dataclass(frozen=True)
class SkuFacts:
    name: str
    gpus_per_node: int
    price_per_gpu_hour: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member cluster as it is now. `usable`: False where it is cordoned, held out, or cannot be reached; `why_not` says which.
    `near`: URI prefixes of the storage that lies beside it."""

    name: str
    skus: tuple[SkuFacts, ...]
    nodes: tuple[Node, ...]
    usable: bool = True
    why_not: str = ""
    near: tuple[str, ...] = ()

    def sku(self, name: str) -> SkuFacts | None:
        return next((sku for sku in self.skus if sku.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Team:
    """Owner of quota. `quota`: GPUs per SKU that are its own; `borrowing`: how many more it may hold of what others of its `cohort`
    leave unused (a SKU that is absent: no limit). `quota` None: the team has no limit and no guarantee.

    `used_s`: GPU-seconds per SKU that it has used, decayed with the policy's half-life up to `used_at`.
    """

    name: str
    quota: Mapping[str, int] | None = field(default=None, hash=False)
    borrowing: Mapping[str, int] = field(default_factory=dict, hash=False)
    weight: float = 1.0
    cohort: str = ""
    used_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    used_at: float = 0.0
    closed: str = ""
    """Why nothing of it may start, such as a budget that is spent."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A task that waits for a placement. `worlds`: numbers of workers (GPUs) that would do, best first; `unit`: GPUs that must share a
    machine (a tensor-parallel group, of an engine or of ranks). `skus` and `clusters` in order of preference; empty: any."""

    job: str
    task: str
    team: str
    priority: str
    created: float
    worlds: tuple[int, ...]
    unit: int = 1
    engines: bool = False
    """Its workers are engines of `unit` GPUs each; else ranks, of one GPU each."""
    skus: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    least: tuple[tuple[str, int], ...] = ()
    """Fewest GPUs on which its model fits, by SKU. A smaller world does not start on the SKU; a SKU that is not listed is not allowed.
    Empty: not known, so that every world may start on every SKU."""
    fit: str = ""
    """What is known of whether its model fits, for people: what would make it fit on fewer GPUs, or why nothing is known."""
    avoid: frozenset[tuple[str, str]] = frozenset()
    """(cluster, node) that have failed this task: taken only where nothing else would ever do."""
    seconds: float = UNKNOWN_DURATION_S
    """Predicted duration with `worlds[0]` workers on the reference SKU; may be wrong by any factor."""
    basis: Basis = "assumed"
    """Where `seconds` comes from."""
    near: tuple[str, ...] = ()
    """URIs that it reads much of: its data, its last checkpoint."""
    preemptible: bool = True
    owed_since: float | None = None
    """When others were first asked to go for it: what they free is its own, so that it is looked at first within its priority."""

    def fewest(self, sku: str) -> int:
        """Fewest GPUs of a SKU on which its model fits; 0 where that is not known, `FITS_NEVER` where it fits on no number of them."""
        return next((gpus for name, gpus in self.least if name == sku), FITS_NEVER) if self.least else 0

    def smallest(self, sku: str) -> int:
        """The smallest world that may start on a SKU; the smallest of all where none may."""
        if not self.least:
            return self._smallest_of_all
        fewest = self.fewest(sku)
        return min((workers for workers in self.worlds if workers >= fewest), default=self._smallest_of_all)

    @cached_property
    def _smallest_of_all(self) -> int:
        return min(self.worlds)


@dataclass(frozen=True, kw_only=True)
class Running:
    """An attempt that holds GPUs. `ends`: predicted; `saved`: when its last checkpoint was committed, its start where there is none.
    `stopping`: it has been asked to checkpoint and to go, so that its GPUs are spoken for and it is no victim any more. `ended`: it is
    over, but something of it may still be on its machines, as on a member that is lost: it holds them, and no quota. `preempted`: how often
    attempts of its task have been asked to go before."""

    job: str
    task: str
    team: str
    priority: str
    cluster: str
    sku: str
    nodes: Mapping[str, int] = field(hash=False)
    started: float
    ends: float
    saved: float
    preemptible: bool = True
    stopping: bool = False
    ended: bool = False
    preempted: int = 0

    @cached_property
    def gpus(self) -> int:
        return sum(self.nodes.values())

    @cached_property
    def key(self) -> tuple[str, str]:
        return self.job, self.task

    def lost_s(self, now: float) -> float:
        """GPU-seconds of work since its last checkpoint."""
        return self.gpus * max(0.0, now - self.saved)


@dataclass(frozen=True, kw_only=True)
class World:
    """`running` is part of what `Member.nodes` do not count as free. A team that is not in `teams` has neither limit nor guarantee."""

    members: tuple[Member, ...]
    asks: tuple[Ask, ...]
    running: tuple[Running, ...] = ()
    teams: tuple[Team, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Start the task there: `pods` worker pods of equal size; `nodes`: GPUs taken by node. `seconds`: predicted duration there."""

    ask: Ask
    cluster: str
    sku: str
    workers: int
    pods: int
    nodes: Mapping[str, int] = field(hash=False)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Preempt:
    """Ask an attempt to checkpoint and to go, so that `ask` can start where it ran."""

    victim: Running
    ask: Ask
    reason: str

    @property
    def cluster(self) -> str:
        return self.victim.cluster


@dataclass(frozen=True, kw_only=True)
class Wait:
    """`reasons` by cluster; `held` is a reason that has nothing to do with clusters (quota, a team's budget). `starts`: an estimate."""

    ask: Ask
    reasons: Mapping[str, str] = field(hash=False)
    held: str = ""
    starts: float | None = None
    unchecked: str = ""
    """Why it is not known whether its model fits, where it is not."""

    @property
    def reason(self) -> str:
        parts = [self.held] if self.held else []
        parts += [f"{cluster}: {why}" for cluster, why in self.reasons.items()]
        return "; ".join([*(parts or ["there is no cluster"]), *([self.unchecked] if self.unchecked else [])])


@dataclass(frozen=True, kw_only=True)
class Infeasible:
    """No member could ever run the ask, even an empty one. The ask waits on: a member or a quota may grow."""

    ask: Ask
    reason: str


class Undecidable(Exception):
    """A cycle came to nothing on account of one ask: the scheduler is to be made anew, without it."""

    def __init__(self, ask: Ask, cause: Exception) -> None:
        self.ask = ask
        self.cause = cause
        super().__init__(f"{ask.job}/{ask.task}: {type(cause).__name__}: {cause}")


Decision = Place | Preempt | Wait | Infeasible


def running_of(place: Place, now: float) -> Running:
    """The attempt of a placement that starts now."""
    ask = place.ask
    return Running(
        job=ask.job,
        task=ask.task,
        team=ask.team,
        priority=ask.priority,
        cluster=place.cluster,
        sku=place.sku,
        nodes=place.nodes,
        started=now,
        ends=now + place.seconds,
        saved=now,
        preemptible=ask.preemptible,
    )


def expected_end(ends: float, now: float) -> float:
    """The end of an attempt that was predicted to end at `ends`. One that has overrun its prediction needs as long again as it has
    overrun."""
    return ends if ends > now else now + max(_SOON_S, now - ends)
