"""Inputs and results of scheduling: members, teams, asks and attempts; placements, preemptions and waits. No value refers to an API.

Times are seconds since the epoch, durations seconds. A GPU of the SKU `cpu` is a worker slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

PRIORITIES = {"low": 0, "normal": 1, "high": 2, "urgent": 3}
UNKNOWN_DURATION_S = 4 * 3600.0
"""The assumed duration of a task without any prediction."""
FITS_NEVER = 2**31 - 1
"""Stands for the fewest GPUs of a SKU where a model fits on no number of GPUs."""
AGAIN_S = 3600.0
"""The age that an earlier preemption adds to the last checkpoint of a candidate for preemption. It doubles with each preemption."""
_SOON_S = 60.0
"""The least remaining time of an attempt that has overrun its prediction."""
Basis = Literal["pace", "given", "corrected", "history", "plan", "assumed"]
"""The source of a predicted duration: the task's own pace so far, `expectedDuration` of its job, the same corrected by past errors of its
team, the latest runs of its Schedule, the planner, or an assumption."""
_BASES: Mapping[str, str] = {
    "pace": "by its pace so far",
    "given": "by expectedDuration",
    "corrected": "by expectedDuration, corrected by earlier guesses of its team",
    "history": "as the latest runs of its Schedule took",
    "plan": "as planned",
    "assumed": "assumed, as nothing is known of it: set spec.expectedDuration",
}


def duration_words(seconds: float, basis: str) -> str:
    """A predicted duration and its source, for people."""
    amount = f"{seconds / 60:.0f} min" if seconds < 3570 else f"{seconds / 3600:.1f} h"
    return f"about {amount}, {_BASES[basis]}" if basis in _BASES else f"about {amount}"


@dataclass(frozen=True)
class Node:
    """`gpus`: worker slots of the node. `free`: unallocated slots."""

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
    """A member cluster as it is now. `usable`: False where it is cordoned, held out, or unreachable; `why_not` is the reason.
    `near`: URI prefixes of the storage beside it."""

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
    """The owner of quota. `quota`: its own GPUs by SKU; None: the team has neither limit nor guarantee. `borrowing`: the most GPUs by SKU
    that it may borrow from its `cohort`; an absent SKU has no limit.

    `used_s`: used GPU-seconds by SKU, decayed with the policy's half-life up to `used_at`.
    """

    name: str
    quota: Mapping[str, int] | None = field(default=None, hash=False)
    borrowing: Mapping[str, int] = field(default_factory=dict, hash=False)
    weight: float = 1.0
    cohort: str = ""
    used_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    used_at: float = 0.0
    closed: str = ""
    """Why none of its tasks may start, such as a spent budget. Empty: they may."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A task that waits for a placement. `worlds`: possible numbers of workers (GPUs), best first. `unit`: GPUs that must share a node (a
    tensor-parallel group of an engine or of ranks). `skus` and `clusters`: in order of preference; empty: any."""

    job: str
    task: str
    team: str
    priority: str
    created: float
    worlds: tuple[int, ...]
    unit: int = 1
    engines: bool = False
    """Its workers are engines of `unit` GPUs each. False: ranks of one GPU each."""
    skus: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    least: tuple[tuple[str, int], ...] = ()
    """Fewest GPUs on which its model fits, by SKU. A smaller world does not start on the SKU. An unlisted SKU is not allowed.
    Empty: unknown, so that every world may start on every SKU."""
    fit: str = ""
    """The memory of its model, for people: a remedy that makes it fit on fewer GPUs, or why its memory is unknown."""
    avoid: frozenset[tuple[str, str]] = frozenset()
    """Nodes (cluster, node) that have failed this task. They are used only where the task could run on no other nodes."""
    seconds: float = UNKNOWN_DURATION_S
    """Predicted duration with `worlds[0]` workers on the reference SKU. It may be wrong by any factor."""
    basis: Basis = "assumed"
    """The source of `seconds`."""
    series: str = ""
    """The Schedule's task that this is a run of (`repeats.series_of`); empty: it is not a run of a Schedule."""
    near: tuple[str, ...] = ()
    """URIs of its large inputs: its data, its last checkpoint."""
    preemptible: bool = True
    owed_since: float | None = None
    """When it first preempted attempts. The freed GPUs are owed to it, so that it comes first within its priority. None: it has not."""

    def fewest(self, sku: str) -> int:
        """Fewest GPUs of a SKU on which its model fits. 0: unknown. `FITS_NEVER`: it fits on no number of GPUs."""
        return next((gpus for name, gpus in self.least if name == sku), FITS_NEVER) if self.least else 0

    def smallest(self, sku: str) -> int:
        """The smallest world that may start on a SKU. Where none may: the smallest of all worlds."""
        if not self.least:
            return self._smallest_of_all
        fewest = self.fewest(sku)
        return min((workers for workers in self.worlds if workers >= fewest), default=self._smallest_of_all)

    @cached_property
    def _smallest_of_all(self) -> int:
        return min(self.worlds)


@dataclass(frozen=True, kw_only=True)
class Running:
    """An attempt that holds GPUs.

    `ends`: predicted. `saved`: when its last checkpoint was committed; its start where there is none. `stopping`: it was asked to save and
    to stop, so that its GPUs become free soon and it is no candidate for preemption any more. `ended`: it is over, but its pods may still
    exist, as on a lost member: it holds GPUs, and no quota. `preempted`: number of earlier preemptions of its task.
    """

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

    @cached_property
    def counted_saved(self) -> float:
        """When its last checkpoint was committed, as the choice of victims counts it: the earlier, the more often its task was preempted.
        So another attempt goes, unless that loses hours more for each GPU."""
        return self.saved - AGAIN_S * (2.0 ** min(self.preempted, 16) - 1.0)

    def lost_s(self, now: float) -> float:
        """GPU-seconds of work since its last checkpoint."""
        return self.gpus * max(0.0, now - self.saved)


@dataclass(frozen=True, kw_only=True)
class World:
    """A snapshot. `Node.free` of members does not count GPUs of `running`. A team that is absent from `teams` has neither limit nor
    guarantee."""

    members: tuple[Member, ...]
    asks: tuple[Ask, ...]
    running: tuple[Running, ...] = ()
    teams: tuple[Team, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Start a task in a cluster, with `pods` worker pods of equal size. `nodes`: GPUs taken by node. `seconds`: predicted duration."""

    ask: Ask
    cluster: str
    sku: str
    workers: int
    pods: int
    nodes: Mapping[str, int] = field(hash=False)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Preempt:
    """Ask an attempt to save a checkpoint and to stop, so that `ask` can start on its GPUs."""

    victim: Running
    ask: Ask
    reason: str

    @property
    def cluster(self) -> str:
        return self.victim.cluster


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A task waits on. `reasons`: by cluster. `held`: a reason of its team (quota, budget). `starts`: estimated start."""

    ask: Ask
    reasons: Mapping[str, str] = field(hash=False)
    held: str = ""
    starts: float | None = None
    unchecked: str = ""
    """Why it is unknown whether its model fits. Empty: it is known."""

    @property
    def reason(self) -> str:
        parts = [self.held] if self.held else []
        parts += [f"{cluster}: {why}" for cluster, why in self.reasons.items()]
        return "; ".join([*(parts or ["there is no cluster"]), *([self.unchecked] if self.unchecked else [])])


@dataclass(frozen=True, kw_only=True)
class Infeasible:
    """No member could ever run the ask, not even an empty one. The ask waits on, because a member or a quota may grow."""

    ask: Ask
    reason: str


class Undecidable(Exception):
    """A cycle failed because of one ask. The caller makes a new scheduler without this ask."""

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
