"""A job on real pods, undisturbed and with everything killed that can be: does it end, with the same losses, and what does a kill cost?

`python benchmarks/cluster_jobs.py [--state DIR] [--only NAME …]`: writes docs/benchmarks/cluster_jobs.md. Boots a hub and two members
with a real kubelet and KubeRay each, and an S3 server, on this machine (docs/test-clusters.md), and takes about 40 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.training_cases import write_page  # noqa: E402 -- found by the line above
from tests.clusters.hubs import API, job, until  # noqa: E402
from tests.testcluster import Hub, Member  # noqa: E402
from tests.testcluster.clusters import Clusters  # noqa: E402
from tests.testcluster.install import JOBS  # noqa: E402
from tests.testcluster.processes import Processes  # noqa: E402
from tests.testcluster.up import down, up  # noqa: E402

from tuneyard.storage import open_store  # noqa: E402

LIMIT_S = 1500
STEPS, EVERY = 30, 5
KILL_AT = 12
"""The step after which things are killed: past a checkpoint, before the next."""


def train_job(name: str, corpus: str) -> dict[str, Any]:
    """The quickstart's base task with the larger model of `corpus_job`, which lies in S3, and more checkpoints."""
    spec = yaml.safe_load((ROOT / "jobspecs" / "quickstart.yaml").read_text())
    spec["metadata"] = {"name": name, "namespace": "default"}
    base = spec["spec"]["tasks"][1]
    base["train"] |= {"steps": STEPS, "optimizer": {"learningRate": 1e-3}, "checkpoint": {"everySteps": EVERY, "keep": 3}}
    base["train"]["model"] = {"name": f"{corpus}/model", "init": "scratch"}
    base["train"]["data"] |= {"source": f"{corpus}/text.jsonl"}
    del base["train"]["data"]["from"], base["train"]["data"]["path"]
    base["resources"] = {"sku": ["cpu"], "workers": 2}
    spec["spec"]["tasks"] = [base]
    return dict(spec)


def corpus_job() -> dict[str, Any]:
    """The quickstart's first task, for a model whose steps last long enough to be killed in; the others use its output."""
    spec = yaml.safe_load((ROOT / "jobspecs" / "quickstart.yaml").read_text())
    spec["metadata"] = {"name": "corpus", "namespace": "default"}
    spec["spec"]["tasks"] = spec["spec"]["tasks"][:1]
    spec["spec"]["tasks"][0]["process"]["command"][2] = "tuneyard.data.stdlib"
    return dict(spec)


@dataclass
class Outcome:
    """How a disturbed job went. `lost`: steps done twice; `recovery_s`: from the deed to the first step that is new. `first_step_s`: from
    the JobSpec's creation."""

    name: str
    phase: str = ""
    attempts: int = 0
    lost: int = 0
    recovery_s: float | None = None
    first_step_s: float = 0.0
    equal: bool = False
    wall_s: float = 0.0
    notes: str = ""
    losses: list[float] = field(default_factory=list)


@dataclass
class Stage:
    """The clusters, and the jobs on them."""

    folder: Path
    clusters: Clusters
    corpus: str = ""

    @property
    def hub(self) -> Hub:
        return self.clusters.hub

    def submit(self, spec: Mapping[str, Any]) -> None:
        self.hub.apply(dict(spec))

    def status(self, name: str) -> dict[str, Any]:
        try:
            return job(self.hub, name).get("status") or {}
        except Exception:  # noqa: BLE001 - the API server is killed by some of these runs
            return {}

    def running(self, name: str, step: int) -> tuple[Member, dict[str, Any]]:
        """Member and attempt of the train task, once it has done `step` steps."""

        def there() -> dict[str, Any] | None:
            own = [attempt for attempt in self.status(name).get("attempts") or [] if attempt["task"] == "base"]
            return own[-1] if own and own[-1]["lastStep"] >= step else None

        attempt = until(there, f"{name} reaches step {step}", LIMIT_S)
        return next(member for member in self.clusters.members if member.name == attempt["placement"]["cluster"]), attempt

    def pod(self, member: Member, attempt: str, kind: str) -> str:
        items = member.api.get(f"/api/v1/namespaces/{JOBS}/pods")["items"]
        return str(
            next(
                item["metadata"]["name"]
                for item in items
                if item["metadata"]["labels"].get("ray.io/node-type") == kind and item["metadata"]["name"].startswith(attempt)
            )
        )

    def ended(self, name: str) -> dict[str, Any]:
        return dict(until(lambda: (s := self.status(name)).get("phase") in ("Succeeded", "Failed") and s, f"{name} ends", LIMIT_S))

    def losses(self, status: Mapping[str, Any]) -> list[float]:
        return list(json.loads(open_store(status["output"]).get("base/result.json"))["losses"])

    @property
    def processes(self) -> Processes:
        return Processes(self.folder / "processes")


def disturbed(stage: Stage, name: str, deed: Callable[[Stage, str], str]) -> Outcome:
    """Run the train job, do the deed, and see how it ends."""
    began = time.monotonic()
    stage.submit(train_job(name, stage.corpus))
    stage.running(name, 1)
    first_step_s = time.monotonic() - began
    _, attempt = stage.running(name, KILL_AT) if deed is not no_deed else (None, {"lastStep": 0})
    at_step = attempt["lastStep"]
    struck = time.monotonic()
    notes = deed(stage, name)
    recovery = None
    if deed is not no_deed:
        until(
            lambda: any(a["task"] == "base" and a["lastStep"] > at_step + 1 for a in stage.status(name).get("attempts") or []),
            "it goes on",
            LIMIT_S,
        )
        recovery = time.monotonic() - struck
    status = stage.ended(name)
    own = [each for each in status["attempts"] if each["task"] == "base"]
    lost = sum(max(0, before["lastStep"] - after["resumedFrom"]) for before, after in pairwise(own))
    outcome = Outcome(name, status["phase"], len(own), lost, recovery, first_step_s, wall_s=time.monotonic() - began, notes=notes)
    if status["phase"] == "Succeeded":
        outcome.losses = stage.losses(status)
    else:
        outcome.notes += f" {status['message'][:300]}"
    stage.hub.kubectl("delete", "jobspec", name, "--wait=false")
    return outcome


def no_deed(_stage: Stage, _name: str) -> str:
    return ""


def kill_worker(stage: Stage, name: str) -> str:
    member, attempt = stage.running(name, 0)
    member.kill_pod(stage.pod(member, attempt["name"], "worker"), JOBS)
    return "SIGKILL to all processes of a worker pod"


def kill_rank(stage: Stage, name: str) -> str:
    """A rank is a fork of the pod's fork server, as the agents are, whose processes Ray has given names."""
    member, attempt = stage.running(name, 0)

    def is_server(process: psutil.Process | None) -> bool:
        return process is not None and "tuneyard.warm.server" in process.cmdline()

    processes = [psutil.Process(pid) for pid in member.pod_processes(stage.pod(member, attempt["name"], "worker"), JOBS)]
    (rank,) = [process for process in processes if is_server(process) and is_server(process.parent())]
    rank.kill()
    return "SIGKILL to the process of a rank"


def kill_head(stage: Stage, name: str) -> str:
    member, attempt = stage.running(name, 0)
    member.kill_pod(stage.pod(member, attempt["name"], "head"), JOBS)
    return "SIGKILL to all processes of the head pod"


def evict_worker(stage: Stage, name: str) -> str:
    """What draining a node does: the pod hears of it, the attempt commits a checkpoint and ends, and is placed anew."""
    member, attempt = stage.running(name, 0)
    pod = stage.pod(member, attempt["name"], "worker")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": JOBS}}
    member.api.create(f"/api/v1/namespaces/{JOBS}/pods/{pod}/eviction", eviction)
    return "eviction of a worker pod, as by `kubectl drain`"


def cut_heartbeat(stage: Stage, name: str) -> str:
    """The node falls silent while its ranks live on: the next attempt must fence them out."""
    member, _ = stage.running(name, 0)
    member.cut_heartbeat()
    _RESTORE.append(member.restore_heartbeat)
    return "kubelet ended; the pods' processes live on"


def kill_operator(stage: Stage, _name: str) -> str:
    """SIGKILL at 20 random instants of what is left of the job."""
    chance = random.Random(5)
    for _ in range(20):
        stage.processes.stop("operator")
        stage.processes.start("operator")
        time.sleep(chance.uniform(0.2, 4.0))
    return "20 times, 0.2 to 4 s apart"


def stop_hub_server(stage: Stage, _name: str) -> str:
    stage.hub.stop("kube-apiserver")
    time.sleep(60)
    stage.hub.start("kube-apiserver")
    return "ended for 60 s"


_RESTORE: list[Callable[[], None]] = []
DEEDS: Mapping[str, Callable[[Stage, str], str]] = {
    "undisturbed": no_deed,
    "rank": kill_rank,
    "worker-pod": kill_worker,
    "head-pod": kill_head,
    "eviction": evict_worker,
    "hub-operator": kill_operator,
    "hub-api-server": stop_hub_server,
    "node-heartbeat": cut_heartbeat,
}


def quickstart(stage: Stage) -> list[str]:
    """The whole quickstart by `kubectl apply`, with the time of each stage."""
    began = datetime.now(UTC)
    stage.hub.kubectl("apply", "-f", str(ROOT / "jobspecs" / "quickstart.yaml"))
    status = stage.ended("quickstart")
    lines = [f"`kubectl apply -f jobspecs/quickstart.yaml`: {status['phase']}.", ""]
    lines += ["| task | placed after s | ranks began after s | ended after s | pods | result |", "|---|---|---|---|---|---|"]
    for attempt in status["attempts"]:
        marks = [_since(began, attempt.get(key)) for key in ("placedAt", "startedAt", "endedAt")]
        place = attempt["placement"]
        lines.append(
            f"| {attempt['task']} | {' | '.join(marks)} | 1 head, {place['pods']} workers | {attempt.get('failure') or 'succeeded'} |"
        )
    lines += ["", f"Whole: {_since(began, status['finishedAt'])} s. Artifacts in S3: {', '.join(status['artifacts'])}."]
    stage.hub.kubectl("delete", "jobspec", "quickstart", "--wait=false")
    return lines


def _since(began: datetime, text: str | None) -> str:
    return f"{(datetime.fromisoformat(text) - began).total_seconds():.0f}" if text else ""


def table(outcomes: list[Outcome]) -> Iterator[str]:
    reference = next((o.losses for o in outcomes if o.name == "undisturbed"), [])
    yield "| killed | ends | first step after s | attempts | steps done twice | s until the next new step | losses as undisturbed | how |"
    yield "|---|---|---|---|---|---|---|---|"
    for outcome in outcomes:
        equal = "" if outcome.name == "undisturbed" else "all" if outcome.losses == reference else "NO"
        recovery = f"{outcome.recovery_s:.0f}" if outcome.recovery_s is not None else ""
        cells = [outcome.name, outcome.phase, f"{outcome.first_step_s:.0f}", outcome.attempts, outcome.lost, recovery, equal, outcome.notes]
        yield f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", type=Path, default=Path("/tmp/tuneyard-jobs"))
    parser.add_argument("--corpus", help="URI of the files of a corpus task, instead of making one")
    parser.add_argument("--reference", help="URI of the output of an undisturbed run, instead of one more")
    parser.add_argument("--keep", action="store_true", help="leave the clusters running")
    parser.add_argument("--only", nargs="*", default=["quickstart", *DEEDS])
    arguments = parser.parse_args()
    up(arguments.state, members=2)
    for line in (arguments.state / "storage.env").read_text().splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        os.environ[name] = value
    stage = Stage(arguments.state, Clusters.found(arguments.state))
    lines: list[str] = []
    outcomes: list[Outcome] = []
    try:
        until(lambda: len(stage.hub.api.get(f"{API}/clusters")["items"]) == 2, "the members are known")
        if "quickstart" in arguments.only:
            lines += quickstart(stage)
            print("\n".join(lines), flush=True)
        if arguments.corpus is None:
            stage.submit(corpus_job())
        stage.corpus = arguments.corpus or f"{stage.ended('corpus')['output']}/corpus/files"
        if arguments.reference is not None:
            outcomes.append(Outcome("undisturbed", "Succeeded", 1, losses=stage.losses({"output": arguments.reference})))
        for name, deed in DEEDS.items():
            if name in arguments.only:
                outcomes.append(disturbed(stage, name, deed))
                print("\n".join(table(outcomes)), flush=True)
                while _RESTORE:
                    _RESTORE.pop()()
    finally:
        if not arguments.keep:
            down(arguments.state)
    explained = f"The train job: {STEPS} steps, 2 ranks in 2 pods, a checkpoint every {EVERY} steps, killed after step {KILL_AT}."
    write_page("cluster_jobs", "Jobs on real pods, and what kills cost", [*lines, "", explained, "", *table(outcomes)])


if __name__ == "__main__":
    main()
