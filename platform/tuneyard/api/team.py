"""Team: the owner of quota."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from tuneyard.api.base import Fields, Resource


class TeamGoal(Fields):
    quota: dict[str, int] = Field(default_factory=dict, description="SKU -> GPUs this team is guaranteed")
    borrowing_limit: dict[str, int] = Field(default_factory=dict, description="SKU -> GPUs it may borrow from others; absent: no limit")
    cohort: str = Field(default="", description="its teams share the sum of their quotas; default: all that is free may be borrowed")
    weight: float = Field(default=1.0, gt=0, description="share of what is left over")
    gpu_hours: float | None = Field(default=None, ge=0, description="budget per month; jobs wait once it is spent")
    members: list[str] = Field(default_factory=list, description="users and groups that may submit")


class TeamStatus(Fields):
    model_config = ConfigDict(extra="ignore")

    in_use: dict[str, int] = Field(default_factory=dict)
    borrowed: dict[str, int] = Field(default_factory=dict)
    gpu_hours_used: float = Field(default=0.0, description="in the month of `usageAt` (UTC)")
    cost: float = Field(default=0.0, description="of the same")
    used_gpu_seconds: dict[str, float] = Field(default_factory=dict, description="SKU -> usage for fair share, decayed")
    usage_at: str | None = Field(default=None, description="up to when usage is counted")


class Team(Resource):
    """A team and its quota."""

    kind: Literal["Team"] = "Team"
    spec: TeamGoal
    status: TeamStatus | None = None
