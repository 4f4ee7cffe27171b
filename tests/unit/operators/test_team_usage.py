"""GPU-hours of teams and jobs, counted from attempts up to a moment that is written down, so that no restart counts anything twice."""

from __future__ import annotations

from datetime import UTC, datetime

from tuneyard.api import Attempt, PlacementStatus
from tuneyard.api.team import TeamStatus
from tuneyard_operators.hub.usage import counted, usage_of


def attempt(placed: str, ended: str | None = None, gpus: int = 8, price: float = 2.0) -> Attempt:
    placement = PlacementStatus(cluster="east", sku="h100-80gb", workers=gpus, gpus=gpus, price_per_gpu_hour=price)
    return Attempt(number=1, task="train", token=1, placement=placement, placed_at=placed, ended_at=ended)


def at(hour: int, day: int = 21) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)


def test_what_was_counted_is_not_counted_again() -> None:
    running = [attempt("2026-11-21T10:00:00Z")]
    first = counted(TeamStatus(), running, at(12))
    assert (first.gpu_hours_used, first.cost) == (16, 32)
    assert counted(first, running, at(12)).gpu_hours_used == 16
    assert counted(first, running, at(13)).gpu_hours_used == 24


def test_what_ended_in_between_is_counted_to_its_end() -> None:
    before = counted(TeamStatus(), [], at(10))
    assert counted(before, [attempt("2026-11-21T11:00:00Z", "2026-11-21T11:30:00Z")], at(12)).gpu_hours_used == 4


def test_a_month_begins_at_nothing() -> None:
    october = TeamStatus(gpu_hours_used=500, cost=900, usage_at="2026-10-31T23:00:00Z")
    fresh = counted(october, [attempt("2026-10-31T20:00:00Z")], datetime(2026, 11, 1, 2, tzinfo=UTC))
    assert (fresh.gpu_hours_used, fresh.cost) == (16, 32)


def test_a_job_pays_for_all_its_attempts() -> None:
    assert usage_of([attempt("2026-11-21T08:00:00Z", "2026-11-21T09:00:00Z"), attempt("2026-11-21T11:00:00Z", price=3)], at(12)) == (16, 40)
