"""Whether the figures of a run have regressed: against the last good run, and against fixed limits.

A figure with a 95 % interval in both runs is an estimate from a sample of rows. Its difference counts only where it exceeds `_CERTAIN`
standard errors of the difference of two independent estimates (a one-sided z-test; the standard error of each is its half interval over
1.96). Of 20 equal runs, one or more raise an alarm with a probability of 20 * 0.00048 = 1 % at most, whatever `worseBy` says. Without
intervals, the difference itself counts.

Where a run has read the rows of the last good run, and they are the same, its figures hold the change over these rows. The interval of a
paired change is narrower, because most rows get the same answer in both runs. The same test is made with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuneyard.api.schedule_parts import Limit
from tuneyard.api.schedule_status import RunFigure, ScheduledRun

_CERTAIN = 3.3
_Z = 1.959964
"""97.5th percentile of the standard normal distribution: an interval at 95 % spans twice this many standard errors."""


@dataclass(frozen=True)
class Judgement:
    """`verdict`: good, regressed or unmeasured. `message`: the reasons; empty for good."""

    verdict: str
    message: str = ""
    compared_with: str = ""
    is_paired: bool = False
    """Whether at least one figure was compared over the same rows."""


def judge(
    limits: Mapping[str, Limit], figures: Sequence[RunFigure], baseline: ScheduledRun | None, *, is_paired: bool = False
) -> Judgement:
    """The judgement of a run that has succeeded. `limits`: with directions, as `ScheduleGoal.limits` has them.

    `baseline`: the last good run before it; None: it is the first. `is_paired`: changes in `figures` are against the baseline; otherwise
    they are not used.
    """
    wrong: list[str] = []
    missing: list[str] = []
    paired = False
    for name, limit in limits.items():
        own = [figure for figure in figures if figure.name == name]
        if not own:
            missing.append(name)
        for figure in own if is_paired else map(_unpaired, own):
            paired |= figure.change is not None
            wrong += _beyond(limit, figure, _same(figure, baseline.figures if baseline is not None else ()))
    compared = baseline.name if baseline is not None else ""
    if wrong:
        return Judgement("regressed", "; ".join(wrong), compared, paired)
    if missing:
        return Judgement("unmeasured", f"no task has the figure {', '.join(missing)}", compared, paired)
    return Judgement("good", compared_with=compared, is_paired=paired)


def _unpaired(figure: RunFigure) -> RunFigure:
    return figure.model_copy(update={"change": None})


def _same(figure: RunFigure, others: Iterable[RunFigure]) -> RunFigure | None:
    return next((other for other in others if (other.task, other.name) == (figure.task, figure.name)), None)


def _beyond(limit: Limit, now: RunFigure, before: RunFigure | None) -> list[str]:
    """The reasons why a figure has regressed."""
    what = f"{now.name} of {now.task} is {now.value:.4g}"
    found = []
    if limit.below is not None and now.value < limit.below:
        found.append(f"{what}, below {limit.below:g}")
    if limit.above is not None and now.value > limit.above:
        found.append(f"{what}, above {limit.above:g}")
    if before is None:
        return found
    change = now.value - before.value if now.change is None else now.change
    loss = -change if limit.better == "higher" else change
    if limit.better is None or loss <= 0 or not _is_certain(loss, before, now):
        return found
    what += f" over the same {now.change_rows:,} rows" if now.change is not None else ""
    share = loss / abs(before.value) if before.value else math.inf
    if limit.share is not None and share > limit.share:
        found.append(f"{what}, {share:.1%} worse than {before.value:.4g}; worseBy is {limit.worse_by}")
    elif limit.worse_by_absolute is not None and loss > limit.worse_by_absolute:
        found.append(f"{what}, {loss:.4g} worse than {before.value:.4g}; worseByAbsolute is {limit.worse_by_absolute:g}")
    return found


def _is_certain(loss: float, before: RunFigure, now: RunFigure) -> bool:
    """Whether a loss is more than noise. True where one of the figures has no interval."""
    if now.change is not None and now.change_low is not None and now.change_high is not None:
        return loss > _CERTAIN * (now.change_high - now.change_low) / (2 * _Z)
    errors = [_standard_error(before), _standard_error(now)]
    known = [error for error in errors if error is not None]
    return len(known) < len(errors) or loss > _CERTAIN * math.hypot(*known)


def _standard_error(figure: RunFigure) -> float | None:
    if figure.low is None or figure.high is None:
        return None
    return max(0.0, figure.high - figure.low) / (2 * _Z)
