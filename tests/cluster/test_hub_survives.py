"""One object cannot stop the hub: whatever stands in an object, the hub lives, answers, and starts the jobs of others.

Two layers are tried apart: what the API server refuses by the CRDs, and what the hub makes of it all the same, on API servers whose CRDs
let everything through, as older ones would.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import urllib3
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.builders import hostile
from tests.clusters.hubs import API, JOBS, Operator, job, jobspec, prepared, rayjobs, remove_all, submit_all, until
from tests.servers.installed import free_port
from tests.testcluster import Hub, Member
from tests.testcluster.clusters import Clusters
from tests.testcluster.install import SYSTEM
from tests.testcluster.kubeapi import Refused

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REPORTS = f"{API}/namespaces/{JOBS}/attemptreports"
PATHS = {
    "jobspecs": f"{API}/namespaces/default/jobspecs",
    "schedules": f"{API}/namespaces/default/schedules",
    "teams": f"{API}/teams",
    "clusters": f"{API}/clusters",
    "modeltemplates": f"{API}/modeltemplates",
}
KINDS = {"jobspecs": "JobSpec", "schedules": "Schedule", "teams": "Team", "clusters": "Cluster", "modeltemplates": "ModelTemplate"}


@dataclass
class House:
    """A hub with one member, its operator, and jobs whose reports others write."""

    hub: Hub
    member: Member
    operator: Operator
    port: int
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    counts: Counter[str] = field(default_factory=Counter)
    victims: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.operator.start()
        until(self.answers, "the hub answers")
        self.pid = self.operator.processes.pid(self.operator.name)

    def answers(self) -> bool:
        """Whether /healthz says within a second that the hub is well."""
        try:
            return urllib3.request("GET", f"http://127.0.0.1:{self.port}/healthz", timeout=1.0, retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def lives(self, after: object) -> None:
        until(self.answers, f"the hub answers after {after!s:.3000}\n{self.operator.log[-3000:]}", 60)
        assert self.operator.processes.pid(self.operator.name) == self.pid, f"the hub has ended after {after}\n{self.operator.log[-3000:]}"

    def write(self, act: tuple[str, Any, Any]) -> None:
        """Write as somebody would; a refusal of an API server is as good as any other outcome."""
        kind, spec, status = act
        try:
            getattr(self, f"_write_{kind}", self._write)(kind, spec, status)
            self.counts[f"{kind} taken"] += 1
        except Refused:
            self.counts[f"{kind} refused"] += 1

    def _write(self, kind: str, spec: Any, status: Any) -> None:
        name = f"fuzz-{next(self.numbers)}"
        body = {"apiVersion": hostile.API_VERSION, "kind": KINDS[kind], "metadata": {"name": name}, "spec": spec}
        self.hub.api.create(PATHS[kind], body)
        if status is not None:
            self.hub.api.patch(f"{PATHS[kind]}/{name}/status", {"status": status})

    def _write_reports(self, _kind: str, _spec: Any, status: Any) -> None:
        attempt = self._victim()["name"]
        if self.member.api.find(f"{REPORTS}/{attempt}") is None:
            report = {"apiVersion": hostile.API_VERSION, "kind": "AttemptReport", "metadata": {"name": attempt}}
            self.member.api.create(REPORTS, report)
        self.member.api.patch(f"{REPORTS}/{attempt}/status", {"status": status})

    def _write_rayjobs(self, _kind: str, _spec: Any, status: Any) -> None:
        attempt = self._victim()["name"]
        self.member.api.patch(f"/apis/ray.io/v1/namespaces/{JOBS}/rayjobs/{attempt}/status", {"status": status})

    def _write_statuses(self, _kind: str, _spec: Any, status: Any) -> None:
        self._victim()
        self.hub.api.patch(f"{PATHS['jobspecs']}/{self.victims[-1]}/status", {"status": status})

    def _write_nodes(self, _kind: str, node: Any, _status: Any) -> None:
        body = {"apiVersion": "v1", "kind": "Node", **(node if isinstance(node, dict) else {"spec": node})}
        metadata = body.get("metadata") if isinstance(body.get("metadata"), dict) else {}
        self.member.api.create("/api/v1/nodes", {**body, "metadata": {**metadata, "name": f"fuzz-{next(self.numbers)}"}})

    def _write_kubeconfigs(self, _kind: str, kubeconfig: Any, _status: Any) -> None:
        name = f"fuzz-{next(self.numbers)}"
        data = {"kubeconfig": base64.b64encode(json.dumps(kubeconfig).encode()).decode()}
        metadata = {"name": name, "namespace": SYSTEM}
        self.hub.api.create(f"/api/v1/namespaces/{SYSTEM}/secrets", {"metadata": metadata, "data": data})
        endpoint = {"kubeconfigSecret": {"name": name, "key": "kubeconfig"}}
        self._write("clusters", {**hostile.CLUSTER, "endpoint": endpoint}, None)

    def _victim(self) -> dict[str, Any]:
        """The running attempt of a job; a new job where the last one has ended, which what is written does often."""
        if self.victims:
            attempts = (job(self.hub, self.victims[-1]).get("status") or {}).get("attempts") or []
            names = {item["metadata"]["name"] for item in rayjobs(self.member)}
            for attempt in reversed(attempts if isinstance(attempts, list) else []):
                if isinstance(attempt, dict) and attempt.get("name") in names and not attempt.get("endedAt"):
                    return attempt
        self.victims.append(f"victim-{next(self.numbers)}")
        return self.starts(self.victims[-1])

    def starts(self, name: str) -> dict[str, Any]:
        """The attempt of a new job, once its RayJob is there."""
        submit_all(self.hub, [jobspec(name, workers=1, priority="urgent")])

        def attempt() -> dict[str, Any] | None:
            attempts = (job(self.hub, name).get("status") or {}).get("attempts") or []
            names = {item["metadata"]["name"] for item in rayjobs(self.member)}
            return attempts[-1] if attempts and attempts[-1]["name"] in names else None

        found: dict[str, Any] = until(attempt, f"{name} has its RayJob\n{self.operator.log[-5000:]}")
        return found

    def remove(self, *kinds: str) -> None:
        """Delete all objects of these kinds, and wait until they are gone: no finalizer stays on any of them."""
        for kind in kinds:
            for name in self._names(kind):
                if name != self.member.name:
                    self.hub.api.delete(f"{PATHS[kind]}/{name}")
        until(
            lambda: all(set(self._names(kind)) <= {self.member.name} for kind in kinds),
            f"everything can be deleted: {self.operator.log[-5000:]}",
        )

    def _names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.hub.api.get(PATHS[kind])["items"]]


@pytest.fixture(scope="module")
def house(plain: Clusters) -> Iterator[House]:
    """Its CRDs let everything through at the end; `prepared` renews them."""
    member = plain.members[0]
    prepared(Clusters(plain.hub, (member,)))
    port = free_port()
    operator = Operator(plain.hub.folder, plain.hub.kubeconfig, "survives", options=("--metrics-port", str(port)))
    made = House(plain.hub, member, operator, port)
    made.start()
    yield made
    operator.stop()
    remove_all(plain.hub, "clusters")


NAMED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("a date that does not exist", "schedules", {**hostile.SCHEDULE, "cron": "0 0 30 2 *"}),
    ("a gang of any size", "jobspecs", jobspec("x", workers={"min": 1, "max": 10**12})["spec"]),  # type: ignore[arg-type]
    ("a duration of 300 digits", "jobspecs", jobspec("x", expectedDuration="9" * 300 + "s")["spec"]),
    (
        "a Secret of another namespace",
        "jobspecs",
        jobspec("x", env=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "../../x/secrets/y", "key": "k"}}}])["spec"],
    ),
    ("a quota that is no GPU count", "teams", {"quota": {"h100-80gb": 2**62}}),
    ("a weight of nearly nothing", "teams", {"weight": 1e-300}),
    ("a weight of nothing, as a whole number", "teams", {"weight": 0}),
    ("machines of a billion GPUs", "clusters", {**hostile.CLUSTER, "skus": [{"name": "x", "nodes": 1, "gpusPerNode": 10**9}]}),
)


def test_the_api_server_refuses_what_its_schema_can_see(house: House) -> None:
    unseen = {"a date that does not exist", "a gang of any size"}  # the schema knows neither calendars nor unions: the hub says so
    for what, kind, spec in NAMED:
        name = f"named-{next(house.numbers)}"
        body = {"apiVersion": hostile.API_VERSION, "kind": KINDS[kind], "metadata": {"name": name}, "spec": spec}
        if what in unseen:
            house.hub.api.create(PATHS[kind], body)
            continue
        with pytest.raises(Refused, match="422"):
            house.hub.api.create(PATHS[kind], body)
    said = until(lambda: [item for item in house.hub.api.get(PATHS["schedules"])["items"] if item.get("status")], "the Schedule says why")
    assert "names a date that does not exist" in said[0]["status"]["message"]
    assert said[0]["status"]["conditions"][0]["type"] == "Stalled"
    (huge,) = house.hub.api.get(PATHS["jobspecs"])["items"]
    until(lambda: "workers" in (job(house.hub, huge["metadata"]["name"]).get("status") or {}).get("message", ""), "the job says why")
    attempt = house.starts("beside")["name"]
    house.member.api.create(REPORTS, {"apiVersion": hostile.API_VERSION, "kind": "AttemptReport", "metadata": {"name": attempt}})
    for status in ({"observedAt": "0001-01-01T00:00:00"}, {"message": "x" * 700_000}):
        with pytest.raises(Refused, match="422"):
            house.member.api.patch(f"{REPORTS}/{attempt}/status", {"status": status})
    house.lives("what its API server refuses")
    house.remove("jobspecs", "schedules")


DEEP, BROAD = b"[" * 9_000 + b"]" * 9_000, b"[" + b",".join([b"[]"] * 400_000) + b"]"


def _nested(name: str, workers: bytes) -> bytes:
    """A JobSpec whose `workers`, which the schema lets through, is this JSON."""
    body = {"apiVersion": hostile.API_VERSION, "kind": "JobSpec", "metadata": {"name": name}, "spec": jobspec(name, workers=77)["spec"]}
    return json.dumps(body).encode().replace(b"77", workers)


def test_what_no_decoder_takes_stops_nobody_and_can_be_seen_and_removed(house: House) -> None:
    for name, workers in (("deep", DEEP), ("broad", BROAD)):
        house.hub.api.create(PATHS["jobspecs"], _nested(name, workers))
    attempt = house.starts("reporter")["name"]
    report = {"apiVersion": hostile.API_VERSION, "kind": "AttemptReport", "metadata": {"name": attempt}}
    house.member.api.create(REPORTS, report)
    metrics = b'{"status":{"phase":"Running","metrics":{"loss":' + DEEP[7_000:-7_000] + b"}}}"
    with contextlib.suppress(Refused):  # a schema that refuses it is as good
        house.member.api.patch(f"{REPORTS}/{attempt}/status", metrics)
    house.lives("objects that no decoder takes")
    assert house.starts("beside-them")
    house.operator.stop()
    house.start()
    assert house.starts("after-a-restart")
    said = _status_of_all(house)
    assert [words for words in said.splitlines() if "deep" in words and "Failed" in words], said
    for name in ("deep", "broad", "reporter"):
        house.hub.api.delete(f"{PATHS['jobspecs']}/{name}")
        until(lambda name=name: house.hub.api.find(f"{PATHS['jobspecs']}/{name}") is None, f"{name} can be deleted")
    until(lambda: house.member.api.find(f"{REPORTS}/{attempt}") is None, "its report is removed")
    house.remove("jobspecs")


def _status_of_all(house: House) -> str:
    """What `tuneyard status -A` prints."""
    command = [str(Path(sys.executable).parent / "tuneyard"), "status", "-A", "--kubeconfig", str(house.hub.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def open_house(house: House) -> House:
    """The same, with CRDs that let everything through."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for api in (house.hub.api, house.member.api):
        for item in api.get(CRDS)["items"]:
            if item["spec"]["group"] in ("tuneyard.dev", "ray.io"):
                versions = [
                    {**version, "schema": {"openAPIV3Schema": anything}, "additionalPrinterColumns": []}
                    for version in item["spec"]["versions"]
                ]
                api.patch(f"{CRDS}/{item['metadata']['name']}", {"spec": {"versions": versions}})
    until(lambda: _takes_anything(house), "the CRDs let everything through")
    return house


def _takes_anything(house: House) -> bool:
    body = {"apiVersion": hostile.API_VERSION, "kind": "JobSpec", "metadata": {"name": "probe"}, "spec": {"probe": 1}}
    report = {"apiVersion": hostile.API_VERSION, "kind": "AttemptReport", "metadata": {"name": "probe"}, "spec": 5}
    try:
        house.hub.api.call("POST", f"{PATHS['jobspecs']}?dryRun=All&fieldValidation=Strict", body)
        house.member.api.call("POST", f"{REPORTS}?dryRun=All&fieldValidation=Strict", report)
    except Refused:
        return False
    return True


def test_what_older_api_servers_let_through_is_said_and_stops_nobody(open_house: House) -> None:
    house = open_house
    for _, kind, spec in NAMED:
        house.write((kind, spec, None))
    for act in (("teams", hostile.TEAM, {"usageAt": "never"}), ("clusters", hostile.CLUSTER, {"heartbeat": "0001-01-01T00:00:00"})):
        house.write(act)
    tolerations = [{"key": ["not", "a", "text"]}]
    spec = {"skus": [{"name": "cpu", "nodes": 1, "gpusPerNode": 1, "tolerations": tolerations}], "podTemplate": {"spec": 5}}
    house.write(("clusters", spec, None))
    house.starts("behind")
    items = house.hub.api.get(PATHS["jobspecs"])["items"]
    refused = [item["metadata"]["name"] for item in items if item["metadata"]["name"].startswith("fuzz")]
    until(
        lambda: all((job(house.hub, name).get("status") or {}).get("phase") == "Failed" for name in refused), "each job says what is wrong"
    )
    house.lives("the named cases")
    house.remove("jobspecs", "schedules", "teams", "clusters")


def test_a_job_whose_report_cannot_be_read_is_stopped_cancelled_and_deleted_all_the_same(open_house: House) -> None:
    house = open_house
    bad = {"phase": "Running", "observedAt": "0001-01-01T00:00:00", "message": "x" * 700_000, "failure": 5, "progress": {"step": "²"}}
    beats = itertools.count()

    def speak(attempt: str, **state: Any) -> None:
        """Report nonsense, a little different each time: an attempt that falls silent is lost."""
        house.member.api.patch(f"{REPORTS}/{attempt}/status", {"status": {**bad, "stage": f"beat {next(beats)}", **state}})

    for name, change in (("stopped", {"suspend": True}), ("cancelled", {"cancelled": True}), ("deleted", None)):
        attempt = house.starts(name)["name"]
        report = {"apiVersion": hostile.API_VERSION, "kind": "AttemptReport", "metadata": {"name": attempt}}
        house.member.api.create(REPORTS, report)

        def told(name: str = name, attempt: str = attempt) -> dict[str, Any] | None:
            speak(attempt)
            status = job(house.hub, name)["status"]
            return status if status["phase"] == "Running" and status["message"] else None

        status = until(told, "what can be read of the report counts")
        assert "cannot be read in full" in status["message"]
        assert len(json.dumps(status)) < 100_000
        if change is None:
            continue
        house.hub.api.patch(f"{PATHS['jobspecs']}/{name}", {"spec": change})

        def asked(attempt: str = attempt) -> Any:
            speak(attempt)
            return house.member.api.get(f"{REPORTS}/{attempt}").get("spec", {}).get("stop")

        until(asked, f"{name} is asked to stop")
        speak(attempt, phase="Cancelled")
        until(lambda name=name: job(house.hub, name)["status"]["attempts"][0].get("endedAt"), f"the attempt of {name} has ended")
    until(lambda: job(house.hub, "cancelled")["status"]["phase"] == "Cancelled", "it is cancelled")
    house.remove("jobspecs")
    until(lambda: not rayjobs(house.member), "nothing is left on the member")


def test_a_status_that_cannot_be_read_at_all_keeps_no_job_from_being_deleted(open_house: House) -> None:
    house = open_house
    house.starts("scrambled")
    for status in ({"attempts": {"a": 5}}, {"attempts": [5, {"placement": "x", "name": []}], "phase": [], "tasks": 3}):
        house.hub.api.patch(f"{PATHS['jobspecs']}/scrambled/status", {"status": status})
    house.starts("unharmed")
    house.remove("jobspecs")


def test_what_another_version_of_the_hub_has_written_is_kept_or_left_alone(open_house: House) -> None:
    house, path = open_house, f"{PATHS['jobspecs']}/skewed/status"
    attempt = house.starts("skewed")
    report = {"apiVersion": hostile.API_VERSION, "kind": "AttemptReport", "metadata": {"name": attempt["name"]}}
    house.member.api.create(REPORTS, report)
    ran = rayjobs(house.member)[0]["metadata"]["uid"]

    def stored() -> dict[str, Any]:
        found: dict[str, Any] = job(house.hub, "skewed")["status"]
        return found

    house.operator.stop()
    newer = {**stored()["attempts"][0], "region": "eu", "placement": {**attempt["placement"], "rack": {"row": 3}}}
    house.hub.api.patch(path, {"status": {"attempts": [newer], "budget": {"left": 2}}})
    house.hub.api.patch(f"{PATHS['clusters']}/{house.member.name}", {"spec": {"region": "eu"}})
    house.start()
    state = {"phase": "Running", "stage": "x", "progress": {"step": 3, "of": 9, "watts": 700}, "weather": "fine"}
    house.member.api.patch(f"{REPORTS}/{attempt['name']}/status", {"status": {**state, "observedAt": hostile.NOON}})
    status = until(lambda: stored() if stored()["phase"] == "Running" else None, "a newer hub's attempt goes on under this one")
    (followed,) = status["attempts"]
    assert (followed["number"], followed["lastStep"], followed["region"]) == (1, 3, "eu")
    assert (followed["placement"]["rack"], status["budget"]) == ({"row": 3}, {"left": 2})

    hibernating = {**followed, "phase": "Hibernating"}
    house.hub.api.patch(path, {"status": {"attempts": [hibernating]}})
    status = until(lambda: stored() if "cannot be read" in stored()["message"] else None, "it says that it cannot read the attempt")
    assert "attempts.0.phase" in status["message"]
    assert [each["type"] for each in status["conditions"] if each["type"] == "Stalled"]
    house.starts("beside-it")
    assert stored()["attempts"] == [hibernating]
    house.hub.api.patch(path, {"status": {"attempts": [followed]}})
    until(lambda: "cannot be read" not in stored()["message"], "it goes on once the attempt can be read")
    assert not [each["type"] for each in stored()["conditions"] if each["type"] == "Stalled"]
    assert [each["number"] for each in stored()["attempts"]] == [1]
    assert ran in [each["metadata"]["uid"] for each in rayjobs(house.member)]
    house.remove("jobspecs")


def fuzzed(house: House, examples: int, start: int) -> None:
    @seed(start)
    @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.lists(hostile.acts(), min_size=1, max_size=8))
    def written(acts: list[Any]) -> None:
        for act in acts:
            house.write(act)
        house.lives(acts)

    written()
    house.starts(f"after-{next(house.numbers)}")
    house.lives("all of it")
    print(f"{examples} examples: {dict(sorted(house.counts.items()))}")


@pytest.mark.parametrize("examples", [40, pytest.param(600, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_no_object_however_written_stops_the_hub(open_house: House, examples: int) -> None:
    house = open_house
    house.victims.clear()
    fuzzed(house, examples, start=examples)
    house.remove("jobspecs", "schedules", "teams", "clusters", "modeltemplates")
    for node in house.member.api.get("/api/v1/nodes")["items"]:
        if node["metadata"]["name"].startswith("fuzz"):
            house.member.api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    house.lives("everything is deleted")
