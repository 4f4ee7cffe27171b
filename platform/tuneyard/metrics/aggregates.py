"""Figures of a task from the values of its rows: a mean, or a ratio of two sums, with an interval at 95 % confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from tuneyard.metrics.metric import Figure, Interval, Metric, Need, Row, Totals

Z = 1.959964
"""97.5th percentile of the standard normal distribution."""
LEAST_ROWS = 30
"""The fewest rows with an interval. The mean of fewer rows is too far from normally distributed."""


def mean(
    name: str,
    *,
    title: str,
    description: str,
    per_row: Callable[[Row], float],
    needs: Sequence[Need] = ("output", "reference"),
    higher_is_better: bool = True,
    values: Literal["any", "zero or one"] = "any",
    format: str = "",
    settings: tuple[str, ...] = (),
    of_whole_output: bool = False,
) -> Metric:
    """A metric that is the mean of one number per row. `values` "zero or one": the mean is a share, with Wilson's interval. `settings`,
    `of_whole_output`: as in `Metric`."""

    def count(rows: Sequence[Row]) -> Totals:
        found = [row.values[name] for row in rows if name in row.values]
        return {"rows": len(found), "total": math.fsum(found), "squares": math.fsum(value * value for value in found)}

    figure = Figure(
        name=name,
        title=title,
        description=description,
        higher_is_better=higher_is_better,
        value=lambda sums: sums["total"] / sums["rows"],
        interval=share_interval if values == "zero or one" else mean_interval,
        format=format,
    )
    return Metric(
        name=name,
        description=description,
        needs=frozenset(needs),
        count=count,
        figures=(figure,),
        per_row=per_row,
        settings=settings,
        of_whole_output=of_whole_output,
    )


def closest(compare: Callable[[str, str], float], best: Callable[[Sequence[float]], float] = max) -> Callable[[Row], float]:
    """`compare(output, reference)` of a row, for the reference that is closest to the output."""

    def per_row(row: Row) -> float:
        return best([compare(row.output or "", reference) for reference in row.references])

    return per_row


def share_interval(sums: Totals) -> Interval | None:
    """Wilson's score interval of a proportion (Wilson 1927), which holds for few rows too, and for shares of 0 and 1.

    `sums`: rows, total (of values 0 or 1).
    """
    rows, share = sums["rows"], sums["total"] / sums["rows"]
    spread = Z * math.sqrt(share * (1 - share) / rows + (Z / (2 * rows)) ** 2)
    middle, scale = share + Z * Z / (2 * rows), 1 + Z * Z / rows
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def mean_interval(sums: Totals) -> Interval | None:
    """The mean plus and minus 1.96 standard errors. None for fewer than 30 rows. `sums`: rows, total, squares."""
    rows, middle = sums["rows"], sums["total"] / sums["rows"]
    if rows < LEAST_ROWS:
        return None
    spread = Z * math.sqrt(max(0.0, sums["squares"] / rows - middle * middle) / (rows - 1))
    return middle - spread, middle + spread


def ratio_totals(above: Sequence[float], below: Sequence[float]) -> Totals:
    """Sums for `ratio` and `ratio_interval`. `above` and `below` have one number per row."""
    return {
        "rows": len(above),
        "above": math.fsum(above),
        "below": math.fsum(below),
        "above_above": math.fsum(a * a for a in above),
        "above_below": math.fsum(a * b for a, b in zip(above, below, strict=True)),
        "below_below": math.fsum(b * b for b in below),
    }


def ratio(sums: Totals) -> float:
    """The sum of `above` over the sum of `below`: a weighted mean."""
    return sums["above"] / sums["below"]


def ratio_interval(sums: Totals) -> Interval | None:
    """The ratio plus and minus 1.96 standard errors (Cochran 1977, Sampling Techniques, section 2.11). None for fewer than 30 rows."""
    rows, middle = sums["rows"], ratio(sums)
    if rows < LEAST_ROWS:
        return None
    squares = sums["above_above"] - 2 * middle * sums["above_below"] + middle * middle * sums["below_below"]
    spread = Z * math.sqrt(max(0.0, squares) * rows / (rows - 1)) / sums["below"]
    return middle - spread, middle + spread
