"""Run history of a hub: each attempt exactly once and usage as the statuses say, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.clusters.hub_history import (
    FINAL,
    Members,
    api_with_nodes,
    expected,
    fails,
    failures,
    is_over,
    lags,
    one_job,
    recorded,
    with_history,
    write_quickly,
)
from tests.clusters.hub_in_memory import JOBS, Scene, running_hub, until
from tests.clusters.hubs import jobspec
from tests.servers.installed import PostgresServer

from tuneyard.tracking import History
from tuneyard.tracking.hub_rows import JobRows
from tuneyard.tuning.passed_on import PAST_RUNS, unpacked
from tuneyard_operators.history import writer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    write_quickly(monkeypatch)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/history.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres"))


def test_a_job_on_a_hub_is_in_history_when_its_jobspec_is_gone(url: str) -> None:
    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url), api=api) as stage:
            members = asyncio.create_task(Members(api, fails=0.0).run())
            await stage.submit("leaf", team="maps")
            await until(lambda: is_over(api), "the job ends")
            await stage.delete("leaf")
            await stage.let_go("leaf")
            members.cancel()

        history = History.open(url)
        (job,) = history.jobs(team="maps")
        (attempt,) = history.attempts(job.id)
        shown = (job.name, job.namespace, job.status, job.origin, job.attempts, attempt["sku"], attempt["gpus"], attempt["cluster"])
        assert shown == ("leaf", "default", "succeeded", "hub", 1, "h100-80gb", 8, "east")
        assert attempt["scores"] == {"tokens_per_s": 1000.0, "rouge_l": 0.25}
        assert attempt["result"]["engine"] == "vllm"
        assert history.series(attempt["id"])[-1]["step"] == 4
        assert job.gpu_hours == pytest.approx(expected(api).gpu_hours, abs=1e-3)
        assert job.cost == pytest.approx(2.5 * job.gpu_hours)
        assert history.detail(job)["spec"]["spec"]["tasks"][0]["name"] == "train"

    asyncio.run(scene())


def test_a_search_begins_with_the_runs_of_all_teams_and_its_trials_are_runs_for_the_next_one(tmp_path: Path) -> None:
    """Three jobs of three teams: a training run, and two searches."""
    url = f"sqlite:///{tmp_path}/history.db"
    settings = {"params_b": 1.5, "gpus": 8, "framework": "tuneyard", "micro_batch": 1}
    trial = {"number": 2, "settings": {"micro_batch": 4}, "status": "succeeded", "tokens_per_s_per_gpu": 200.0}
    learned = {"settings": settings, "trials": [trial]}

    async def ended(stage: Scene, name: str, **state: Any) -> list[dict[str, Any]]:
        """Run the job's first attempt to its end. Returns the runs that it was given."""
        attempt = await stage.started(name)
        spec = stage.api.objects["RayJob"][JOBS, attempt]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
        env = {each["name"]: each.get("value", "") for each in spec["containers"][0]["env"]}
        workers = stage.api.objects["RayJob"][JOBS, attempt]["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]
        assert PAST_RUNS not in {each["name"] for each in workers["containers"][0]["env"]}
        await stage.begin(attempt)
        await stage.report(attempt, phase="Succeeded", progress={"step": 4, "of": 4}, **state)
        await until(lambda: is_recorded(url, name), f"{name} is on record")
        return unpacked(env[PAST_RUNS]) if PAST_RUNS in env else []

    async def scene() -> None:
        api = await api_with_nodes(6)
        async with running_hub(settings=with_history(url), api=api) as stage:
            await stage.submit("secret-name", team="maps")
            assert await ended(stage, "secret-name", settings=settings, metrics={"tokens_per_s": 800.0}) == []

            search = {"name": "search", "tune": {"task": "train", "space": {"batch.micro": [1, 4]}}}
            tasks = [*jobspec("x")["spec"]["tasks"], search]
            await stage.submit("first", team="ads", tasks=tasks)
            given = await ended(stage, "first", metrics={"gain": 0.1, "trials": [{"number": 2}], "best": {}, "learned": learned})
            assert [(run["settings"], run["result"]["tokens_per_s_per_gpu"]) for run in given] == [(settings, 100.0)]
            assert "secret-name" not in json.dumps(given)

            await stage.submit("second", team="rides", tasks=tasks)
            given = await ended(stage, "second")
            assert {run["settings"]["micro_batch"]: run["result"]["tokens_per_s_per_gpu"] for run in given} == {1: 100.0, 4: 200.0}

    asyncio.run(scene())


def is_recorded(url: str, name: str) -> bool:
    """Whether history has an ended attempt of a job."""
    history = History.open(url)
    try:
        return any(attempt["ended_at"] for job in history.jobs() if job.name == name for attempt in history.attempts(job.id))
    finally:
        history.close()


# --- the hub and the database are killed


async def run_through_kills(url: str, server: PostgresServer | None, *, jobs: int, hub_kills: int, database_kills: int) -> None:
    """Jobs by chance on a hub that is killed again and again, over a database that is too; some are deleted when they have ended."""
    api, chance = await api_with_nodes(50), random.Random(11)
    members = asyncio.create_task(Members(api, random.Random(5)).run())
    left = list(range(jobs))
    doomed = sorted(chance.sample(range(hub_kills), database_kills))
    for life in range(hub_kills + 1):
        async with running_hub(settings=with_history(url), api=api) as stage:
            for _ in range(min(len(left), -(-jobs // hub_kills))):
                await _submit(stage, left.pop(), chance)
            if life < hub_kills:
                await asyncio.sleep(chance.uniform(0.1, 0.6))
                if server is not None and life in doomed:
                    server.kill()
                    await asyncio.sleep(chance.uniform(0.1, 0.5))
                    await _delete_some(stage, chance)
                    await asyncio.to_thread(server.start)
                await _delete_some(stage, chance)
            else:
                await until(lambda: is_over(api), "all jobs end", 240)
                await until(lambda: not lags(stage), "history has it all", 120)
    members.cancel()
    with suppress(asyncio.CancelledError):
        await members
    found, wanted = await asyncio.to_thread(recorded, url), expected(api)
    assert len(found.jobs) == jobs
    assert found.attempts == wanted.attempts
    assert {key: status for key, status in found.jobs.items() if status not in FINAL} == {}
    assert found.usages == len(wanted.attempts)
    assert found.gpu_hours == pytest.approx(wanted.gpu_hours)
    assert found.cost == pytest.approx(wanted.cost)
    again = [number for _, _, number, _ in found.attempts if number > 1]
    assert len(again) >= sum(fails(f"job-{number}", 1) for number in range(jobs)) > 0
    print(f"{jobs} jobs, {len(found.attempts)} attempts, {found.gpu_hours:.4f} GPU-hours, statuses say {wanted.gpu_hours:.4f}")


async def _submit(stage: Scene, number: int, chance: random.Random) -> None:
    await stage.submit(f"job-{number}", workers=chance.choice([1, 2, 4, 8]), team=chance.choice(["maps", "rides", "eats"]))


async def _delete_some(stage: Scene, chance: random.Random) -> None:
    """Jobs whose first attempt fails are kept, to be tried again."""
    names = [key[1] for key in stage.api.objects["JobSpec"] if not fails(key[1], 1)]
    for name in chance.sample(names, len(names) // 10):
        await stage.delete(name)


def test_kills_of_the_hub_lose_and_double_nothing(tmp_path: Path) -> None:
    asyncio.run(run_through_kills(f"sqlite:///{tmp_path}/history.db", None, jobs=30, hub_kills=5, database_kills=0))


def test_kills_of_the_hub_and_of_the_database_lose_and_double_nothing(mortal: PostgresServer) -> None:
    asyncio.run(run_through_kills(mortal.url, mortal, jobs=30, hub_kills=5, database_kills=2))


@pytest.mark.long
def test_many_kills_of_the_hub_and_of_the_database_lose_and_double_nothing(mortal: PostgresServer) -> None:
    asyncio.run(run_through_kills(mortal.url, mortal, jobs=200, hub_kills=20, database_kills=5))


# --- rows that cannot be written, jobs that vanish


def test_a_row_that_is_refused_holds_up_no_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer.rows_of

    def broken(item: Any, status: Any, hub: str = "") -> JobRows:
        rows = made(item, status, hub)
        return rows if item["metadata"]["name"] != "bad" else replace(rows, job={**rows.job, "status": None})

    monkeypatch.setattr(writer, "rows_of", broken)

    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url), api=api) as stage:
            members = asyncio.create_task(Members(api, fails=0.0).run())
            await stage.submit("bad")
            await one_job(stage, "good")
            await until(lambda: is_over(api), "both end")
            for name in ("good", "bad"):
                await stage.delete(name)
                await stage.let_go(name)
            members.cancel()
            assert failures(stage, "refused") >= 1
        assert [job.name for job in History.open(url).jobs()] == ["good"]

    asyncio.run(scene())


def test_a_jobspec_that_vanished_without_its_record_is_closed(url: str) -> None:
    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url), api=api) as stage:
            await stage.submit("leaf")
            await stage.started("leaf")
            await until(lambda: not lags(stage) and stage.status("leaf").get("attempts"), "its start is on record")
            await until(lambda: [job.attempts for job in History.open(url).jobs()] == [1], "its attempt is on record")
        api.objects["JobSpec"].clear()  # while no hub lived, somebody took the finalizer away
        async with running_hub(settings=with_history(url), api=api):
            await until(lambda: [job.status for job in History.open(url).jobs()] == ["cancelled"], "it is closed")
        (job,) = History.open(url).jobs()
        (attempt,) = History.open(url).attempts(job.id)
        assert (attempt["failure"], attempt["ended_at"]) == ("Unrecorded", job.ended_at)

    asyncio.run(scene())
