"""Team: the owner of quota."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tuneyard.api.base import Fields, Resource, StatusFields
from tuneyard.api.moments import Moment
from tuneyard.api.status import Condition

Gpus = Annotated[int, Field(ge=0)]


class TeamGoal(Fields):
    """Entitlements of the team."""

    quota: dict[str, Gpus] = Field(default_factory=dict, description="SKU -> GPUs this team is guaranteed")
    borrowing_limit: dict[str, Gpus] = Field(default_factory=dict, description="SKU -> GPUs it may borrow from others; absent: no limit")
    cohort: str = Field(default="", description="teams of a cohort share the sum of their quotas; default: all free GPUs may be borrowed")
    weight: float = Field(
        default=1.0,
        gt=1e-6,  # not ge: API servers cut the bound to 0 if the value is a whole number
        le=1e6,
        description="weight of the team's fair share",
    )
    gpu_hours: float | None = Field(
        default=None, ge=0, description="GPU-hours per calendar month (UTC); jobs wait once they are spent; default: no limit"
    )
    members: list[str] = Field(default_factory=list, description="users and groups of the team, for people; RBAC decides who may submit")


class TeamStatus(StatusFields):
    """Current and past use by the team."""

    in_use: dict[str, int] = Field(default_factory=dict, description="SKU -> GPUs that its attempts hold now")
    borrowed: dict[str, int] = Field(default_factory=dict, description="SKU -> GPUs above the team's quota")
    gpu_hours_used: float = Field(default=0.0, description="GPU-hours in the month of `usageAt` (UTC)")
    cost: float = Field(default=0.0, description="price of those GPU-hours, in the currency of the Clusters")
    used_gpu_seconds: dict[str, float] = Field(
        default_factory=dict, description="SKU -> GPU-seconds that count for fair share, halved every week"
    )
    usage_at: Moment | None = Field(default=None, description="moment up to which usage is counted (RFC 3339)")
    conditions: list[Condition] = Field(default_factory=list, description="`Stalled` if the hub cannot read the team, with the reason")


class Team(Resource):
    """A team and its quota."""

    kind: Literal["Team"] = Field(default="Team", description="always Team")
    spec: TeamGoal
    status: TeamStatus | None = Field(default=None, description="the hub's report; not written by hand")
