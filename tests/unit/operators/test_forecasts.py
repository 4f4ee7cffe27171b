"""Predicted starts are worked out in a process of their own, which is replaced when it dies."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.builders.worlds import HOUR, ask, member, running

from tuneyard.federation import POLICIES, World, forecast, scheduler_of
from tuneyard_operators.forecast_process import Starts
from tuneyard_operators.hub.forecasts import Forecasts


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


def test_the_process_loads_no_client_of_api_servers() -> None:
    program = "import sys, tuneyard_operators.forecast_process; print(sorted({'kubernetes_asyncio', 'aiohttp'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


_HUB = """
import asyncio, multiprocessing
from tests.builders.worlds import ask, member, running
from tuneyard.federation import World, scheduler_of
from tuneyard_operators.hub.forecasts import Forecasts

async def hear():
    world = World(members=(member("east", 0),), asks=(ask("a", 8),), running=(running("r", {"east-0": 8}, ends=1e9),))
    scheduler = scheduler_of(world, "tuneyard", 0.0)
    tell = lambda _: print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    await Forecasts(lambda: scheduler, tell, least_pause_s=0.05).run()

if __name__ == "__main__":
    asyncio.run(hear())
"""


def test_a_hub_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "hub.py").write_text(_HUB)
    hub = subprocess.Popen(
        [sys.executable, str(tmp_path / "hub.py")], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    try:
        assert hub.stdout is not None
        child = int(hub.stdout.readline().split()[0])
        assert Path(f"/proc/{child}").exists()
    finally:
        hub.kill()
        hub.wait()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
