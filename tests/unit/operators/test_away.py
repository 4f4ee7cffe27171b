"""How long a member counts as away: by its last heartbeat, and never by the hub's own absence."""

from __future__ import annotations

import time

from tests.builders.attempts import after

from tuneyard_operators.hub.heartbeat import away_for_s


def test_a_restart_of_the_hub_resets_nothing() -> None:
    assert away_for_s("2026-11-21T12:00:00Z", after(200), time.monotonic() - 60) == 200


def test_a_hub_that_was_away_itself_tries_before_it_gives_anything_up() -> None:
    assert away_for_s("2026-11-21T12:00:00Z", after(7200), None) == 0
    assert away_for_s("2026-11-21T12:00:00Z", after(7200), time.monotonic() - 3) < 120


def test_a_member_that_never_answered_is_away_since_it_was_first_tried() -> None:
    assert 30 <= away_for_s(None, after(0), time.monotonic() - 30) < 150
