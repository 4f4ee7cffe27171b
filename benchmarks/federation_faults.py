"""A member that freezes under a job, and a job of high priority that needs its GPUs: on real pods, with time lines.

`python benchmarks/federation_faults.py [--state DIR] [--only frozen preempted]`: writes docs/benchmarks/federation_faults.md. Boots a hub
and two members with a real kubelet and KubeRay each, and an S3 server, on this machine (docs/test-clusters.md), and takes about 25 minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cluster_jobs import EVERY, LIMIT_S, STEPS, Stage, corpus_job, train_job  # noqa: E402 -- found by the line above
from benchmarks.training_cases import write_page  # noqa: E402
from tests.clusters.hubs import API, until  # noqa: E402
from tests.testcluster import Member  # noqa: E402
from tests.testcluster.clusters import Clusters  # noqa: E402
from tests.testcluster.up import down, up  # noqa: E402

from tuneyard.storage import CommitLog, open_store  # noqa: E402
from tuneyard.tracking import LogReader  # noqa: E402

LOST_AFTER_S = 40
STRIKE_AT = 12
REFUSED = "has taken over"


@dataclass
class TimeLine:
    """What happened when, in seconds since the deed."""

    began: float = field(default_factory=time.monotonic)
    lines: list[tuple[float, str]] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.lines.append((time.monotonic() - self.began, what))
        print(f"{self.lines[-1][0]:7.1f} s  {what}", flush=True)

    def table(self) -> list[str]:
        return ["| s | what |", "|---|---|", *(f"| {at:.0f} | {what} |" for at, what in self.lines)]


def attempts(stage: Stage, name: str) -> list[dict[str, Any]]:
    return list(stage.status(name).get("attempts") or [])


def committed(output: str) -> list[tuple[int, int]]:
    """Step and token of each commit that counts."""
    return [(commit.step, commit.token) for commit in CommitLog(open_store(f"{output}/base"), "checkpoints/log").read().commits]


def said(output: str, attempt: int) -> str:
    """All that an attempt has printed so far, as kept in storage."""
    reader = LogReader(open_store(output), "base", attempt)
    return "\n".join(reader.read(source).text for source in reader.sources())


def frozen(stage: Stage, losses: list[float]) -> list[str]:
    """The member of a running job freezes, API server and node; another takes over; then it thaws."""
    stage.submit(train_job("frozen", stage.corpus))
    member, first = stage.running("frozen", STRIKE_AT)
    output = stage.status("frozen")["output"]
    line = TimeLine()
    member.freeze()
    member.freeze_node()
    line.note(f"{member.name} freezes: API server, kubelet and all ranks, after step {first['lastStep']}; committed: {committed(output)}")
    lost = until(lambda: (a := attempts(stage, "frozen"))[0].get("endedAt") and a[0], "it is given up", LIMIT_S)
    line.note(f"the hub gives attempt 1 up: {lost['failure']}: {lost['message'][:90]}")
    second = until(lambda: len(a := attempts(stage, "frozen")) > 1 and a[1], "a second attempt is placed", LIMIT_S)
    line.note(f"attempt 2 is placed on {second['placement']['cluster']}")
    began = until(lambda: (a := attempts(stage, "frozen")[1])["lastStep"] and a, "it makes steps", LIMIT_S)
    line.note(f"attempt 2 makes steps, from the checkpoint of step {began['resumedFrom']}")
    until(lambda: attempts(stage, "frozen")[1]["checkpointStep"] > began["resumedFrom"], "it commits", LIMIT_S)
    before = committed(output)
    line.note(f"attempt 2 has committed: {before}")
    member.thaw_node()
    line.note(f"the node of {member.name} thaws: the ranks of attempt 1 go on from where they stood")
    until(lambda: REFUSED in said(output, 1), "the zombie is refused", LIMIT_S)
    line.note("attempt 1 tries to commit, and is refused: " + _sentence(said(output, 1)))
    member.thaw()
    line.note(f"the API server of {member.name} thaws")
    path = f"/apis/ray.io/v1/namespaces/tuneyard/rayjobs/{lost['name']}"
    until(lambda: _gone(member, path), "what is left of attempt 1 is removed", LIMIT_S)
    line.note("the RayJob of attempt 1 is removed from it")
    status = stage.ended("frozen")
    line.note(f"the job ends: {status['phase']}, after {len(status['attempts'])} attempts; committed: {committed(output)}")
    own = stage.losses(status)
    equal = own == losses
    again = lost["lastStep"] - status["attempts"][1]["resumedFrom"]
    stage.hub.kubectl("delete", "jobspec", "frozen", "--wait=false")
    return [
        "## A member freezes",
        "",
        *line.table(),
        "",
        f"Steps done twice: {again}. Losses of all {len(own)} steps equal to the undisturbed run's: {'bit for bit' if equal else 'NO'}. "
        f"A member counts as lost after {LOST_AFTER_S} s here (300 s by default).",
    ]


def preempted(stage: Stage, losses: list[float]) -> list[str]:
    """A job of high priority needs what a normal one of its team holds, whose quota is two slots."""
    quota = {"quota": {"cpu": 2}, "borrowingLimit": {"cpu": 0}}
    stage.hub.apply({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Team", "metadata": {"name": "default"}, "spec": quota})
    stage.submit(train_job("normal", stage.corpus))
    _, first = stage.running("normal", STRIKE_AT)
    line = TimeLine()
    high = train_job("high", stage.corpus)
    high["spec"]["priority"] = "high"
    high["spec"]["tasks"][0]["train"] |= {"steps": EVERY}
    stage.submit(high)
    line.note(f"`high` is submitted while `normal` is at step {first['lastStep']}, its last checkpoint at {first['checkpointStep']}")
    noticed = until(lambda: (a := attempts(stage, "normal")[0])["stopping"] and a, "it gets its notice", LIMIT_S)
    line.note(f"`normal` is asked to stop, at step {noticed['lastStep']}: {noticed['stoppedFor'][:120]}")
    stopped = until(lambda: (a := attempts(stage, "normal")[0]).get("endedAt") and a, "it has stopped", LIMIT_S)
    line.note(f"`normal` has stopped at step {stopped['lastStep']}, with a checkpoint of step {stopped['checkpointStep']}")
    until(lambda: attempts(stage, "high"), "high is placed", LIMIT_S)
    line.note("`high` is placed")
    until(lambda: attempts(stage, "high")[0]["phase"] == "Running", "high runs", LIMIT_S)
    line.note("`high` runs; `normal` says: " + stage.status("normal").get("message", "")[:160])
    done = stage.ended("high")
    line.note(f"`high` ends: {done['phase']}")
    again = until(lambda: len(a := attempts(stage, "normal")) > 1 and a[1]["lastStep"] and a[1], "normal goes on", LIMIT_S)
    line.note(f"`normal` goes on from step {again['resumedFrom']}")
    status = stage.ended("normal")
    line.note(f"`normal` ends: {status['phase']}, after {len(status['attempts'])} attempts")
    equal = stage.losses(status) == losses
    lost = stopped["lastStep"] - status["attempts"][1]["resumedFrom"]
    since = stopped["lastStep"] - noticed["lastStep"]
    stage.hub.kubectl("delete", "jobspec", "normal", "high", "--wait=false")
    stage.hub.kubectl("delete", "team", "default")
    return [
        "## A job of high priority takes the place of a normal one",
        "",
        *line.table(),
        "",
        f"Steps done twice: {lost}; steps that the victim made after its notice: {since}. Its losses equal to the undisturbed run's: "
        f"{'bit for bit' if equal else 'NO'}.",
    ]


def _sentence(text: str) -> str:
    found = next(line for line in text.splitlines() if REFUSED in line)
    return found.strip()[:160]


def _gone(member: Member, path: str) -> bool:
    try:
        return member.api.find(path) is None
    except Exception:  # noqa: BLE001 - it has only just come back
        return False


DEEDS: dict[str, Callable[[Stage, list[float]], list[str]]] = {"frozen": frozen, "preempted": preempted}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", type=Path, default=Path("/tmp/tuneyard-faults"))
    parser.add_argument("--keep", action="store_true", help="leave the clusters running")
    parser.add_argument("--only", nargs="*", default=list(DEEDS), choices=list(DEEDS))
    arguments = parser.parse_args()
    up(arguments.state, members=2, options=["--member-lost-after", str(LOST_AFTER_S)])
    for text in (arguments.state / "storage.env").read_text().splitlines():
        name, _, value = text.removeprefix("export ").partition("=")
        os.environ[name] = value
    stage = Stage(arguments.state, Clusters.found(arguments.state))
    lines = [
        f"The train job: {STEPS} steps, 2 ranks in 2 pods, a checkpoint every {EVERY} steps; what is done is done after step {STRIKE_AT}.",
        "Two cores carry everything: hub, two members, storage and ranks.",
    ]
    try:
        until(lambda: len(stage.hub.api.get(f"{API}/clusters")["items"]) == 2, "the members are known")
        stage.submit(corpus_job())
        stage.corpus = f"{stage.ended('corpus')['output']}/corpus/files"
        stage.submit(train_job("undisturbed", stage.corpus))
        losses = stage.losses(stage.ended("undisturbed"))
        stage.hub.kubectl("delete", "jobspec", "undisturbed", "corpus", "--wait=false")
        for name in arguments.only:
            lines += ["", *DEEDS[name](stage, losses)]
    finally:
        if not arguments.keep:
            down(arguments.state)
    write_page("federation_faults", "A lost member, and a preemption", lines)


if __name__ == "__main__":
    main()
