"""Due times of a Schedule that are over: a clock that is set back passes them a second time, and starts none of them.

They are spans, since a clock may also have been ahead: after a year in which no run was due, the times of that year are still to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tuneyard.api.moments import moment_of, written
from tuneyard.api.schedule_status import MOST_SPANS, DueSpan


def is_passed(spans: Sequence[DueSpan], due: datetime) -> bool:
    return any(moment_of(span.first) <= due <= moment_of(span.last) for span in spans)


def with_passed(spans: Sequence[DueSpan], follows: str | None, due: datetime) -> list[DueSpan]:
    """The spans with `due`. `follows`: the due time before it, where no run was missed between them; None: one was."""
    at = written(due)
    before = next((span for span in spans if follows is not None and span.last == follows), None)
    others = [span for span in spans if span is not before]
    return [*others, DueSpan(first=before.first if before is not None else at, last=at)][-MOST_SPANS:]
