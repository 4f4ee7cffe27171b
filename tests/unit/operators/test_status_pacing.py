"""How often statuses are written on which nothing hangs."""

from __future__ import annotations

import pytest

from tuneyard_operators.hub.write_pace import between_writes_s


@pytest.mark.parametrize("unfinished", [1, 99, 1_000, 50_000])
def test_progress_of_all_jobs_together_is_written_50_times_a_second_at_most(unfinished: int) -> None:
    assert unfinished / between_writes_s(unfinished, news=False, placed=False) <= 50


@pytest.mark.parametrize("unfinished", [1, 50_000])
def test_what_people_wait_for_is_told_at_once_however_many_jobs_there_are(unfinished: int) -> None:
    assert between_writes_s(unfinished, news=True, placed=False) == 2
    assert between_writes_s(unfinished, news=True, placed=True) == 2


def test_the_first_sight_of_a_rayjob_goes_with_what_follows_it() -> None:
    assert between_writes_s(1, news=False, placed=True) == 5
