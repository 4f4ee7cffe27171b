"""A hub whose requests fail at random, and that is killed at random: every job ends, no attempt is made twice, nothing is remembered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.clusters.hub_in_memory import JOBS, SETTINGS, Scene, running_hub, until

from tuneyard_operators.hub import write_pace
from tuneyard_operators.kube import ATTEMPT_REPORT, POD, Conflict, Kind, Missing, Unreachable

QUICK = replace(SETTINGS, backoff_s=0.1)
NAMES = [f"leaf-{number}" for number in range(6)]


@pytest.fixture(autouse=True)
def writes_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_pace, "_BETWEEN_WRITES_S", 0.05)
    monkeypatch.setattr(write_pace, "_AFTER_A_PLACEMENT_S", 0.05)


def failing(chance: random.Random, share: float) -> Callable[[str, Kind, str], None]:
    """Refuses a share of the hub's writes, as an API server that is busy, or behind another writer."""

    def refuse(_verb: str, kind: Kind, _name: str) -> None:
        if kind not in (POD, ATTEMPT_REPORT) and chance.random() < share:
            raise chance.choice([Conflict(409, "it has changed"), Unreachable(0, "timed out")])

    return refuse


async def attempts_run(stage: Scene, chance: random.Random) -> None:
    """What RayJobs become on the member: pods and a report, an end, and nothing once they are removed."""
    while True:
        await asyncio.sleep(0.02)
        rayjobs = stage.api.objects.setdefault("RayJob", {})
        pods = stage.api.objects.setdefault("Pod", {})
        reports = stage.api.objects.setdefault("AttemptReport", {})
        for _, name in list(rayjobs):
            with suppress(Conflict, Missing):  # the hub may remove what is being written
                if (JOBS, f"{name}-head") not in pods:
                    await stage.begin(name)
                elif (JOBS, name) in reports and chance.random() < 0.2:
                    failed = {"phase": "Failed", "failure": {"kind": "NodeLost", "message": "gone"}}
                    await stage.report(name, **(failed if chance.random() < 0.3 else {"phase": "Succeeded"}))
        for _, pod in [key for key in pods if (JOBS, key[1].removesuffix("-head")) not in rayjobs]:
            await stage.api.delete(POD, JOBS, pod)


def settled(stage: Scene, name: str) -> bool:
    status = stage.status(name)
    return status.get("phase") in ("Succeeded", "Failed", "Cancelled") and all(own["cleaned"] for own in status.get("attempts", []))


async def live(stage: Scene, chance: random.Random, seconds: float) -> None:
    """Some moments of a hub, after which it is killed."""
    member = asyncio.create_task(attempts_run(stage, chance))
    await asyncio.sleep(seconds)
    member.cancel()
    with suppress(asyncio.CancelledError):
        await member


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))])
def test_every_job_ends_once_and_is_forgotten(seed: int) -> None:
    async def run() -> None:
        chance = random.Random(seed)
        async with running_hub(settings=QUICK) as stage:
            api = stage.api
            for number, name in enumerate(NAMES):
                await stage.submit(name, priority="high" if number == 5 else "normal", workers=16 if number == 2 else 8)
            api.refuse = failing(chance, 0.15)
            await live(stage, chance, chance.uniform(0.2, 1.0))
        async with running_hub(settings=QUICK, api=api) as stage:
            await live(stage, chance, chance.uniform(0.2, 1.0))
        async with running_hub(settings=QUICK, api=api) as stage:
            member = asyncio.create_task(attempts_run(stage, chance))
            await until(lambda: all(settled(stage, name) for name in NAMES), "every job ends")
            made = [name for verb, kind, name in api.requests if (verb, kind) == ("create", "RayJob")]
            assert len(made) == len(set(made)), "an attempt was made twice"
            api.refuse = lambda *_: None
            for name in NAMES:
                await stage.delete(name)
                await stage.let_go(name)
            await until(lambda: not stage.remembers("leaf-"), "all are forgotten")
            member.cancel()
        assert not api.objects["RayJob"]
        assert not api.objects["NetworkPolicy"]

    asyncio.run(run())


def test_two_hubs_that_both_lead_start_nothing_twice() -> None:
    """A status is written over the version that was read: of two decisions about a job one is refused, and made again."""

    async def run() -> None:
        chance = random.Random(1)
        async with running_hub(settings=QUICK) as one, running_hub(settings=QUICK, api=one.api):
            member = asyncio.create_task(attempts_run(one, chance))
            for name in NAMES:
                await one.submit(name, workers=8)
            await until(lambda: all(settled(one, name) for name in NAMES), "every job ends")
            made = [name for verb, kind, name in one.api.requests if (verb, kind) == ("create", "RayJob")]
            recorded = {attempt["name"] for name in NAMES for attempt in one.status(name)["attempts"]}
            assert set(made) == recorded, "an attempt was started that no status names"
            ends = {name: [attempt["phase"] for attempt in one.status(name)["attempts"]] for name in NAMES}
            assert all("Succeeded" not in phases[:-1] for phases in ends.values()), ends
            member.cancel()

    asyncio.run(run())
