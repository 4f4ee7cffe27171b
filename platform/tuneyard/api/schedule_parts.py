"""Groups of fields of a Schedule: the data that a run waits for, limits of metrics, notices, and runs on demand."""

from __future__ import annotations

from datetime import date
from typing import Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from tuneyard.api.base import Fields, ValueFrom
from tuneyard.api.quantities import Duration
from tuneyard.metrics import Figure

_DAY_PATTERN = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}$"
_PERCENT_PATTERN = r"^[0-9]{1,6}(\.[0-9]{1,6})?%$"
MOST_LIMITS = 32
Occasion = Literal["regressed", "recovered", "failed", "missed"]
FIGURE_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.@/()+-]{0,199}"


class WaitFor(Fields):
    """Data that must exist before a run starts."""

    path: str = Field(
        min_length=1,
        max_length=1024,
        description="URI of a file, or of a folder that must hold a file, such as s3://logs/date={{ run.date }}/_SUCCESS",
    )
    timeout: Duration = Field(default=14_400.0, description="a run that has waited for longer is missed")


class Limit(Fields):
    """Limits of one figure of the score tasks. A run that is beyond one of them has regressed."""

    worse_by: str | None = Field(
        default=None,
        pattern=_PERCENT_PATTERN,
        description="worse than in the last good run by more than this share of its value, such as 2%; default: no limit",
    )
    worse_by_absolute: float | None = Field(
        default=None, ge=0, description="worse than in the last good run by more than this, in its own unit; default: no limit"
    )
    below: float | None = Field(default=None, description="lower than this value; default: no limit")
    above: float | None = Field(default=None, description="higher than this value; default: no limit")
    better: Literal["higher", "lower"] | None = Field(
        default=None,
        description="which values are better; "
        "default: as docs/reference/metrics.md or ownMetrics of the template say, required for other figures",
    )

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if all(value is None for value in (self.worse_by, self.worse_by_absolute, self.below, self.above)):
            raise ValueError("give at least one of worseBy, worseByAbsolute, below and above")
        return self

    @property
    def share(self) -> float | None:
        """`worse_by` as a share: `2%` is 0.02."""
        return float(self.worse_by.removesuffix("%")) / 100 if self.worse_by is not None else None

    def directed(self, figure: Figure | None) -> Limit:
        """The same limit with the direction of its figure, unless it says which values are better itself."""
        if self.better is not None or figure is None:
            return self
        return self.model_copy(update={"better": "higher" if figure.higher_is_better else "lower"})


class Notify(Fields):
    """A webhook that is told about runs. One message per run and occasion."""

    webhook: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s]+$",
        max_length=2048,
        description="URL that takes a POST; exactly one of webhook and webhookFrom",
    )
    webhook_from: ValueFrom | None = Field(
        default=None, description="the Secret that holds the URL; exactly one of webhook and webhookFrom"
    )
    form: Literal["slack", "json"] = Field(default="json", description="slack: a message for Slack's incoming webhooks; json: all facts")
    on: list[Occasion] = Field(
        default_factory=lambda: [*get_args(Occasion)],
        max_length=4,
        description="occasions of a message; write the name of this field in quotes, since kubectl reads a bare on as true",
    )

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.webhook is None) == (self.webhook_from is None):
            raise ValueError("give exactly one of webhook and webhookFrom")
        return self


class Backfill(Fields):
    """Runs for the times of the cron line between two dates, which are started once, beside the runs that fall due."""

    first: str = Field(alias="from", pattern=_DAY_PATTERN, description="first date, such as 2026-11-01, in the Schedule's time zone")
    last: str = Field(alias="to", pattern=_DAY_PATTERN, description="last date; times that are still to come are left out")
    parallel: int = Field(default=1, ge=1, le=100, description="most runs of the backfill at a time")
    id: str = Field(default="", pattern=r"^[-A-Za-z0-9]*$", max_length=40, description="another value runs the same dates again")

    @field_validator("first", "last")
    @classmethod
    def _exists(cls, value: str) -> str:
        try:
            date.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value} is not a date: write it like 2026-11-22") from None
        return value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.last < self.first:
            raise ValueError(f"to {self.last} is before from {self.first}")
        return self
