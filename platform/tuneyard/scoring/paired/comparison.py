"""The result of a comparison of two score tasks, as report.json and `tuneyard compare -o json` hold it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tuneyard.metrics import Interval


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One figure of both tasks over `rows`, the rows that have it in both."""

    figure: str
    rows: int
    value: float
    """Of `task`."""
    against: float
    """Of the task that it is compared with."""
    difference: float
    """`value` - `against`."""
    interval: Interval | None
    """Of the difference, at 95 % confidence. None: fewer than 30 rows."""
    p_value: float
    """Probability of a difference at least as large if both models were equal."""
    real: bool | None
    """Whether the difference is real at 95 % confidence: p_value <= 0.05, and 0 outside of the interval. None: fewer than 30 rows."""
    better: bool | None
    """Whether `task` is better. None: the values are equal, or no direction is known."""
    wins: int
    """Rows in which `task` is better."""
    ties: int
    losses: int
    win_share: Interval | None
    """Of wins among `rows`, at 95 % confidence."""
    tie_share: Interval | None
    loss_share: Interval | None


@dataclass(frozen=True, kw_only=True)
class DifferingRow:
    """A row whose answers differ much by the metrics. Texts are None where the output does not hold them (`data.keep`)."""

    row: int
    prompt: Any
    reference: Any
    output: str | None
    against: str | None
    values: dict[str, float]
    """Figure -> value of this row in `task`."""
    values_against: dict[str, float]
    outcomes: dict[str, str]
    """Figure -> better, worse or equal: `task` in this row."""
    judged: str | None = None
    """The answer that `task` has judged, where both are judges of answers."""
    judged_against: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`task` compared with `against`."""

    task: str
    against: str
    rows: int
    """Rows that both tasks have."""
    errors: int
    """Rows with an error in `task` alone. Rows with an error are in no figure."""
    errors_against: int
    errors_both: int
    figures: list[Compared]
    better_rows: list[DifferingRow]
    """The rows in which `task` is better by most."""
    worse_rows: list[DifferingRow]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return asdict(self)
