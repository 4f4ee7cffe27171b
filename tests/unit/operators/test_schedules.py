"""Schedules on a whole hub in this process: the clock is handed in, and runs end as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.builders.schedules import MONDAY, TEMPLATE, at_hour
from tests.clusters.hub_in_memory import until
from tests.servers.memory_api import MemoryApi

from tuneyard.schedules import LastGood
from tuneyard_operators.hub import data_looks
from tuneyard_operators.hub.data_looks import DataLooks
from tuneyard_operators.hub.events import Events
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.name_nodes import NameNodes
from tuneyard_operators.hub.records import JobRecords
from tuneyard_operators.hub.schedules import Schedules
from tuneyard_operators.hub.webhooks import Webhooks
from tuneyard_operators.kube import JOBSPEC, SCHEDULE
from tuneyard_operators.logs.problems import Problem


class Bucket:
    """A storage: `files` exist; a look may hang or be refused."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.refusal = ""
        self.hangs = False
        self.looked: list[str] = []

    async def open_data(self, job: Any) -> Any:
        if self.hangs:
            await asyncio.sleep(3600)
        if self.refusal:
            raise Problem(400, self.refusal)
        self.folder = job.output
        return self

    async def is_there(self, name: str) -> bool:
        self.looked.append(f"{self.folder}/{name}")
        return f"{self.folder}/{name}" in self.files


class Week:
    """The controller of Schedules over an API server in memory, at the time `now`."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api
        self.api.created_at = "2026-11-22T12:00:00Z"
        self.now = MONDAY
        self.bucket = Bucket()

    async def apply(self, name: str = "nightly", **spec: Any) -> None:
        body = {"metadata": {"name": name}, "spec": {"cron": "0 2 * * *", "timeZone": "Europe/Amsterdam", "template": TEMPLATE, **spec}}
        await self.api.create(SCHEDULE, "maps", body)

    async def at(self, moment: datetime) -> None:
        """Let the hub look twice at a time: what it has started is seen, and looks in the background have ended."""
        self.now = moment
        rounds = self.rounds
        await until(lambda: self.rounds > rounds + 30, "the hub looks")

    @property
    def rounds(self) -> int:
        return self._rounds

    _rounds = 0

    def clock(self) -> datetime:
        self._rounds += 1
        return self.now

    async def end(self, name: str, phase: str = "Succeeded", **metrics: float) -> None:
        tasks = [{"name": "judge", "phase": phase, "metrics": metrics}]
        status = {"phase": phase, "tasks": tasks, "finishedAt": "2026-11-23T03:00:00Z", "output": f"s3://evals/{name}"}
        await self.api.patch(JOBSPEC, "maps", name, {"status": status}, subresource="status")

    @property
    def jobs(self) -> Mapping[Any, Any]:
        return self.api.objects.get("JobSpec", {})

    def names(self) -> list[str]:
        return sorted(name for _, name in self.jobs)

    def status(self, name: str = "nightly") -> Mapping[str, Any]:
        return self.api.objects["Schedule"]["maps", name].get("status") or {}

    def events(self) -> list[str]:
        return [item["reason"] for item in self.api.objects.get("Event", {}).values()]


@asynccontextmanager
async def hub_of_schedules(api: MemoryApi | None = None, **webhooks: Any) -> AsyncIterator[Week]:
    week = Week(api or MemoryApi())
    jobs = JobSpecs(week.api, JobRecords(), on_change=lambda *_: None, on_news=lambda _: None)  # type: ignore[arg-type]
    events = Events(week.api)  # type: ignore[arg-type]
    hooks = Webhooks(week.api, webhooks.pop("hosts", ["127.0.0.1"]), **webhooks)  # type: ignore[arg-type]
    looks = DataLooks(week.bucket, NameNodes(()), every_s=0.0)
    schedules = Schedules(week.api, jobs, events, looks, hooks, clock=week.clock, every_s=0.001)  # type: ignore[arg-type]
    work = [asyncio.create_task(each.run()) for each in (jobs, schedules, events)]
    try:
        await until(lambda: jobs.synced.is_set(), "the hub has listed everything")
        yield week
    finally:
        for task in work:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def test_a_week_of_nights_with_dates_in_paths() -> None:
    async def week_() -> None:
        async with hub_of_schedules() as week:
            spec = {"tasks": [{"name": "judge", "process": {"command": ["score", "s3://logs/date={{ run.date - 1d }}"]}}]}
            await week.apply(template={"spec": {**spec, "storage": {"output": "s3://evals/{{ run.date | %Y }}"}}}, history=3)
            for day in range(7):
                await week.at(at_hour(24 * day + 1.01))  # two o'clock in Amsterdam
                (going,) = week.status()["active"]
                await week.end(going)
                await week.at(at_hour(24 * day + 2))
            runs = week.status()["runs"]
            assert [run["verdict"] for run in runs] == ["good"] * 7
            assert len(week.names()) == 3, "older JobSpecs are removed"
            last = week.jobs["maps", week.names()[-1]]["spec"]
            assert last["tasks"][0]["process"]["command"] == ["score", "s3://logs/date=2026-11-28"]
            assert last["storage"]["output"] == f"s3://evals/2026/{week.names()[-1]}"

    asyncio.run(week_())


def test_a_hub_that_is_killed_at_any_write_starts_no_run_twice() -> None:
    async def story() -> None:
        api = MemoryApi()
        made: list[str] = []
        for kill_at in range(1, 9):
            writes = 0

            def refuse(verb: str, kind: Any, name: str, kill_at: int = kill_at) -> None:
                nonlocal writes
                writes += 1
                if writes > kill_at:
                    raise asyncio.CancelledError
                if (verb, kind.name) == ("create", "JobSpec"):
                    made.append(name)

            async with hub_of_schedules(api) as week:
                if kill_at == 1:
                    await week.apply(backfill={"from": "2026-11-10", "to": "2026-11-16", "parallel": 3}, history=100)
                api.refuse = refuse
                week.now = at_hour(1.5)
                await asyncio.sleep(0.15)
            api.refuse = lambda *_: None
            for _, name in list(week.jobs):
                await week.end(name)
        async with hub_of_schedules(api) as week:
            for _ in range(6):
                await week.at(at_hour(1.5))
                for _, name in list(week.jobs):
                    await week.end(name)
            await week.at(at_hour(1.6))
            runs = week.status()["runs"]
            assert len(runs) == len(week.names()) == 8
            assert {run["verdict"] for run in runs} == {"good"}
            assert week.status()["backfill"]["started"] == 7
        created = [name for name in made if name in week.names()]
        assert len(set(created)) == len(set(made))

    asyncio.run(story())


def test_a_regression_is_told_the_night_it_appears() -> None:
    async def story() -> None:
        async with hub_of_schedules() as week:
            await week.apply(regression={"exact_match": {"worseBy": "2%"}})
            for day, value in enumerate((0.80, 0.79, 0.60, 0.61, 0.80)):
                await week.at(at_hour(24 * day + 1.01))
                (going,) = week.status()["active"]
                await week.end(going, exact_match=value, **{"exact_match.low": value - 0.02, "exact_match.high": value + 0.02})
                await week.at(at_hour(24 * day + 2))
            runs = week.status()["runs"]
            assert [run["verdict"] for run in runs] == ["good", "good", "regressed", "regressed", "good"]
            assert runs[3]["comparedWith"] == runs[1]["name"], "a bad run is nobody's baseline"
            (condition,) = week.status()["conditions"]
            assert (condition["type"], condition["status"]) == ("Regressed", "False")
            await until(lambda: len(week.events()) == 3, "events are posted")
            assert week.events() == ["Regressed", "Regressed", "Recovered"]

    asyncio.run(story())


def test_a_run_waits_for_its_partition_and_starts_when_it_is_there() -> None:
    async def story() -> None:
        async with hub_of_schedules() as week:
            await week.apply(waitFor={"path": "s3://logs/date={{ run.date }}/_SUCCESS", "timeout": "4h"})
            await week.at(at_hour(1.01))
            assert week.names() == []
            assert week.status()["waiting"][0]["path"] == "s3://logs/date=2026-11-23/_SUCCESS"
            week.bucket.files.add("s3://logs/date=2026-11-23/_SUCCESS")
            await week.at(at_hour(2))
            assert len(week.names()) == 1
            assert [each["reason"] for each in week.status()["conditions"]] == ["Arrived"]

    asyncio.run(story())


def test_a_partition_that_never_comes_makes_the_run_missed() -> None:
    async def story() -> None:
        async with hub_of_schedules() as week:
            await week.apply(waitFor={"path": "s3://logs/date={{ run.date }}", "timeout": "4h"})
            week.bucket.refusal = "the hub has no keys for it"
            await week.at(at_hour(1.01))
            await week.at(at_hour(5.5))
            (run,) = week.status()["runs"]
            assert (run["verdict"], week.names()) == ("missed", [])
            assert "the hub has no keys for it" in run["message"]
            (condition,) = week.status()["conditions"]
            assert (condition["status"], condition["reason"]) == ("False", "Missed")
            await until(week.events, "an event is posted")
            assert week.events() == ["RunMissed"]

    asyncio.run(story())


def test_a_wrong_expression_stalls_its_schedule_alone() -> None:
    async def story() -> None:
        async with hub_of_schedules() as week:
            await week.apply("good")
            await week.apply("wrong", template={"spec": {"tasks": [{"name": "a", "process": {"command": ["{{ run.dat }}"]}}]}})
            await week.at(at_hour(1.01))
            assert len(week.names()) == 1
            (condition,) = week.status("wrong")["conditions"]
            assert condition["type"] == "Stalled"
            assert "spec.template.spec.tasks.0.process.command.0: {{ run.dat }} is not an expression" in condition["message"]

    asyncio.run(story())


def test_dates_are_backfilled_a_few_at_a_time_beside_the_nightly_run() -> None:
    async def story() -> None:
        async with hub_of_schedules() as week:
            spec = {"tasks": [{"name": "a", "process": {"command": ["{{ run.date }}"]}}]}
            await week.apply(template={"spec": spec}, backfill={"from": "2026-11-01", "to": "2026-11-05", "parallel": 2})
            dates: list[str] = []
            for hour in range(6):
                await week.at(at_hour(1.01 + hour / 10))
                going = week.status()["active"]
                assert len(going) <= (3 if hour == 0 else 2)
                for name in going:
                    dates.append(week.jobs["maps", name]["spec"]["tasks"][0]["process"]["command"][0])
                    await week.end(name)
            assert sorted(dates) == [*(f"2026-11-0{day}" for day in range(1, 6)), "2026-11-23"]
            assert week.status()["backfill"] == {
                "key": week.status()["backfill"]["key"],
                "last": "2026-11-05T01:00:00Z",
                "started": 5,
                "of": 5,
                "done": True,
                "message": "",
            }

    asyncio.run(story())


def test_one_more_run_now_and_never_twice() -> None:
    async def story() -> None:
        async with hub_of_schedules() as week:
            await week.apply(suspend=True, runNow="2026-11-23T10:15:00Z")
            await week.at(at_hour(10))
            assert week.names() == [], "its time has not come"
            await week.at(at_hour(11))
            await week.at(at_hour(12))
            (name,) = week.names()
            await week.end(name)
            await week.at(at_hour(12) + timedelta(minutes=1))
            assert [(run["kind"], run["verdict"]) for run in week.status()["runs"]] == [("now", "good")]

    asyncio.run(story())


def test_a_storage_that_hangs_delays_no_other_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_looks, "_LONGEST_S", 0.05)

    async def story() -> None:
        async with hub_of_schedules() as week:
            week.bucket.hangs = True
            await week.apply("waits", waitFor={"path": "s3://logs/{{ run.date }}"})
            await week.apply("runs")
            await week.at(at_hour(1.01))
            assert [name.rpartition("-")[0] for name in week.names()] == ["runs"]
            await asyncio.sleep(0.2)  # the first look is given up meanwhile
            await week.at(at_hour(6))
            (run,) = week.status("waits")["runs"]
            assert run["verdict"] == "missed"
            assert "does not answer" in run["message"]

    asyncio.run(story())


def test_a_quiet_schedule_is_not_looked_at_until_its_next_run() -> None:
    async def story() -> None:
        async with hub_of_schedules() as week:
            await week.apply()
            await week.at(at_hour(0.5))
            week.api.requests.clear()
            await week.at(at_hour(0.9))
            assert week.api.requests == []
            await week.at(at_hour(1.01))
            assert len(week.names()) == 1

    asyncio.run(story())


def test_a_run_is_told_of_the_last_good_one_whose_rows_it_compares_and_a_drop_is_accepted() -> None:
    async def story() -> None:
        async with hub_of_schedules() as week:
            await week.apply(regression={"exact_match": {"worseBy": "2%"}})
            await week.at(at_hour(1.01))
            (first,) = week.names()
            await week.end(first, **{"exact_match": 0.70, "exact_match.low": 0.67, "exact_match.high": 0.73})
            await week.at(at_hour(25.01))
            (second,) = set(week.names()) - {first}
            assert LastGood.of(week.jobs["maps", second]["metadata"]["annotations"]) == LastGood(first, f"s3://evals/{first}")
            changes = {"change": -0.03, "change.low": -0.045, "change.high": -0.015, "change.rows": 1000}
            numbers = {f"exact_match.{name}": value for name, value in changes.items()}
            await week.end(second, **{"exact_match": 0.67, "exact_match.low": 0.64, "exact_match.high": 0.70, **numbers})
            await week.at(at_hour(26))
            run = week.status()["runs"][-1]
            assert (run["verdict"], run["rowsComparedWith"], run["output"]) == ("regressed", first, f"s3://evals/{second}")
            await week.api.patch(SCHEDULE, "maps", "nightly", {"spec": {"accept": second}})
            await week.at(at_hour(27))
            assert week.status()["runs"][-1]["verdict"] == "accepted"
            assert week.events()[-2:] == ["Regressed", "Accepted"]

    asyncio.run(story())


def test_a_job_that_only_has_the_label_is_no_run() -> None:
    async def story() -> None:
        async with hub_of_schedules() as week:
            await week.apply(concurrency="replace", history=0)
            labels = {"tuneyard.dev/schedule": "nightly"}
            await week.api.create(JOBSPEC, "maps", {"metadata": {"name": "mine", "labels": labels}, "spec": TEMPLATE["spec"]})
            await week.at(at_hour(1.01))
            assert "cancelled" not in week.jobs["maps", "mine"]["spec"]
            await week.end("mine")
            await week.at(at_hour(2))
            assert "mine" in week.names()
            assert len(week.status()["runs"]) == 1

    asyncio.run(story())
