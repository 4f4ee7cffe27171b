"""A week of a nightly Schedule on a real API server: the clock is handed in, the hub is killed, and runs end as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.clusters.hubs import remove_all
from tests.testcluster import Hub

from tuneyard.schedules import next_after
from tuneyard_operators.hub.data_looks import DataLooks
from tuneyard_operators.hub.events import Events
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.name_nodes import NameNodes
from tuneyard_operators.hub.records import JobRecords
from tuneyard_operators.hub.schedules import Schedules
from tuneyard_operators.hub.webhooks import Webhooks
from tuneyard_operators.kube import JOBSPEC, SCHEDULE, Connection, from_kubeconfig

LINE, ZONE = "30 2 * * *", "Europe/Amsterdam"
GOAL: dict[str, Any] = {
    "cron": LINE,
    "timeZone": ZONE,
    "regression": {"exact_match": {"worseBy": "2%"}},
    "template": {"spec": {"tasks": [{"name": "judge", "process": {"command": ["score", "s3://logs/{{ run.date - 1d | %Y/%m/%d }}"]}}]}},
}


class Week:
    def __init__(self, api: Connection) -> None:
        self.api = api
        self.now = datetime.now(UTC)
        self.looked = 0

    def clock(self) -> datetime:
        self.looked += 1
        return self.now

    async def at(self, moment: datetime) -> None:
        """Let the hub look at a time, until it has nothing left to do."""
        self.now = moment
        version = ""
        for _ in range(200):
            looked = self.looked
            while self.looked < looked + 12:
                await asyncio.sleep(0.01)
            item = await self.api.get(SCHEDULE, "maps", "nightly")
            if item["metadata"]["resourceVersion"] == version and item.get("status"):
                return
            version = item["metadata"]["resourceVersion"]

    async def status(self) -> Mapping[str, Any]:
        return dict((await self.api.get(SCHEDULE, "maps", "nightly"))["status"])

    async def end(self, name: str, value: float) -> None:
        metrics = {"exact_match": value, "exact_match.low": value - 0.02, "exact_match.high": value + 0.02}
        status = {"phase": "Succeeded", "tasks": [{"name": "judge", "phase": "Succeeded", "metrics": metrics}]}
        await self.api.patch(JOBSPEC, "maps", name, {"status": status}, subresource="status")


@asynccontextmanager
async def controller(hub: Hub) -> AsyncIterator[Week]:
    """The controller of Schedules, killed at the end of the block."""
    api = await from_kubeconfig(str(hub.kubeconfig))
    week = Week(api)
    jobs = JobSpecs(api, JobRecords(), on_change=lambda *_: None, on_news=lambda _: None)
    events = Events(api)
    looks = DataLooks(None, NameNodes(()))  # type: ignore[arg-type]  # nothing waits for data
    schedules = Schedules(api, jobs, events, looks, Webhooks(api, []), clock=week.clock, every_s=0.01)
    work = [asyncio.create_task(each.run()) for each in (jobs, schedules, events)]
    try:
        await jobs.synced.wait()
        yield week
    finally:
        for task in work:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await api.close()


def test_a_week_with_kills_missed_and_backfilled_runs_and_a_regression(hub: Hub) -> None:
    hub.apply(
        {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": "nightly", "namespace": "maps"}, "spec": GOAL}
    )
    nights = [next_after(LINE, ZONE, datetime.now(UTC) + timedelta(minutes=5))]
    while len(nights) < 9:
        nights.append(next_after(LINE, ZONE, nights[-1]))

    async def night(week: Week, moment: datetime, value: float) -> None:
        await week.at(moment + timedelta(seconds=5))
        (going,) = (await week.status())["active"]
        await week.end(going, value)
        await week.at(moment + timedelta(hours=1))

    async def story() -> None:
        async with controller(hub) as week:
            await night(week, nights[0], 0.80)
        async with controller(hub) as week:  # the hub was killed
            await week.at(nights[1] + timedelta(seconds=1))
            (going,) = (await week.status())["active"]
            await week.at(nights[2] + timedelta(seconds=1))  # it goes on, so that this one is skipped
            await week.end(going, 0.81)
            await week.at(nights[2] + timedelta(hours=1))
        async with controller(hub) as week:  # away over three runs
            await night(week, nights[5], 0.79)
            await night(week, nights[6], 0.50)
            status = await week.status()
            assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Regressed", "True")]
            dates = {"from": nights[3].date().isoformat(), "to": nights[4].date().isoformat(), "parallel": 2}
            await week.api.patch(SCHEDULE, "maps", "nightly", {"spec": {"backfill": dates}})
            await week.at(nights[6] + timedelta(hours=2))
            for name in (await week.status())["active"]:
                await week.end(name, 0.80)
            await week.at(nights[6] + timedelta(hours=3))
            await night(week, nights[7], 0.80)
            status = await week.status()
            verdicts = {run["due"][:10] + run["kind"][:1]: run["verdict"] for run in status["runs"]}
            expected = ["good", "good", "skipped", "missed", "missed", "good", "regressed", "good"]
            assert [verdicts[f"{moment:%Y-%m-%d}s"] for moment in nights[:8]] == expected
            assert [verdicts[f"{moment:%Y-%m-%d}b"] for moment in nights[3:5]] == ["good", "good"]
            jobs = (await week.api.list(JOBSPEC, "maps"))["items"]
            assert len(jobs) == 7, "history"
            newest = max(jobs, key=lambda job: job["metadata"]["annotations"]["tuneyard.dev/due"])
            date = nights[7].date() - timedelta(days=1)
            assert newest["spec"]["tasks"][0]["process"]["command"] == ["score", f"s3://logs/{date:%Y/%m/%d}"]

    try:
        asyncio.run(story())
        said = hub.kubectl("get", "schedule", "nightly", "-n", "maps")
        assert said.splitlines()[0].split()[-2:] == ["REGRESSED", "AGE"]
        assert "False" in said
        reasons = hub.kubectl("get", "events", "-n", "maps", "-o", "jsonpath={.items[*].reason}").split()
        assert {"Regressed", "Recovered", "RunMissed"} <= set(reasons)
    finally:
        remove_all(hub, "schedules")
