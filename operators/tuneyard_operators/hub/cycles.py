"""Runs the hub's scheduling cycles, one after another, while the hub is leader.

A change triggers a cycle: a new ask, free GPUs, another member or team, a forecast. Without a change, the scheduler names the time of the
next cycle (`Scheduler.again_at`). If a cycle fails because of one ask, that ask is set aside. After a failed cycle a new scheduler takes
over, built from JobSpecs, Clusters and Teams, as on a new leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from tuneyard.federation import Undecidable
from tuneyard_operators.forecast_process import Starts
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.members import Members
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.placements import Placements, job_key
from tuneyard_operators.hub.teams import Teams
from tuneyard_operators.kube import Key

log = logging.getLogger(__name__)
_BETWEEN_CYCLES_S = 0.1
_LONGEST_PAUSE_S = 30.0
_STUCK_AFTER_S = 120.0


class Cycles:
    """`look_at` queues a job to be reconciled; `sync_all` gives a new scheduler the allocations of all jobs."""

    def __init__(
        self,
        placements: Placements,
        jobs: JobSpecs,
        members: Members,
        teams: Teams,
        metrics: Metrics,
        *,
        look_at: Callable[[Key], None],
        sync_all: Callable[[], None],
    ) -> None:
        self._placements = placements
        self._jobs = jobs
        self._members = members
        self._teams = teams
        self._metrics = metrics
        self._look_at = look_at
        self._sync_all = sync_all
        self._due = asyncio.Event()
        self._alive = time.monotonic()

    @property
    def stuck(self) -> str:
        """Why the hub counts as stuck; empty if it does not."""
        idle = time.monotonic() - self._alive
        return f"no scheduling cycle for {idle:.0f} s" if idle > _STUCK_AFTER_S else ""

    def wake(self) -> None:
        """Trigger a cycle after a change."""
        self._due.set()

    def foresee(self, starts: Starts) -> None:
        """Take in a forecast."""
        if self._placements.foresee(starts):
            self.wake()

    async def run(self) -> None:
        """Go on until cancelled."""
        await self._jobs.synced.wait()
        pause_s = _BETWEEN_CYCLES_S
        while True:
            await self._until_due()
            try:
                self._cycle()
                self._alive, pause_s = time.monotonic(), _BETWEEN_CYCLES_S
            except Undecidable as error:
                log.exception("%s/%s is set aside", error.ask.job, error.ask.task)
                self._alive = time.monotonic()
                self._start_over()
                self._look_at(job_key(error.ask.job))
            except Exception:
                log.exception("a scheduling cycle failed")
                self._start_over()
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _until_due(self) -> None:
        soon = self._placements.scheduler.again_at - time.time() if self._placements.waiting else _LONGEST_PAUSE_S
        with contextlib.suppress(TimeoutError):
            # Not `wait_for`: before Python 3.12, it forgets a cancellation that comes together with the event.
            async with asyncio.timeout(min(max(soon, _BETWEEN_CYCLES_S), _LONGEST_PAUSE_S)):
                await self._due.wait()
        self._due.clear()

    def _cycle(self) -> None:
        # Every job must have been reconciled once: only then are all allocations and all waiting tasks known.
        if not (self._placements.waiting and self._members.synced and self._teams.synced):
            return
        if self._placements.supply.learn_skus(self._members.all()):  # asks include new SKUs once reconciled
            for key in self._placements.waiting:
                self._look_at(key)
            self.wake()
            return
        with self._metrics.cycle_s.time():
            news = self._placements.cycle(self._members.all(), self._members.away(), time.time())
        for key in news:
            self._look_at(key)
        if self._placements.unfinished:
            self.wake()

    def _start_over(self) -> None:
        try:
            self._placements.start_over(time.time())
        except Exception:
            log.exception("the new scheduler lacks some placements or asks")
        self._sync_all()
        self.wake()
