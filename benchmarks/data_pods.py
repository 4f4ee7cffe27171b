"""A trainer on a pod that one data worker cannot feed: how much of its steps it waits, without the service, with one pod, and autoscaled.

`python benchmarks/data_pods.py [--steps 480]`, as root: a test cluster of this machine with two nodes. The rank runs on the one, head and
data workers on the other; the source is an S3 server that holds every reading of a part back. Writes docs/benchmarks/data_pods.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.training_cases import write_page
from tests.cluster.home import OURS, install, logs, started
from tests.cluster.test_data_pods import BATCH, FED, texts
from tests.servers.slow_store import SlowStore
from tests.testcluster import Member
from tests.testcluster.install import BUCKET, JOBS, Storage
from tests.testcluster.waiting import wait_for

HELD_S = 1.5
SPLITS = 120
SERVICE = {"cpus": 0.1, "memoryGb": 1.5}
WAYS: dict[str, dict[str, Any]] = {
    "no service: the rank makes its rows": {"workers": 0},
    "one pod": {"service": {**SERVICE, "minWorkers": 1, "maxWorkers": 1}},
    "1 to 6 pods, autoscaled": {"service": {**SERVICE, "minWorkers": 1, "maxWorkers": 6}},
}
EVERY_STEPS = 20
LIMIT_S = 1500.0


@dataclass
class Watched:
    """What was seen of a job. `pods`: running data pods at each look."""

    splits: dict[int, dict[str, float]] = field(default_factory=dict)
    pods: list[int] = field(default_factory=list)


def job(number: int, way: dict[str, Any], store: str, steps: int) -> dict[str, Any]:
    """The job of a way; its rows are of another length than those of the others, so that none finds their shards."""
    made = copy.deepcopy(FED)
    made["metadata"]["name"] = f"way-{number}"
    made["spec"]["env"] = [{"name": "AWS_ENDPOINT_URL", "value": store}]
    train = made["spec"]["tasks"][1]["train"]
    train["data"].pop("service")
    train["data"] |= {"maxLength": 64 + number, **way}
    train |= {"steps": steps, "checkpoint": {"everySteps": EVERY_STEPS, "keep": steps}}
    return made


def watched(member: Member, body: dict[str, Any]) -> Watched:
    """Run a job to its end. The seconds of its steps by phase are in its checkpoints, as sums since the start."""
    from tuneyard.storage import CommitLog, open_store

    name, found = body["metadata"]["name"], Watched()
    member.apply(body)

    def over() -> dict[str, Any] | None:
        status = member.api.get(f"{OURS}/namespaces/default/jobspecs/{name}").get("status") or {}
        pods = member.api.get(f"/api/v1/namespaces/{JOBS}/pods")["items"]
        groups = [pod["metadata"]["labels"].get("ray.io/group") for pod in pods if pod["status"].get("phase") == "Running"]
        found.pods.append(groups.count("data"))
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    done = wait_for(f"the end of {name}", over, limit_s=LIMIT_S, every_s=1, words=lambda: logs(member))
    if done["phase"] != "Succeeded":
        raise RuntimeError(json.dumps(done)[:3000])
    output = open_store(f"{done['output']}/base")
    for commit in CommitLog(output, "checkpoints/log").read().commits:
        state = json.loads(output.get(f"{commit.name}/state.json"))
        found.splits[commit.step] = state["progress"]["split_s"]
    member.kubectl("delete", "jobspec", name, "-n", "default", "--timeout=240s")
    return found


def stalled(found: Watched, first: int, last: int) -> float:
    """Share of the seconds of steps, from one checkpoint to another, that the rank waited for rows."""
    spent = {phase: seconds - found.splits[first].get(phase, 0.0) for phase, seconds in found.splits[last].items()}
    return spent.get("data", 0.0) / sum(spent.values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=480)
    parser.add_argument("--warm-up", type=int, default=240, help="steps that do not count")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuneyard-") as folder, started(Path(folder)) as (member, storage):
        os.environ |= storage.environment
        install(member, storage)
        found = measured(member, storage, given.steps)
    rows = []
    for way, one in found.items():
        first = min(step for step in one.splits if step >= given.warm_up)
        parts = [
            stalled(one, step, step + EVERY_STEPS) for step in sorted(one.splits) if step >= first and step + EVERY_STEPS in one.splits
        ]
        whole, before = stalled(one, first, max(one.splits)), stalled(one, min(one.splits), first)
        rows.append(f"| {way} | {before:.1%} | {whole:.1%} | {max(parts):.1%} | {max(one.pods)} |")
    words = f"""A small model trains on a pod, {BATCH} rows a step, 8 steps a split. The store holds every range back for {HELD_S:g} s. The
    rank is a pod on one node, head and data workers are pods on the other; both nodes are kubelets of a test cluster on one machine. Stall:
    share of the time of steps in which the rank waits for rows or puts them into a batch, before step {given.warm_up}, and from there to
    step {given.steps}; worst:
    of any {EVERY_STEPS} steps in a row after the warm-up."""
    lines = [
        *textwrap.wrap(" ".join(words.split()), 120),
        "",
        f"| | stall in warm-up | stall | worst {EVERY_STEPS} steps | data pods at most |",
        "|---|---:|---:|---:|---:|",
        *rows,
    ]
    write_page("data_pods", "A trainer on a pod that one data worker cannot feed", lines)


def measured(member: Member, storage: Storage, steps: int) -> dict[str, Watched]:
    """All ways on one cluster, one after the other."""
    from tuneyard.storage import open_store

    open_store(f"s3://{BUCKET}/texts").put("a.jsonl", texts(SPLITS))
    host, port = storage.endpoint.removeprefix("http://").split(":")
    store = SlowStore((host, int(port)), HELD_S)
    try:
        found = {}
        for number, (way, data) in enumerate(WAYS.items()):
            began = time.monotonic()
            found[way] = watched(member, job(number, data, store.url, steps))
            print(f"{way}: {time.monotonic() - began:.0f} s, {found[way].pods}", file=sys.stderr)
        return found
    finally:
        store.close()


if __name__ == "__main__":
    main()
