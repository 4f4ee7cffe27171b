"""Counts GPU-hours and cost of attempts: of a job, and of a team in a month. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tuneyard.api import Attempt
from tuneyard.api.team import TeamStatus
from tuneyard.federation import held_hours, same_month
from tuneyard_operators.hub.clock import at, written


def counted(before: TeamStatus, attempts: Iterable[Attempt], now: datetime) -> TeamStatus:
    """A team's usage, with the GPU-hours of its attempts since the last count added. A new month starts at zero."""
    after = before.model_copy(deep=True)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since = at(before.usage_at) if before.usage_at else None
    if since is None or not same_month(before.usage_at, now):
        after.gpu_hours_used, after.cost = 0.0, 0.0
        since = month if since is not None else None
    for attempt in attempts:
        hours = held_hours(attempt, since or month, now)
        if hours and attempt.placement is not None:
            after.gpu_hours_used += hours * attempt.placement.gpus
            after.cost += hours * attempt.placement.gpus * attempt.placement.price_per_gpu_hour
    after.gpu_hours_used, after.cost = round(after.gpu_hours_used, 4), round(after.cost, 4)
    after.usage_at = written(now)
    return after


def usage_of(attempts: Iterable[Attempt], now: datetime) -> tuple[float, float]:
    """GPU-hours and cost of a job so far."""
    gpu_hours = cost = 0.0
    for attempt in attempts:
        if attempt.placement is not None and attempt.placed_at is not None:
            held = held_hours(attempt, at(attempt.placed_at), now) * attempt.placement.gpus
            gpu_hours += held
            cost += held * attempt.placement.price_per_gpu_hour
    return round(gpu_hours, 4), round(cost, 4)
