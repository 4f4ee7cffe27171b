"""Each alert of the chart fires once by a real fault: a hub in this process tells a real Prometheus, which evaluates the chart's rules.

Faults come one after the other, and an alert must not fire before its fault. Only `for` is left out, and thresholds of time are scaled
(`SCALED`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web
from tests.clusters.hub_history import api_with_nodes, with_history
from tests.clusters.hub_in_memory import Scene, running_hub, until
from tests.servers.installed import free_port
from tests.servers.prometheus import Prometheus, prometheus, rules
from tests.testcluster import Unavailable
from tests.testcluster.binaries import binary

from tuneyard.api.moments import written
from tuneyard_operators.hub import actions, write_pace
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.web import serve
from tuneyard_operators.kube import CLUSTER, JOBSPEC, SCHEDULE, SECRET, TEAM, ApiError, Kind, from_kubeconfig_text

SCALED = {
    "TuneyardCacheBehind": ("> 60", "> 1"),
    "TuneyardHistoryLags": ("> 900", "> 1"),
    "TuneyardSchedulingSlow": ("> 5", "> 0.2"),
}
Fault = Callable[["Stage"], Awaitable[None]]


class Stage:
    """A hub, and what breaks around it."""

    def __init__(self, scene: Scene, metrics: Metrics, stack: AsyncExitStack, database: Path) -> None:
        self.scene = scene
        self.metrics = metrics
        self.stack = stack
        self.leads = True
        self.database = database
        self.second: web.AppRunner | None = None
        self.ports = {"hub": free_port(), "second": free_port(), "console": free_port()}

    @property
    def api(self) -> Any:
        return self.scene.api

    def refresh(self) -> None:
        self.metrics.leader.set(self.leads)
        self.metrics.state.sources = self.scene.hub.state.sources if self.leads else ()

    def refuse(self, status: int, verb: str, kind: str, name: str = "") -> None:
        """Let the API server answer `status` to a verb on objects of a kind whose names begin with `name`."""

        def refused(asked: str, what: Kind, named: str) -> None:
            if asked == verb and what.name == kind and named.startswith(name):
                raise ApiError(status, "it is broken")

        self.api.refuse = refused

    async def running(self, name: str, **progress: float) -> None:
        await self.scene.submit(name, workers=1)
        attempt = await self.scene.started(name)
        await self.scene.begin(attempt)
        await self.scene.report(attempt, phase="Running", progress={"step": 10, "of": 1000, **progress})

    async def fail_again_and_again(self, name: str, kind: str, times: int) -> None:
        await self.scene.submit(name, workers=1, retries={"max": 20})
        seen: set[str] = set()
        for _ in range(times):
            attempt = await until(lambda: next(iter({self.scene.rayjob(name)} - seen - {""}), ""), f"{name} starts again")
            seen.add(attempt)
            await self.scene.begin(attempt)
            await asyncio.sleep(1.1)  # Prometheus sees each attempt
            await self.scene.report(attempt, phase="Failed", failure={"kind": kind, "message": "the store is away"})
            await self.scene.removed(attempt)


@asynccontextmanager
async def answering(status: int) -> AsyncIterator[str]:
    """An API server that answers every request with `status`."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "code": status, "message": "broken"}, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def kubeconfig(server: str, token: str) -> str:
    user = {"name": "hub", "user": {"token": token}}
    context = {"name": "member", "context": {"cluster": "member", "user": "hub"}}
    cluster = {"name": "member", "cluster": {"server": server}}
    return yaml.safe_dump({"current-context": "member", "contexts": [context], "clusters": [cluster], "users": [user]})


def token_until(moment: datetime) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(moment.timestamp())}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


# --- faults


async def a_member_whose_credentials_are_gone(stage: Stage) -> None:
    spec = {
        "skus": [{"name": "h100-80gb", "nodes": 1, "gpusPerNode": 8}],
        "endpoint": {"kubeconfigSecret": {"name": "none", "key": "kubeconfig"}},
    }
    await stage.api.create(CLUSTER, None, {"metadata": {"name": "west"}, "spec": spec})


async def a_member_that_was_seen_an_hour_ago(stage: Stage) -> None:
    heartbeat = written(datetime.now(UTC) - timedelta(hours=1))
    spec = {"skus": [], "endpoint": {"kubeconfigSecret": {"name": "none", "key": "kubeconfig"}}}
    await stage.api.create(CLUSTER, None, {"metadata": {"name": "north"}, "spec": spec, "status": {"heartbeat": heartbeat}})


async def a_token_with_two_days_left(stage: Stage) -> None:
    server = await stage.stack.enter_async_context(answering(403))
    config = kubeconfig(server, token_until(datetime.now(UTC) + timedelta(days=2)))
    data = {"kubeconfig": base64.b64encode(config.encode()).decode()}
    await stage.api.create(SECRET, "tuneyard-system", {"metadata": {"name": "south"}, "data": data})
    spec = {
        "skus": [{"name": "h100-80gb", "nodes": 1, "gpusPerNode": 8}],
        "endpoint": {"kubeconfigSecret": {"name": "south", "key": "kubeconfig"}},
    }
    await stage.api.create(CLUSTER, None, {"metadata": {"name": "south"}, "spec": spec})


async def nothing_more(_stage: Stage) -> None:
    """The fault before has several alerts."""


async def an_api_server_that_fails_writes(stage: Stage) -> None:
    server = await stage.stack.enter_async_context(answering(500))
    count = lambda *told: stage.metrics.count_request("hub", *told)  # noqa: E731
    connection = await from_kubeconfig_text(kubeconfig(server, "opaque"), observe=count)
    for pause_s in (0.0, 2.0):
        await asyncio.sleep(pause_s)  # an increase is seen between two scrapes
        for number in range(15):
            with pytest.raises(ApiError):
                await connection.patch(JOBSPEC, "default", f"job-{number}", {"status": {}}, subresource="status")
    await connection.close()


async def statuses_that_cannot_be_written(stage: Stage) -> None:
    stage.refuse(500, "patch", "JobSpec")
    for number in range(3):
        await stage.scene.submit(f"unwritten-{number}", workers=1)
    await asyncio.sleep(4)
    stage.api.refuse = lambda *_: None


async def slow_cycles(stage: Stage) -> None:
    placements, whole = stage.scene.hub.placements, stage.scene.hub.placements.cycle

    def slow(*arguments: Any) -> Any:
        time.sleep(0.6)
        return whole(*arguments)

    placements.cycle = slow  # type: ignore[method-assign]
    for number in range(6):
        await stage.scene.submit(f"slowly-{number}", workers=1)
        await asyncio.sleep(0.7)
    placements.cycle = whole  # type: ignore[method-assign]


async def a_job_for_a_member_that_is_away(stage: Stage) -> None:
    await stage.scene.submit("waits", workers=8, placement={"clusters": ["west"]})


async def a_team_that_gets_nothing_of_its_quota(stage: Stage) -> None:
    for team in ("maps", "default", "unknown"):
        await stage.api.create(TEAM, None, {"metadata": {"name": team}, "spec": {"quota": {"h100-80gb": 16}}})
    await stage.scene.submit("owed", team="maps", workers=8, placement={"clusters": ["west"]})


async def a_budget_that_is_nearly_spent(stage: Stage) -> None:
    status = {"gpuHoursUsed": 95.0, "usageAt": written(datetime.now(UTC))}
    await stage.api.create(TEAM, None, {"metadata": {"name": "rides"}, "spec": {"gpuHours": 100}, "status": status})


async def a_store_that_is_away(stage: Stage) -> None:
    await stage.fail_again_and_again("restless", "Storage", 5)


async def a_store_that_stays_away(stage: Stage) -> None:
    await asyncio.gather(*(stage.fail_again_and_again(f"hopeless-{number}", "Storage", 3) for number in range(4)))


async def slow_data(stage: Stage) -> None:
    await stage.running("starved", dataWait=0.5)


async def a_slow_network(stage: Stage) -> None:
    await stage.running("crawls", mfu=0.1, plannedMfu=0.4)


async def a_slow_store(stage: Stage) -> None:
    await stage.running("saves", checkpointWait=0.3, checkpointS=200.0)


async def a_spec_that_becomes_unreadable(stage: Stage) -> None:
    await stage.running("deep")
    await stage.scene.change("deep", tasks=msgspec.Raw(b"[" * 99 + b"]" * 99))


async def scheduled(stage: Stage, name: str, **spec: Any) -> None:
    template = spec.pop("template", {"spec": {"tasks": [{"name": "judge", "process": {"command": ["true"]}}]}})
    status = spec.pop("status", {})
    goal = {"cron": "0 2 * * *", "template": template, **spec}
    await stage.api.create(SCHEDULE, "default", {"metadata": {"name": name}, "spec": goal, "status": status})


async def a_worse_model(stage: Stage) -> None:
    notify = {"webhook": "http://127.0.0.1:1/hook"}
    await scheduled(stage, "worse", runNow=written(datetime.now(UTC)), regression={"exact_match": {"below": 0.7}}, notify=notify)
    run = await until(lambda: next((key[1] for key in stage.api.objects["JobSpec"] if key[1].startswith("worse-")), ""), "the run starts")
    attempt = await stage.scene.started(run)
    await stage.scene.begin(attempt)
    await stage.scene.report(attempt, phase="Succeeded", metrics={"exact_match": 0.5})


async def a_schedule_that_cannot_be_read(stage: Stage) -> None:
    await scheduled(stage, "broken", template={"spec": {"tasks": [{"name": "judge", "process": {"command": ["{{ nope }}"]}}]}})


async def jobs_that_cannot_be_created(stage: Stage) -> None:
    stage.refuse(500, "create", "JobSpec", "late")
    due = datetime.now(UTC) - timedelta(minutes=30)
    status = {"nextRun": written(due), "followed": f"{due.minute} {due.hour} * * * UTC", "followedSince": written(due - timedelta(days=1))}
    await scheduled(stage, "late", cron=f"{due.minute} {due.hour} * * *", status=status)


async def a_database_that_is_locked(stage: Stage) -> None:
    holder = sqlite3.connect(stage.database, isolation_level=None)
    stage.stack.callback(holder.close)
    holder.execute("BEGIN EXCLUSIVE")
    await stage.scene.submit("unrecorded", workers=1)
    await stage.scene.started("unrecorded")


async def a_record_that_is_given_up(stage: Stage) -> None:
    await stage.scene.delete("unrecorded")
    await stage.scene.let_go("unrecorded")


async def a_second_operator(stage: Stage) -> None:
    other = Metrics()
    other.leader.set(1)
    runner = await serve(stage.ports["second"], other, alive=str, ready=str, refresh=lambda: None)
    stage.stack.push_async_callback(runner.cleanup)
    stage.second = runner


async def no_lease(stage: Stage) -> None:
    if stage.second is not None:
        await stage.second.cleanup()
    stage.leads = False


FAULTS: tuple[tuple[str, Fault], ...] = (
    ("TuneyardMemberUnreachable", a_member_whose_credentials_are_gone),
    ("TuneyardMemberHeartbeatOld", a_member_that_was_seen_an_hour_ago),
    ("TuneyardQueueOld", a_job_for_a_member_that_is_away),
    ("TuneyardQueueOldWhileGpusIdle", nothing_more),
    ("TuneyardJobWaitsForData", slow_data),
    ("TuneyardJobMfuLow", a_slow_network),
    ("TuneyardJobCheckpointCostHigh", a_slow_store),
    ("TuneyardJobsStalled", a_spec_that_becomes_unreadable),
    ("TuneyardJobRestarts", a_store_that_is_away),
    ("TuneyardAttemptsFail", a_store_that_stays_away),
    ("TuneyardMostAttemptsFail", nothing_more),
    ("TuneyardQuotaNotMet", a_team_that_gets_nothing_of_its_quota),
    ("TuneyardTeamBudgetNearlySpent", a_budget_that_is_nearly_spent),
    ("TuneyardScheduleRegressed", a_worse_model),
    ("TuneyardWebhooksFail", nothing_more),
    ("TuneyardScheduleStalled", a_schedule_that_cannot_be_read),
    ("TuneyardScheduleMissed", jobs_that_cannot_be_created),
    ("TuneyardSchedulingSlow", slow_cycles),
    ("TuneyardReconcileErrors", statuses_that_cannot_be_written),
    ("TuneyardHistoryLags", a_database_that_is_locked),
    ("TuneyardHistoryLosesRecords", a_record_that_is_given_up),
    ("TuneyardMemberCredentialsExpire", a_token_with_two_days_left),
    ("TuneyardRequestsRefused", nothing_more),
    ("TuneyardCacheBehind", nothing_more),
    ("TuneyardHubCannotWrite", an_api_server_that_fails_writes),
    ("TuneyardTwoLeaders", a_second_operator),
    ("TuneyardNoLeader", no_lease),
)
"""In their order: a fault lasts until the end."""


def test_each_alert_has_its_fault() -> None:
    assert {alert for alert, _ in FAULTS} | {"TuneyardConsoleDown"} == {rule["alert"] for rule in rules()}


async def heard(server: Prometheus, alert: str, limit_s: float = 60) -> dict[str, Any]:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if found := (await asyncio.to_thread(server.firing)).get(alert):
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(f"{alert} does not fire")


def test_each_alert_fires_by_its_fault_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("_BETWEEN_WRITES_S", "_AFTER_A_PLACEMENT_S"):
        monkeypatch.setattr(write_pace, pause, 0.05)
    monkeypatch.setattr("tuneyard.tracking.history.LOCK_WAIT_S", 1)
    monkeypatch.setattr(actions, "_RECORD_AGAIN_S", 0.2)
    try:
        binary("prometheus")
    except Unavailable as reason:
        pytest.skip(str(reason))

    async def scene() -> None:
        database = tmp_path / "history.db"
        settings = with_history(f"sqlite:///{database}", hold_s=0.5)
        api = await api_with_nodes(10)
        async with AsyncExitStack() as stack, running_hub(settings=settings, api=api) as shown:
            stage = Stage(shown, shown.hub.metrics, stack, database)
            await shown.submit("sound", workers=1)
            attempt = await shown.started("sound")
            await shown.begin(attempt)
            runner = await serve(stage.ports["hub"], stage.metrics, alive=str, ready=str, refresh=stage.refresh)
            stack.push_async_callback(runner.cleanup)
            targets = {
                "tuneyard-hub": [stage.ports["hub"], stage.ports["second"]],
                "tuneyard-hub-console-metrics": [stage.ports["console"]],
            }
            server = stack.enter_context(prometheus(tmp_path, targets, SCALED))
            await heard(server, "TuneyardConsoleDown")  # nothing listens on its port
            for alert, fault in FAULTS:
                if fault is not nothing_more:
                    assert alert not in await asyncio.to_thread(server.firing), alert
                began = time.monotonic()
                await fault(stage)
                found = await heard(server, alert)
                texts = found["annotations"]
                assert texts["runbook_url"].endswith(f"#{alert.lower()}")
                assert "<no value>" not in texts["summary"] + texts["description"]
                print(f"{alert}: {time.monotonic() - began:.1f} s: {texts['summary']}")

    asyncio.run(scene())
