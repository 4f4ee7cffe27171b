"""How many data workers the ranks need, from the share of the time that they wait."""

from __future__ import annotations

import pytest

from tuneyard.runtime.ingest.master import workers_needed


@pytest.mark.parametrize(
    ("running", "waiting", "needed"),
    [
        (1, 0.5, 2),  # rows come at half of the rate at which they are read
        (4, 0.2, 5),
        (4, 0.02, 5),  # a little is one more
        (3, 0.75, 12),
        (1, 1.0, 4),  # nothing has come yet: no guess beyond four times as many
    ],
)
def test_waiting_ranks_need_as_many_workers_as_make_rows_at_their_rate(running: int, waiting: float, needed: int) -> None:
    assert workers_needed(running, waiting) == needed
