"""Jobs in every phase on one API server, and hubs of several versions over them: upgraded, and rolled back, while attempts are played."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.clusters.hubs import API, RAYJOBS, Operator, job, jobspec, phases, prepared, rayjobs, submit_all, until
from tests.clusters.players import Player, playing
from tests.clusters.versions import Version
from tests.clusters.watched import Seen, Watch, broken, made
from tests.servers.installed import free_port
from tests.testcluster import Member
from tests.testcluster.clusters import Clusters
from tests.testcluster.fake_nodes import FakeNodes
from tests.testcluster.install import SYSTEM

from tuneyard_operators.rendering import JOB

JOBSPECS = f"{API}/namespaces/default/jobspecs"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/tuneyard-hub"
FINAL = ("Succeeded", "Failed", "Cancelled")
NODES = 8
"""Machines of eight GPUs: jobs of eight take one each, and all are taken when a hub is changed."""
STEADY = ("running", "starting", "chain", "templated", "urgent", "late", "queued-1", "suspended")
"""Jobs that nothing in the story takes an attempt from."""
_SCHEDULE = "minutely"
_TEMPLATE = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "ModelTemplate", "metadata": {"name": "qwen"}}
_MODEL = {"name": "Qwen/Qwen2.5-1.5B"}


@dataclass(frozen=True)
class Outcome:
    """How a story ended. `made`: RayJobs ever made; `went`: names of the attempts of steady jobs that ran when the first hub was replaced;
    `lost`: attempts of steady jobs that did not succeed, with the reason; `broken`: what no hub may do; `failures`: tracebacks in logs of
    hubs, by their last line."""

    phases: dict[str, str]
    attempts: dict[str, int]
    made: int
    went: list[str]
    lost: list[str]
    broken: list[str]
    failures: list[str]


@dataclass
class House:
    """One API server that is hub and member at once, its nodes being fake, and what was started on it."""

    folder: Path
    member: Member
    templates: bool = True
    """Whether the hub that begins knows ModelTemplates."""
    replicas: dict[str, Operator] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def apply_crds(self, version: Version) -> None:
        self.member.apply(*version.crds(self.folder / "crds" / f"{next(self.numbers)}"))

    def start(self, version: Version, *, namespace: str = SYSTEM) -> Operator:
        """One more replica, which waits until it leads."""
        name = f"hub-{next(self.numbers)}-{version.name}"
        options = ("--metrics-port", str(free_port()), "--stop-grace", "600") if version.takes_a_grace else ()
        found = Operator(self.folder, self.member.kubeconfig, name, (*options, "--namespace", namespace), environment=version.environment)
        found.start()
        self.replicas[name] = found
        return found

    def leads(self, replica: Operator) -> bool:
        """Whether the Lease names this replica's process."""
        holder = ((self.member.api.find(LEASE) or {}).get("spec") or {}).get("holderIdentity") or ""
        return bool(holder.endswith(f"-{replica.processes.pid(replica.name)}"))

    def status(self, name: str) -> dict[str, Any]:
        return dict(job(self.member, name).get("status") or {})

    def patch(self, name: str, **spec: Any) -> None:
        self.member.api.patch(f"{JOBSPECS}/{name}", {"spec": spec})

    def attempts(self, name: str) -> list[dict[str, Any]]:
        return list(self.status(name).get("attempts") or [])

    def failures(self) -> list[str]:
        """The last line of each traceback in a log, with how often it stands there."""
        found: Counter[str] = Counter()
        for replica in self.replicas.values():
            for part in replica.log.split("Traceback (most recent call last)")[1:]:
                last = next((line for line in part.splitlines()[1:] if line and not line.startswith((" ", "\t"))), "")
                found[f"{replica.name.partition('-')[2].partition('-')[2]}: {last[:160]}"] += 1
        return [f"{text} ({count} times)" for text, count in found.items()]

    def stalled(self) -> list[str]:
        """Jobs whose status the hub cannot read, as it says of them."""
        items = self.member.api.get(JOBSPECS)["items"]
        held = {each["metadata"]["name"]: (each.get("status") or {}).get("conditions") or [] for each in items}
        return sorted(name for name, conditions in held.items() if any(each["type"] == "Stalled" for each in conditions))

    def clear(self) -> None:
        """End all hubs."""
        for replica in self.replicas.values():
            replica.stop()  # one that is killed leaves its process that makes forecasts
        self.replicas.clear()


@contextmanager
def house(folder: Path) -> Iterator[House]:
    """Raises Unavailable where no API server can run."""
    member = Member("member-1", folder / "member-1", fake=(FakeNodes("gpu", NODES),), with_kuberay=False)
    member.start()
    found = House(folder, member)
    try:
        prepared(Clusters(member, (member,)), nodes=NODES)
        yield found
    finally:
        found.clear()
        member.close()


class Story:
    """What happens to the jobs, in chapters; between them hubs are changed."""

    def __init__(self, house: House, player: Player) -> None:
        self.house = house
        self.player = player

    def begin(self) -> None:
        """Bring a job into every phase, with all machines taken."""
        house, player = self.house, self.player
        player.silent.add("starting")
        player.deaf |= {"cancelling", "victim", "resting"}
        player.ends |= {"succeeded", "chain/train", _SCHEDULE}
        house.member.apply(_every_minute())
        self._submit(jobspec("succeeded"))
        until(lambda: phases(house.member).get("succeeded") == "Succeeded", "a job has ended")
        self._submit(jobspec("starting"), jobspec("running"), _chain("chain"), jobspec("cancelling"), jobspec("resting"))
        self._submit(jobspec("retried", retries={"max": 20}), jobspec("suspended", suspend=True))
        if house.templates:
            house.member.apply({**_TEMPLATE, "spec": {"train": {"model": _MODEL, "batch": {"global": 64}}}})
            self._submit(_templated("templated"))
        else:
            self._submit(jobspec("templated"))
        self._submit(jobspec("victim", priority="low"))
        self._runs("running", "cancelling", "resting", "templated", "retried", "victim")
        until(
            lambda: any(each["task"] == "tune" and each["phase"] == "Running" for each in house.attempts("chain")), "a task follows another"
        )
        until(lambda: house.attempts("starting")[0]["created"], "a RayJob whose pods do not come up")
        self._submit(jobspec("urgent"))
        until(lambda: any(each["stopping"] for each in house.attempts("victim")), "a preemption is under way")
        player.fails.add("retried")
        until(lambda: house.attempts("retried")[0].get("failure"), "a job waits for another attempt")
        self._submit(*(jobspec(f"queued-{number}") for number in (1, 2, 3)))
        house.patch("cancelling", cancelled=True)
        house.patch("resting", suspend=True)
        until(lambda: all(house.attempts(name)[0]["stopping"] for name in ("cancelling", "resting")), "attempts are asked to stop")
        until(lambda: phases(house.member).get("queued-3") == "Queued", "jobs wait")

    def edit_without_a_leader(self) -> None:
        """What people do while nobody leads: one waiting job is cancelled, one deleted, one submitted."""
        self.house.patch("queued-2", cancelled=True)
        self.house.member.kubectl("delete", "jobspec", "queued-3", "--wait=false")
        self._submit(jobspec("late"))

    def go_on(self) -> None:
        """Requests to stop are answered: the job that was made room for starts, and so does one that waits."""
        house = self.house
        self.player.deaf.clear()
        self.player.silent.clear()
        until(lambda: house.attempts("urgent"), "the preemption comes to its end")
        until(lambda: phases(house.member).get("cancelling") == "Cancelled", "the cancelled job has ended")
        until(lambda: house.attempts("resting")[0].get("endedAt"), "the suspended job rests")
        self._runs("starting", "queued-1")

    def turn_back(self) -> None:
        """After the roll-back: what rests goes on, and what was lost again and again has a node that lasts."""
        self.player.fails.clear()
        self.house.patch("resting", suspend=False)
        self.house.patch("suspended", suspend=False)

    def end(self) -> None:
        self.house.member.api.patch(f"{API}/namespaces/default/schedules/{_SCHEDULE}", {"spec": {"suspend": True}})
        self.player.finale = True
        until(lambda: all(each in FINAL for each in phases(self.house.member).values()), "every job ends", 300)
        until(lambda: not rayjobs(self.house.member), "nothing is left on the member")

    def _submit(self, *specs: dict[str, Any]) -> None:
        submit_all(self.house.member, specs)

    def _runs(self, *names: str) -> None:
        for name in names:
            until(lambda name=name: any(each["phase"] == "Running" for each in self.house.attempts(name)), f"{name} runs")


def told(house: House, change: Callable[[Story], None]) -> Outcome:
    """The story, whose later chapters `change` calls, with hubs replaced between them."""
    jobs, runs = Watch(house.member.api, f"{API}/jobspecs"), Watch(house.member.api, RAYJOBS)
    with playing(Player(house.member)) as player:
        story = Story(house, player)
        story.begin()
        went = [each["metadata"]["name"] for each in rayjobs(house.member) if each["metadata"]["labels"][JOB] in STEADY]
        change(story)
    ended = {name: phase for name, phase in phases(house.member).items() if not name.startswith(_SCHEDULE)}
    every = {name: house.attempts(name) for name in ended}
    lost = [_in_words(name, each) for name in STEADY for each in every.get(name, []) if each["phase"] != "Succeeded"]
    seen_jobs, seen_runs = jobs.close(), runs.close()
    attempts = {name: len(own) for name, own in every.items()}
    number = sum(len(names) for name, names in made(seen_runs).items() if not name.startswith(_SCHEDULE))
    wrong = [*broken(seen_jobs, seen_runs), *_missed(seen_jobs)]
    return Outcome(ended, attempts, number, went, lost, wrong, house.failures())


def _missed(jobs: list[Seen]) -> list[str]:
    """Minutes without a run of the Schedule: a run is named by its minute."""
    minutes = sorted({int(each.name.rpartition("-")[2]) for each in jobs if each.name.startswith(_SCHEDULE)})
    return [f"minute {after - 1} has no run" for before, after in pairwise(minutes) if after != before + 1]


def _in_words(job: str, attempt: dict[str, Any]) -> str:
    return f"{job} {attempt['number']}: {attempt.get('failure')}: {attempt.get('message', '')[:120]}"


def _every_minute() -> dict[str, Any]:
    """A Schedule whose runs take no GPUs."""
    task = {"name": "say", "process": {"command": ["true"]}}
    spec = {"cron": "* * * * *", "concurrency": "allow", "template": {"spec": {"tasks": [task]}}}
    return {
        "apiVersion": "tuneyard.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": _SCHEDULE, "namespace": "default"},
        "spec": spec,
    }


def _chain(name: str) -> dict[str, Any]:
    """Two tasks, of which the second trains what the first has made."""
    spec = jobspec(name)
    (first,) = spec["spec"]["tasks"]
    second = json.loads(json.dumps(first))
    second["name"], second["train"]["model"] = "tune", {"from": "train"}
    spec["spec"]["tasks"].append(second)
    return spec


def _templated(name: str) -> dict[str, Any]:
    spec = jobspec(name, template="qwen")
    train = spec["spec"]["tasks"][0]["train"]
    del train["model"], train["batch"]
    return spec
