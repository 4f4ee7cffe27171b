"""Jobs of high priority in a full world, while the hub is killed again and again: is anybody asked to go twice, or in vain?

`python benchmarks/hub_preemptions.py [--urgent 60] [--kills 20]`: writes docs/benchmarks/hub_preemptions.md. Real API servers on this
machine, 135 machines of 8 GPUs that exist in them alone, all held by jobs of low priority. A client outside does what attempts do: it
reports, and stops when it is asked to.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.hub_throughput import Stage, submit  # noqa: E402 -- found by the line above
from benchmarks.training_cases import write_page  # noqa: E402
from tests.clusters.hubs import JOBS, Operator, by_token, jobspec, prepared, until  # noqa: E402
from tests.servers.installed import free_port  # noqa: E402
from tests.testcluster import Hub, Member  # noqa: E402
from tests.testcluster.clusters import Clusters  # noqa: E402
from tests.testcluster.fake_nodes import FakeNodes  # noqa: E402

from tuneyard_operators.kube import ATTEMPT_REPORT, JOBSPEC, RAYJOB, Cache, Connection, Key, Missing  # noqa: E402

MEMBERS, MACHINES = 3, 45
LIMIT_S = 420
Object = dict[str, Any]


class Actors:
    """Plays every attempt of one member: it runs from its RayJob on, and ends when its report asks for that."""

    def __init__(self, member: Connection) -> None:
        self._member = member
        self._work: set[asyncio.Task[None]] = set()
        self._rayjobs = Cache(member, RAYJOB, namespace=JOBS, on_change=self._began)
        self._reports = Cache(member, ATTEMPT_REPORT, namespace=JOBS, on_change=self._asked)
        self.asked: set[str] = set()

    def start(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._rayjobs.run()), asyncio.create_task(self._reports.run())]

    def _began(self, key: Key, old: Object | None, new: Object | None) -> None:
        if old is None and new is not None:
            self._do(self._report(key[1], new["metadata"]["labels"]))

    def _asked(self, key: Key, _old: Object | None, new: Object | None) -> None:
        if new is not None and (new.get("spec") or {}).get("stop") and key[1] not in self.asked:
            self.asked.add(key[1])
            self._do(self._say(key[1], {"phase": "Preempted", "checkpointStep": 5}))

    def _do(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _report(self, name: str, labels: Object) -> None:
        await self._member.create(ATTEMPT_REPORT, JOBS, {"metadata": {"name": name, "labels": labels}})
        await self._say(name, {"phase": "Running", "progress": {"step": 5, "of": 100}, "checkpointStep": 5})

    async def _say(self, name: str, status: Object) -> None:
        try:
            await self._member.patch(ATTEMPT_REPORT, JOBS, name, {"status": status}, subresource="status")
        except Missing:
            return


async def phases(hub: Connection, prefix: str) -> Counter[str]:
    items = (await hub.list(JOBSPEC, "default"))["items"]
    return Counter((item.get("status") or {}).get("phase", "") for item in items if item["metadata"]["name"].startswith(prefix))


async def all_are(hub: Connection, prefix: str, phase: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while set(found := await phases(hub, prefix)) != {phase}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{prefix}*: {dict(found)} after {LIMIT_S} s")
        await asyncio.sleep(1)


async def measure(stage: Stage, urgent: int, kills: int) -> dict[str, int]:
    await stage.connect()
    actors = [Actors(member) for member in stage.members.values()]
    watches = [task for each in actors for task in each.start()]
    low = MEMBERS * MACHINES
    await submit(stage, [jobspec(f"low-{number}", workers=8, priority="low") for number in range(low)])
    await all_are(stage.hub, "low-", "Running")
    chance, killed = random.Random(7), 0
    submitting = asyncio.create_task(submit(stage, [jobspec(f"urgent-{number}", workers=8, priority="urgent") for number in range(urgent)]))
    while killed < kills:
        await asyncio.sleep(chance.uniform(0.3, 2.5))
        stage.operator.kill()
        stage.operator.start()
        killed += 1
    await submitting
    await all_are(stage.hub, "urgent-", "Running")
    found = await counted(stage)
    for task in watches:
        task.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
    await stage.close()
    return found


async def counted(stage: Stage) -> dict[str, int]:
    """By the statuses of all jobs: who was asked to go, for whom, and how often."""
    items = (await stage.hub.list(JOBSPEC, "default"))["items"]
    attempts = [(item["metadata"]["name"], attempt) for item in items for attempt in item["status"].get("attempts", [])]
    went = Counter(name for name, attempt in attempts if attempt.get("stopping"))
    for_whom = Counter(attempt["stoppedFor"].split(":")[0] for _, attempt in attempts if attempt.get("stopping"))
    started = Counter(name for name, _ in attempts if name.startswith("urgent-"))
    return {
        "asked to go": sum(went.values()),
        "of them, twice or more": sum(count > 1 for count in went.values()),
        "asks for which more than one went": sum(count > 1 for count in for_whom.values()),
        "urgent jobs that run": (await phases(stage.hub, "urgent-"))["Running"],
        "urgent jobs started twice": sum(count > 1 for count in started.values()),
        "urgent jobs asked to go": sum(name.startswith("urgent-") for name in went),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Preemptions, and a hub that is killed")
    parser.add_argument("--urgent", type=int, default=60)
    parser.add_argument("--kills", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ty-", dir="/tmp") as folder:
        nodes = (FakeNodes("gpu", MACHINES),)
        members = tuple(Member(f"m{n}", Path(folder) / f"m{n}", fake=nodes, with_kuberay=False) for n in range(MEMBERS))
        clusters, port = Clusters(Hub("hub", Path(folder) / "hub"), members), free_port()
        operator = Operator(Path(folder), Path(folder) / "kubeconfig", options=["--metrics-port", str(port)])
        try:
            clusters.start()
            prepared(clusters, tokens=True)
            operator.kubeconfig.write_text(by_token(clusters.hub))
            operator.start()
            until(lambda: "leading as" in operator.log, "the operator leads")
            found = asyncio.run(measure(Stage(clusters, operator, port), given.urgent, given.kills))
        finally:
            operator.processes.end_all()
            clusters.close()
    lines = [
        f"{MEMBERS * MACHINES} machines of 8 GPUs in {MEMBERS} members, each held by a job of low priority. {given.urgent} urgent jobs of",
        f"8 GPUs are submitted at once, and the hub is killed {given.kills} times while it makes room for them. A client outside plays the",
        "attempts: they report, and stop when they are asked to.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {what} | {count} |" for what, count in found.items()),
    ]
    print("\n".join(lines))
    write_page("hub_preemptions", "Urgent jobs in a full world, and a hub that is killed", lines)


if __name__ == "__main__":
    main()
