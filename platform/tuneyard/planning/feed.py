"""Data workers that a plan on streamed data needs, and the time its ranks wait for rows with fewer workers. Pure.

Ranks consume D tokens a second while they do not wait, and a data worker produces r. While the ranks compute a token, in 1 / D seconds, w
workers produce w r / D of the next one. The ranks wait for the rest. While they wait, each of the h ranks of a machine produces rows too:

    wait per token = max(0, 1 - w r / D) / ((w + h) r)        stall = wait / (1 / D + wait)

Workers beside the ranks: each machine produces all rows for itself, since a window's rows are spread over all ranks. D is the rate of all
machines, and w the workers of one. A data service produces each row once, and ranks produce none: w is the number of all workers, and h is
0. Rows are kept once produced, so all of this concerns the first epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tuneyard.api import TrainData
from tuneyard.planning.data_rates import WORKER_GB, DataRate

MOST_AUTO_WORKERS = 8
"""Upper bound of `data.workers: auto`, per machine."""
SMALL_STALL = 0.01
"""Share of a step's time below which a wait is not reported."""
_HEADROOM = 1.2
"""Workers produce more than the ranks consume: splits differ, and a window needs all of its shards before its first row."""
_NO_STALL = 1e-9


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Machines of the ranks. `spare_cores`: cores of each machine without a rank; None: not known, enough for `auto`."""

    count: int
    ranks_of_each: int
    spare_cores: int | None = None

    @property
    def auto_workers(self) -> int:
        """Data workers per machine with `data.workers: auto`."""
        return MOST_AUTO_WORKERS if self.spare_cores is None else max(1, min(MOST_AUTO_WORKERS, self.spare_cores))


@dataclass(frozen=True, kw_only=True)
class Staff:
    """A number of data workers and its consequences.

    `workers`: per machine beside the ranks, in total with a service. `cores`, `memory_gb`: of all machines. `stall`: share of a step's time
    in which ranks wait for rows, 0 to 1.
    """

    workers: int
    stall: float
    cores: float
    memory_gb: float


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Data workers for a plan. `alone`: without any; `asked`: with the task's number; `needed`: with enough of them.

    `tokens_per_s`: consumption of the ranks while they do not wait. `crowded`: the machines of the ranks lack the cores for `needed`.
    """

    where: Literal["beside", "away"]
    tokens_per_s: float
    rate: DataRate
    alone: Staff
    asked: Staff
    needed: Staff
    crowded: bool

    @property
    def advice(self) -> str:
        """The setting to change where the ranks wait; empty where they do not."""
        if self.asked.stall < SMALL_STALL:
            return ""
        if self.where == "away" or self.crowded:
            return f"set data.service: {{maxWorkers: {self.needed.workers}}}"
        return f"set data.workers: {self.needed.workers}"

    def wait_s(self, stepping_s: float) -> float:
        """Seconds that the ranks wait in the first epoch, with the task's workers. `stepping_s`: seconds of its steps without waiting."""
        return stepping_s * self.asked.stall / (1 - self.asked.stall)


def stall_share(demand: float, rate: float, workers: int, helpers: int) -> float:
    """Share of the time in which ranks wait for rows, 0 to 1.

    `demand`, `rate`: tokens/s of the ranks while they do not wait, and of one worker. `helpers`: ranks of a machine, which produce rows
    while they wait. Without workers there must be a helper.
    """
    missing = max(0.0, demand - workers * rate) / ((workers + helpers) * rate)
    return missing / (1 + missing) if missing > _NO_STALL else 0.0


def workers_needed(demand: float, rate: float) -> int:
    """The fewest workers that produce a fifth more than the ranks consume."""
    return max(1, math.ceil(_HEADROOM * demand / rate))


def feed_of(data: TrainData, tokens_per_s: float, rate: DataRate, machines: Machines) -> Feed:
    """The data workers of a task on streamed data whose ranks consume `tokens_per_s` on these machines."""
    service = data.service
    needed = workers_needed(tokens_per_s, rate.tokens_per_s)
    if service is not None:
        own = min(1.0, service.cpus)  # a worker is one process, and uses one core at most
        needed = workers_needed(tokens_per_s, own * rate.tokens_per_s)
        asked = service.max_workers

    def staff(workers: int) -> Staff:
        if service is not None and workers:
            stall = stall_share(tokens_per_s, own * rate.tokens_per_s, workers, 0)
            return Staff(workers=workers, stall=stall, cores=workers * service.cpus, memory_gb=workers * service.memory_gb)
        working = workers if machines.spare_cores is None else min(workers, max(1, machines.spare_cores))
        stall = stall_share(tokens_per_s, rate.tokens_per_s, working, machines.ranks_of_each)
        total = workers * machines.count
        return Staff(workers=workers, stall=stall, cores=float(total), memory_gb=total * WORKER_GB)

    if service is None:
        asked = machines.auto_workers if data.workers == "auto" else data.workers
    crowded = service is None and needed > (machines.spare_cores if machines.spare_cores is not None else MOST_AUTO_WORKERS)
    return Feed(
        where="beside" if service is None else "away",
        tokens_per_s=tokens_per_s,
        rate=rate,
        alone=staff(0),
        asked=staff(asked),
        needed=staff(needed),
        crowded=crowded,
    )
