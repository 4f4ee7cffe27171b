"""Predicts the start of each waiting task: runs a copy of the scheduler forward over predicted ends, in a separate process."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context

from tuneyard.federation import Scheduler
from tuneyard_operators.forecast_process import Starts, end_with, predict_starts

log = logging.getLogger(__name__)
_MOST_OF_A_CORE = 0.1


class Forecasts:
    """Calls `told` with predicted starts, again and again, on at most a tenth of a core. `scheduler` returns the present scheduler."""

    def __init__(self, scheduler: Callable[[], Scheduler], told: Callable[[Starts], None], least_pause_s: float = 3.0) -> None:
        self._scheduler = scheduler
        self._told = told
        self._least_pause_s = least_pause_s

    async def run(self) -> None:
        """Run until cancelled. A process that dies is replaced."""
        while True:
            pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with, initargs=(os.getpid(),))
            try:
                with suppress(BrokenProcessPool):
                    await self._run(pool)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
            log.warning("the process that predicts starts has died")
            await asyncio.sleep(self._least_pause_s)

    async def _run(self, pool: ProcessPoolExecutor) -> None:
        pause_s = self._least_pause_s
        while True:
            await asyncio.sleep(pause_s)
            scheduler, now = self._scheduler(), time.time()
            if not scheduler.waiting:
                self._told({})
                continue
            began = time.thread_time()
            used_s = shown_s = 0.0
            found: Starts = {}
            try:
                world, policy = scheduler.world(now), scheduler.policy
                shown_s = time.thread_time() - began
                found, used_s = await asyncio.get_running_loop().run_in_executor(pool, predict_starts, world, policy, now)
            except BrokenProcessPool:
                raise
            except Exception:  # a failed forecast leaves the tasks without predicted starts
                log.exception("starts cannot be predicted")
            self._told(found)
            pause_s = max(self._least_pause_s, (used_s + shown_s) / _MOST_OF_A_CORE)
