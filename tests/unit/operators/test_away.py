"""How long a member counts as away: by its last heartbeat, and never by the hub's own absence."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import cast

import pytest
from tests.builders.attempts import after

from tuneyard_operators.hub import heartbeat
from tuneyard_operators.hub.heartbeat import Heartbeat, away_for_s
from tuneyard_operators.kube import ATTEMPT_REPORT, Cache, Connection, Unintelligible, Unreachable


def test_a_restart_of_the_hub_resets_nothing() -> None:
    assert away_for_s("2026-11-21T12:00:00Z", after(200), time.monotonic() - 60) == 200


def test_a_hub_that_was_away_itself_tries_before_it_gives_anything_up() -> None:
    assert away_for_s("2026-11-21T12:00:00Z", after(7200), None) == 0
    assert away_for_s("2026-11-21T12:00:00Z", after(7200), time.monotonic() - 3) < 120


def test_a_member_that_never_answered_is_away_since_it_was_first_tried() -> None:
    assert 30 <= away_for_s(None, after(0), time.monotonic() - 30) < 150


def test_a_member_that_the_hub_could_not_read_is_not_away_for_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_EVERY_S", 0.01)
    monkeypatch.setattr(heartbeat, "_OWN_LOOK_S", 0.0)
    away: list[float] = []

    class Member:
        """It answers twice, and then no more."""

        server = "https://east"

        async def raw(self, _path: str) -> None:
            away.append(beats.away_s(after(7200)))  # what a job that is reconciled meanwhile sees
            if len(away) > 2:
                raise Unreachable(0, "reset")

    reports = SimpleNamespace(kind=ATTEMPT_REPORT, error=Unintelligible(0, "no JSON"))
    member, caches = cast(Connection, Member()), [cast(Cache, reports)]
    beats = Heartbeat("east", member, caches, "2026-11-21T12:00:00Z", on_change=lambda: None)

    async def run() -> None:
        beating = asyncio.create_task(beats.run())
        while len(away) < 4:
            await asyncio.sleep(0.01)
        beating.cancel()

    asyncio.run(run())
    assert away[1:3] == [0.0, 0.0], "while it is asked again"
    assert 0 < away[3] < 60, "since it was read no more, and not since its last heartbeat two hours ago"
