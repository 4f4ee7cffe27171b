"""Due times of a Schedule that are over: a clock that is set back passes them a second time, and starts none of them.

They are spans, since a clock may also have been ahead: after a year in which no run was due, the times of that year are still to come.
A status keeps few spans. Where there is one too many, two of them become one: the times between them, which were missed, count as over.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from tuneyard.api.moments import moment_of, written
from tuneyard.api.schedule_status import MOST_SPANS, DueSpan


def is_passed(spans: Sequence[DueSpan], due: datetime) -> bool:
    return any(moment_of(span.first) <= due <= moment_of(span.last) for span in spans)


def with_passed(spans: Sequence[DueSpan], follows: str | None, due: datetime) -> list[DueSpan]:
    """The spans with `due`. `follows`: the due time before it, where no run was missed between them; None: one was."""
    at = written(due)
    before = next((span for span in spans if follows is not None and span.last == follows), None)
    newest = DueSpan(first=before.first if before is not None else at, last=at)
    found = sorted([*(span for span in spans if span is not before), newest], key=lambda span: moment_of(span.first))
    while len(found) > MOST_SPANS:
        found = _one_fewer(found, due)
    return found


def _one_fewer(spans: Sequence[DueSpan], due: datetime) -> list[DueSpan]:
    """The spans, in the order of their times, with two neighbours as one: the two earliest, so that no time after `due` counts as over.
    Where `due` is the earliest itself, because the clock was far ahead: two later ones, with the shortest time between them."""
    gaps = [moment_of(after.first) - moment_of(span.last) for span, after in pairwise(spans)]
    at = 0 if moment_of(spans[1].first) <= due else min(range(1, len(gaps)), key=gaps.__getitem__)
    first, second = spans[at : at + 2]
    return [*spans[:at], DueSpan(first=first.first, last=max(first.last, second.last, key=moment_of)), *spans[at + 2 :]]
