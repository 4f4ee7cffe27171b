"""Teams of a scheduler from Team objects. The hub, dry runs and simulations read Team objects by the same rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from tuneyard.api import Team as TeamResource
from tuneyard.api.moments import moment_of
from tuneyard.api.team import TeamGoal, TeamStatus
from tuneyard.api.wire import read
from tuneyard.catalog import canonical_sku
from tuneyard.federation.world import Team

Amount = TypeVar("Amount", int, float)


def read_team(item: Mapping[str, Any], now: datetime) -> tuple[Team, str]:
    """A team from its object, and why its spec cannot be read. Such a team is closed. Empty reason: the spec was read."""
    status = read(TeamStatus, item.get("status")).value
    try:
        team = TeamResource.model_validate({key: item[key] for key in ("metadata", "spec") if item.get(key) is not None}, extra="ignore")
    except ValidationError as error:
        name, wrong = item["metadata"]["name"], error.errors(include_input=False)[0]
        reason = f"its spec cannot be read: {'.'.join(map(str, wrong['loc']))[:200]}: {wrong['msg'][:500]}"
        return Team(name=name, closed=f"Team {name}: {reason}"), reason
    return team_of(team.model_copy(update={"status": status}), now), ""


def team_of(team: TeamResource, now: datetime) -> Team:
    """A team from its object. It is closed where its budget of the month is spent."""
    spec, status = team.spec, team.status
    used = status.gpu_hours_used if status is not None and same_month(status.usage_at, now) else 0.0
    name = team.metadata.name
    closed = ""
    if spec.gpu_hours is not None and used >= spec.gpu_hours:
        closed = f"the budget of team {name}, {spec.gpu_hours:g} GPU-hours a month, is spent: raise it, or wait for the next month"
    used_s = _by_kind(status.used_gpu_seconds) if status is not None else {}
    used_at = moment_of(status.usage_at).timestamp() if status is not None and status.usage_at else 0.0
    return rights_of(name, spec, used_s=used_s, used_at=used_at, closed=closed)


def rights_of(name: str, goal: TeamGoal, *, used_s: Mapping[str, float] | None = None, used_at: float = 0.0, closed: str = "") -> Team:
    """A team from its spec. `used_s`, `used_at`, `closed`: as in `Team`."""
    return Team(
        name=name,
        quota=_by_kind(goal.quota) or None,
        borrowing=_by_kind(goal.borrowing_limit),
        weight=goal.weight,
        cohort=goal.cohort,
        used_s=used_s or {},
        used_at=used_at,
        closed=closed,
    )


def unknown_team(name: str, known: Iterable[str]) -> Team:
    """A closed team in place of a team that a job names and that does not exist: none of its tasks start."""
    names = ", ".join(sorted(known)[:5])
    return Team(name=name, closed=f"there is no team {name}: create it, or name one of those there are ({names})")


def same_month(moment: str | None, now: datetime) -> bool:
    return moment is not None and moment[:7] == now.strftime("%Y-%m")


def _by_kind(amounts: Mapping[str, Amount]) -> dict[str, Amount]:
    """Amounts by the catalog's names of SKUs. Amounts under two names of one SKU are added."""
    found: dict[str, Amount] = {}
    for name, amount in amounts.items():
        kind = canonical_sku(name)
        found[kind] = found[kind] + amount if kind in found else amount
    return found
