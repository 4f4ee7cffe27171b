"""The win rate of pairwise judging: a judge sees two answers to a row twice, in both orders (Zheng et al. 2023, MT-Bench, section 3.4).

Ties count half, as in the win rate of AlpacaEval and the Elo ratings of Chatbot Arena.
A row with two different verdicts is a tie, and counted as order-dependent. Two answers that are the same text are a tie without a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuneyard.metrics.judge import JUDGED
from tuneyard.metrics.metric import Figure, Interval, Metric, Row, Totals

_LEAST_ROWS = 30
_DRAWS, _SEED = 2000, 20041


@dataclass(frozen=True, slots=True)
class Preference:
    """Two verdicts on a pair of answers: 1 where the task's answer is better, 0.5 for a tie, 0 where the other one is.

    `longer`: characters of the task's answer minus those of the other.
    """

    shown_first: float
    """The verdict when the task's answer was shown first."""
    shown_second: float
    longer: int
    identical: bool = False
    """Whether no judge was asked: the two answers are the same text, a tie, or one of the texts holds no answer."""

    @property
    def order_dependent(self) -> bool:
        return self.shown_first != self.shown_second

    @property
    def value(self) -> float:
        return 0.5 if self.order_dependent else self.shown_first


def win_rate_metric() -> Metric:
    """Every score task with `judge.against` has it."""
    what = "share of rows whose answer a judge prefers to that of `judge.against` in both orders; ties count half"
    order_dependent = Figure(
        name="order_dependent",
        title="order-dependent rows",
        description="share of the pairs that the judge was asked about whose two verdicts differ with the order of the answers; they count "
        "as ties",
        higher_is_better=False,
        value=lambda sums: sums["order_dependent"] / max(1, sums["rows"] - sums.get("identical", 0)),
        of_all_rows=True,
    )
    win_rate = Figure(
        name="win_rate",
        title="win rate",
        description=f"{what}; interval by the bootstrap",
        higher_is_better=True,
        value=lambda sums: sums["total"] / sums["rows"],
        interval=_bootstrap,
    )
    return Metric(
        name="win_rate",
        description=f"{what}; every score task with `judge.against` has it",
        needs=frozenset({"preference"}),
        count=_totals,
        figures=(win_rate, JUDGED, order_dependent),
        per_row=lambda row: _of(row).value,
    )


def _of(row: Row) -> Preference:
    assert row.preference is not None
    return row.preference


def _totals(rows: Sequence[Row]) -> Totals:
    found = [_of(row) for row in rows]
    longer, shorter = ([each.value for each in found if each.longer * sign > 0] for sign in (1, -1))
    verdicts = [verdict for each in found if not each.identical for verdict in (each.shown_first, 1 - each.shown_second)]
    return {
        "rows": len(found),
        "total": sum(each.value for each in found),
        "wins": sum(each.value == 1 for each in found),
        "losses": sum(each.value == 0 for each in found),
        "identical": sum(each.identical for each in found),
        "order_dependent": sum(each.order_dependent for each in found),
        "first_preferred": sum(verdict == 1 for verdict in verdicts),
        "second_preferred": sum(verdict == 0 for verdict in verdicts),
        "longer_rows": len(longer),
        "longer_total": sum(longer),
        "shorter_rows": len(shorter),
        "shorter_total": sum(shorter),
    }


def _bootstrap(sums: Totals) -> Interval | None:
    """Percentiles of the win rate in 2,000 draws of the rows with replacement (Efron and Tibshirani 1993). None for fewer than 30 rows.

    A draw of rows is a draw of the numbers of wins, ties and losses from a multinomial distribution.
    """
    import numpy as np

    rows, wins, losses = (int(sums[name]) for name in ("rows", "wins", "losses"))
    if rows < _LEAST_ROWS:
        return None
    drawn = np.random.default_rng(_SEED).multinomial(rows, [wins / rows, losses / rows, (rows - wins - losses) / rows], _DRAWS)
    rates = 0.5 + (drawn[:, 0] - drawn[:, 1]) / (2 * rows)
    low, high = np.percentile(rates, [2.5, 97.5])
    return float(low), float(high)
