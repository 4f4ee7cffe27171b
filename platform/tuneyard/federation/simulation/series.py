"""Waiting jobs and held GPUs over time: recorded at each change, read as averages over equal intervals."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """Averages over equal intervals that end at `until_s`: waiting jobs, GPUs that they ask for, and the held share of all GPUs."""

    until_s: Floats
    queued_jobs: Floats
    queued_gpus: Floats
    utilisation: Floats


@dataclass
class Series:
    """Step functions: each row holds from its time until the time of the next row."""

    at: list[float] = field(default_factory=list)
    queued_jobs: list[int] = field(default_factory=list)
    queued_gpus: list[int] = field(default_factory=list)
    held_gpus: list[int] = field(default_factory=list)

    def note(self, now: float, queued_jobs: int, queued_gpus: int, held_gpus: int) -> None:
        self.at.append(now)
        self.queued_jobs.append(queued_jobs)
        self.queued_gpus.append(queued_gpus)
        self.held_gpus.append(held_gpus)

    def samples(self, total_gpus: int, count: int = 500) -> Samples:
        """`count` averages between the first and the last row; empty where no time has passed."""
        if len(self.at) < 2 or self.at[-1] <= self.at[0]:
            none = np.zeros(0)
            return Samples(none, none, none, none)
        edges = np.linspace(self.at[0], self.at[-1], count + 1)
        return Samples(
            edges[1:],
            self._averages(self.queued_jobs, edges),
            self._averages(self.queued_gpus, edges),
            self._averages(self.held_gpus, edges) / total_gpus,
        )

    def _averages(self, values: list[int], edges: Floats) -> Floats:
        """Averages between edges, from differences of the integral, which is linear between rows."""
        at = np.asarray(self.at)
        integral = np.concatenate([[0.0], np.cumsum(np.diff(at) * np.asarray(values[:-1], np.float64))])
        found: Floats = np.diff(np.interp(edges, at, integral)) / np.diff(edges)
        return found
