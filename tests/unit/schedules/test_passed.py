"""Due times that are over, in few spans: none of them starts again, and none that is still to come is left out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.schedules import MONDAY, Nights, at_hour, nightly

from tuneyard.api.moments import moment_of, written
from tuneyard.api.schedule_status import MOST_SPANS, DueSpan
from tuneyard.schedules.passed import is_passed, with_passed

JUMPS = st.lists(st.one_of(st.just(1), st.integers(-60, 60), st.integers(-20_000, 20_000)), min_size=MOST_SPANS, max_size=90)


@settings(deadline=None, max_examples=60)
@given(jumps=JUMPS)
def test_a_time_that_is_over_stays_over_and_no_later_one_is_left_out(jumps: list[int]) -> None:
    """Runs of each hour, by a clock that jumps by hours."""
    spans: list[DueSpan] = []
    over: set[int] = set()
    hour, last = 1_000_000, None
    for jump in jumps:
        hour += jump
        if not is_passed(spans, at_hour(hour)):
            next_was_over = is_passed(spans, at_hour(hour + 1))
            spans = with_passed(spans, written(at_hour(last)) if last == hour - 1 else None, at_hour(hour))
            over.add(hour)
            assert len(spans) <= MOST_SPANS
            assert all(is_passed(spans, at_hour(each)) for each in over)
            assert is_passed(spans, at_hour(hour + 1)) == next_was_over
            assert not is_passed(spans, at_hour(max(over) + 1))
            assert not is_passed(spans, at_hour(min(over) - 1))
        last = hour


def hours_of(spans: Sequence[DueSpan]) -> list[tuple[int, int]]:
    return [(_hour(span.first), _hour(span.last)) for span in spans]


def _hour(moment: str) -> int:
    return int((moment_of(moment) - MONDAY) / timedelta(hours=1))


def spans_at(*hours: int) -> list[DueSpan]:
    return [DueSpan(first=written(at_hour(hour)), last=written(at_hour(hour))) for hour in hours]


def test_the_two_earliest_spans_become_one() -> None:
    recorded = spans_at(5, 2, *(10 * place for place in range(1, MOST_SPANS - 1)))
    found = hours_of(with_passed(recorded, None, at_hour(900)))
    assert (found[:2], found[-1], len(found)) == ([(2, 5), (10, 10)], (900, 900), MOST_SPANS)


def test_after_a_clock_that_was_far_ahead_no_time_up_to_its_first_run_is_left_out() -> None:
    ahead = spans_at(*(10_000 + 100 * place - 50 * (place == 7) for place in range(MOST_SPANS)))
    found = hours_of(with_passed(ahead, None, at_hour(3)))
    assert (found[:2], len(found)) == ([(3, 3), (10_000, 10_000)], MOST_SPANS)
    assert (10_600, 10_650) in found, "those with the shortest time between them"


@pytest.mark.parametrize("outages", [MOST_SPANS, MOST_SPANS + 5])
def test_a_clock_that_is_set_back_beyond_many_outages_repeats_no_run(outages: int) -> None:
    nights = Nights(nightly(cron="0 * * * *", concurrency="allow"))
    followed = [6 * outage + hour for outage in range(outages) for hour in (1, 2, 3)]
    for hour in [*followed, *range(6 * outages + 5)]:
        for start in nights.look(at_hour(hour)).start:
            nights.end(start.name)
    names = [start.name for start in nights.started]
    assert sorted(set(names)) == sorted(names)
    assert {start.due for start in nights.started} >= {at_hour(hour) for hour in [*followed, 6 * outages + 4]}
