"""How long asks wait for what is their team's own: the measure of a quota's guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tuneyard.federation.simulation.life import Life, Stay
from tuneyard.federation.world import Team

Floats = npt.NDArray[np.float64]
Stretch = tuple[float, float]
"""From when to when."""


def own_quota_waits(lives: Sequence[Life], teams: Sequence[Team], ended_s: float) -> Floats:
    """For each job of a team with quota: the longest stretch, in seconds, of its wait in which its smallest size would have fitted, on a
    SKU that it accepts, into the quota that its team did not use. A victim uses quota until it has gone. `ended_s`: when the simulation
    ended; jobs that have not started wait until then."""
    found: list[float] = []
    for team in teams:
        if team.quota is None:
            continue
        of_team = [life for life in lives if life.job.team == team.name]
        unused = {sku: _unused(of_team, sku, quota, ended_s) for sku, quota in team.quota.items()}
        found += [_longest_s(life, unused, ended_s) for life in of_team]
    return np.asarray(found)


def _unused(lives: Sequence[Life], sku: str, quota: int, ended_s: float) -> tuple[Floats, Floats]:
    """Times, and the quota that is unused from each of them on."""
    changes: dict[float, int] = {0.0: 0}
    for life in lives:
        for stay in _stays(life, ended_s):
            if stay.sku == sku:
                changes[stay.started] = changes.get(stay.started, 0) - stay.gpus
                changes[stay.ended] = changes.get(stay.ended, 0) + stay.gpus
    times = sorted(changes)
    return np.asarray(times), quota + np.cumsum([float(changes[at]) for at in times])


def _longest_s(life: Life, unused: Mapping[str, tuple[Floats, Floats]], ended_s: float) -> float:
    gpus = life.job.worlds[-1]
    longest_s = 0.0
    for began, ended in _waits(life, ended_s):
        for sku, (times, amounts) in unused.items():
            if life.job.skus and sku not in life.job.skus:
                continue
            first, last = int(np.searchsorted(times, began, "right")) - 1, int(np.searchsorted(times, ended, "left"))
            fits = amounts[first:last] >= gpus
            edges = np.concatenate([[began], times[first + 1 : last], [ended]])
            # Stretches of moments that all fit: from each change to fitting to the next change back.
            turns = np.flatnonzero(np.diff(np.concatenate([[False], fits, [False]]).astype(np.int8)))
            for begin, end in zip(turns[::2], turns[1::2], strict=True):
                longest_s = max(longest_s, float(edges[end] - edges[begin]))
    return longest_s


def _stays(life: Life, ended_s: float) -> Sequence[Stay]:
    """Its attempts, the running one until the simulation ended."""
    attempt = life.attempt
    return life.stays if attempt is None else [*life.stays, Stay(attempt.place.sku, attempt.place.workers, attempt.started, ended_s)]


def _waits(life: Life, ended_s: float) -> Iterator[Stretch]:
    """From submission to the first start, and from each stop to the next start. Nothing for a refused job."""
    began = life.job.submit_s
    for stay in _stays(life, ended_s):
        if stay.started > began:
            yield began, stay.started
        began = stay.ended
    if life.ended_at is None and not life.refused and began < ended_s:
        yield began, ended_s
