"""Predicted starts are worked out in a process of their own, which is replaced when it dies."""

from __future__ import annotations

import asyncio
import multiprocessing

from tests.worlds import HOUR, ask, member, running

from tuneyard.federation import POLICIES, World, forecast, scheduler_of
from tuneyard_operators.hub.forecasts import Forecasts, Starts


def test_all_who_wait_are_told_also_after_the_process_has_died() -> None:
    asks = tuple(ask(f"a{number}", 8, created=number) for number in range(5))
    now = 10_000.0
    world = World(members=(member("east", 0, 0),), asks=asks, running=(running("r", {"east-0": 8, "east-1": 8}, ends=now + HOUR),))
    scheduler = scheduler_of(world, "tuneyard", now)
    told: list[Starts] = []

    async def hear() -> None:
        forecasts = Forecasts(lambda: scheduler, told.append, least_pause_s=0.05)
        task = asyncio.create_task(forecasts.run())
        await until(1)
        for child in multiprocessing.active_children():
            child.kill()
        seen = len(told)
        await until(seen + 2)
        task.cancel()

    async def until(count: int) -> None:
        while len(told) < count:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(hear(), 120))
    expected = forecast(world, POLICIES["tuneyard"], now)
    assert set(told[0]) == set(told[-1]) == set(expected) == {(each.job, "train") for each in asks}
