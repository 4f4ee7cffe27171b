"""The simulated week with attempts that are real pods: KubeRay, kubelet and containerd of each member, and a score task at an endpoint.

The endpoint is a server of this machine. Its URL names the run, so that each run gets the answers of its night, and may be kept waiting.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from aiohttp import web
from tests.clusters.clocked_hub import CLOCK, set_clock
from tests.clusters.hubs import Operator, rayjobs
from tests.clusters.scheduled_week import Week, followed
from tests.servers.openai_server import MODEL, OpenAIServer, completion, prompt_of
from tests.testcluster.clusters import Clusters
from tests.testcluster.images import HOST_IMAGE
from tests.testcluster.install import BUCKET, Storage

from tuneyard.storage import open_store
from tuneyard_operators.rendering import JOB

ROWS = 200
"""The rows of every night; the first ones are answered right."""
DATES = [date(2027, 3, 20) + timedelta(days=number) for number in range(20)]


@dataclass
class WeekWithPods(Week):
    """`endpoint`: of its runs."""

    endpoint: Judge = field(kw_only=True)

    def report(self) -> None:
        """Record the RayJob of each attempt. Pods report for themselves."""
        for member in self.clusters.members:
            for item in rayjobs(member):
                run = (item["metadata"].get("labels") or {}).get(JOB, "")
                self.rayjobs.setdefault(run, set()).add(item["metadata"]["name"])
                self.endpoint.values.setdefault(run, self.value)
        self.endpoint.hung |= self.kept_open
        self.endpoint.waits = not self.ending


class Judge(OpenAIServer):
    """Answers the rows of each run. `values`: share of right answers, by run; `hung`: runs without any answer; `waits`: no run has one."""

    def __init__(self, address: str) -> None:
        super().__init__(key=None, address=address, prefix="/{run}")
        self.values: dict[str, float] = {}
        self.hung: set[str] = set()
        self.waits = False

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        body, run = await request.json(), request.match_info["run"]
        while self.waits or run in self.hung or run not in self.values:
            await asyncio.sleep(0.2)
        prompt = prompt_of(body)
        is_right = int(prompt.split()[-1]) < round(self.values[run] * ROWS)
        return web.json_response(completion(body, f"answer {prompt}" if is_right else "no"))


def task(endpoint: Judge) -> dict[str, Any]:
    """The task of each run: the rows of the day before, at the endpoint."""
    score = {
        "data": {"source": f"s3://{BUCKET}/logs/date={{{{ run.date - 1d }}}}/rows.jsonl", "prompt": "question", "reference": "answer"},
        "engine": {"endpoint": {"url": endpoint.url.replace("{run}", "{{run.name}}"), "model": MODEL, "atOnce": 16}},
        "metrics": ["exact_match"],
    }
    return {"name": "judge", "score": score}


@contextmanager
def week_with_pods(clusters: Clusters, storage: Storage, now: datetime) -> Iterator[WeekWithPods]:
    """A hub over clusters on which `tests.testcluster.install.install` has been done. The environment has the keys of `storage`."""
    rows = "".join(json.dumps({"question": f"question {number}", "answer": f"answer question {number}"}) + "\n" for number in range(ROWS))
    for day in DATES:
        open_store(f"s3://{BUCKET}/logs/date={day}").put("rows.jsonl", rows.encode())
    clock = clusters.hub.folder / "clock"
    set_clock(clock, now)
    environment = {CLOCK: str(clock), **storage.environment}
    operator = Operator(
        clusters.hub.folder,
        clusters.hub.kubeconfig,
        module="tests.clusters.clocked_hub",
        options=["--image", HOST_IMAGE],
        environment=environment,
    )
    with Judge(clusters.hub.address) as endpoint:
        week = WeekWithPods(clusters, operator, [], now, endpoint=endpoint, task=task(endpoint))
        with followed(week):
            yield week
