"""The API of logs: a replica with the rights of its chart behind a real API server; readers have a kubeconfig and nothing else."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from tests.hub_client import JOBS, create, read_until, report, started
from tests.hub_jobs import make_attempt, make_failed_attempt, make_manifest, make_running
from tests.hubs import Operator
from tests.servers import S3, free_port, make_s3
from tests.testcluster import Hub, Unavailable
from tests.testcluster.aggregated import LOGS, LOGS_API, served_here
from tests.testcluster.install import SYSTEM, write_crds
from tests.testcluster.kubeapi import Refused
from tests.testcluster.waiting import wait_for
from tests.unit.charts.rendering import HUB, render

from tuneyard.cli import main
from tuneyard.cluster.log_api import LARGEST_ANSWER
from tuneyard.storage import Store, open_store
from tuneyard.tracking.task_logs import Chunk

Object = dict[str, Any]
Say = Callable[..., tuple[int, str, str]]
LOG = "/apis/logs.tuneyard.dev/v1alpha1/namespaces/{}/jobspecs/{}/log"
_NOT_OF_A_PROCESS = ("Deployment", "PodDisruptionBudget", "CustomResourceDefinition")
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True)
class Served:
    """`reader`: kubeconfig of someone with the role `view` in the namespace default."""

    hub: Hub
    operator: Operator
    s3: S3
    port: int
    health: str
    reader: Path

    def healthy(self) -> bool:
        return bool(urllib3.request("GET", f"{self.health}/healthz", retries=False, timeout=5).status == 200)

    def available(self) -> bool:
        conditions = (self.hub.api.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{LOGS_API}").get("status") or {}).get(
            "conditions"
        ) or []
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    def store(self, output: str, monkeypatch: pytest.MonkeyPatch) -> Store:
        with monkeypatch.context() as environment:
            for name, value in self.s3.environment.items():
                environment.setenv(name, value)
            return open_store(output)


def binding(user: str, role: str, namespace: str = "default") -> Object:
    rbac = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-{role}", "namespace": namespace},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
    }


def cluster(name: str, server: str) -> Object:
    env = [{"name": "AWS_ENDPOINT_URL", "value": server}, {"name": "AWS_REGION", "value": "us-east-1"}]
    spec = {"skus": [{"name": "h100-80gb", "nodes": 2, "gpusPerNode": 8}], "env": env}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}


def secret(name: str, values: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "stringData": values}


@pytest.fixture(scope="module")
def served(cluster_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The hub's cluster, the chart's objects, and a replica that never leads: it is given no lease."""
    folder = tmp_path_factory.mktemp("logs")
    hub = Hub("logs", cluster_folder / "logs")
    s3 = make_s3(folder)
    port, health = free_port(), free_port()
    try:
        hub.start()
    except Unavailable as reason:
        pytest.skip(f"NO CLUSTERS ON THIS MACHINE: {reason}")
    if hub.address.startswith("127."):
        hub.close()
        pytest.skip("NO BRIDGE WITHOUT ROOT: an API server reaches no Service on a loopback address")
    operator = Operator(
        folder,
        folder / "operator.yaml",
        options=("--logs-port", str(port), "--metrics-port", str(health)),
        # Keys of the hub's own, to a server of its own: no author's job may be read with these.
        environment={"AWS_ACCESS_KEY_ID": "the-hubs", "AWS_SECRET_ACCESS_KEY": "the-hubs", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"},
    )
    try:
        hub.apply(*write_crds(folder / "crds"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        chart = [each for each in render(HUB) if each["kind"] not in _NOT_OF_A_PROCESS]
        chart = [each for each in chart if each["metadata"]["name"] != "tuneyard-hub-metrics"]
        leases = [each for each in chart if each["kind"] in ("Role", "RoleBinding") and each["metadata"]["name"] == "tuneyard-hub"]
        hub.apply(*served_here((each for each in chart if each not in leases), hub.address, port))
        token = hub.kubectl("create", "token", "tuneyard-hub", "-n", SYSTEM, "--duration=24h").strip()
        config = yaml.safe_load(hub.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        operator.kubeconfig.write_text(yaml.safe_dump(config))
        hub.apply(binding("ada", "view"), binding("eve", "tuneyard-only-jobspecs"))
        only = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "tuneyard-only-jobspecs"}}
        hub.apply(only | {"rules": [{"apiGroups": ["tuneyard.dev"], "resources": ["jobspecs"], "verbs": ["get"]}]})
        (folder / "ada").write_text(hub.kubeconfig_for("ada"))
        with s3.started():
            found = Served(hub, operator, s3, port, f"http://127.0.0.1:{health}", folder / "ada")
            operator.start()
            wait_for("the API of logs", found.available, limit_s=240, words=lambda: operator.log[-3000:])
            hub.apply(secret("s3", {name: s3.environment[name] for name in KEYS}), cluster("gcp-h100", s3.environment["AWS_ENDPOINT_URL"]))
            yield found
    finally:
        operator.processes.end_all()
        hub.close()


@pytest.fixture
def say(served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Say:
    """A command line of the reader, on a machine without keys of storage."""
    for name in (*KEYS, "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(served.reader))

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def make_job(served: Served, name: str, output: str | None = None, *, env: list[Object] | None = None, **status: Any) -> str:
    """A running job of the name, whose keys are in the Secret `s3`; the URI of its output."""
    output = output or f"s3://{served.s3.bucket}/{name}-{time.monotonic_ns()}"
    keys = [{"name": key, "valueFrom": {"secretKeyRef": {"name": "s3", "key": key}}} for key in KEYS]
    create(served.hub, make_manifest(name, env=keys if env is None else env))
    report(served.hub, make_running() | {"output": output} | status, name)
    return output


def raw(served: Served, name: str, **parameters: object) -> Any:
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    return served.hub.api.get(f"{LOG.format('default', name)}?{query}")


@pytest.fixture
def two_ranks(served: Served, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A job whose two ranks and driver have printed; its name."""
    name = f"j-{abs(hash(request.node.name))}"
    store = served.store(make_job(served, name), monkeypatch)
    for source in ("rank-0", "rank-1", "driver"):
        store.create(Chunk("train", 2, source, 1).path, f"hello from {source}\n".encode())
        store.create(Chunk("train", 2, source, 2).path, f"more from {source}\n".encode())
    return name


# --- readers


def test_who_may_view_a_namespace_reads_its_logs_with_a_kubeconfig(two_ranks: str, say: Say) -> None:
    code, out, err = say("logs", two_ranks)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"[train {who}] {what} from {who.replace(' ', '-')}" for who in ("driver", "rank 0", "rank 1") for what in ("hello", "more")
    ]
    assert say("logs", two_ranks, "--rank", 1)[1] == "hello from rank-1\nmore from rank-1\n"
    assert say("logs", two_ranks, "--source", "driver", "--tail", 1)[1] == "more from driver\n"
    assert say("logs", two_ranks, "--rank", 7)[::2] == (
        2,
        "error: rank 7 has printed nothing in this attempt\nnext: there are: driver, rank-0, rank-1\n",
    )
    assert "attempt 1 of train has left no logs; it failed: NodeLost" in say("logs", two_ranks, "--attempt", 1)[2]


def test_kubectl_reads_it_raw(served: Served, two_ranks: str) -> None:
    path = LOG.format("default", two_ranks)
    answer = json.loads(served.hub.kubectl("get", "--raw", f"{path}?source=rank-1"))
    assert answer["kind"] == "JobSpecLog"
    assert (answer["task"], answer["attempt"], answer["sources"]) == ("train", 2, ["driver", "rank-0", "rank-1"])
    assert answer["parts"] == [{"source": "rank-1", "text": "hello from rank-1\nmore from rank-1\n"}]
    again = json.loads(served.hub.kubectl("get", "--raw", f"{path}?cursor={answer['cursor']}"))
    assert [part["source"] for part in again["parts"]] == ["driver", "rank-0"]
    assert served.hub.kubectl("get", "--raw", f"{path}?source=driver&format=text&tailLines=1") == "more from driver\n"
    assert served.hub.kubectl("get", "jobspecs", two_ranks, "-o", "name") == f"jobspec.tuneyard.dev/{two_ranks}\n"
    assert "jobspecs.logs.tuneyard.dev" not in served.hub.kubectl("api-resources", "-o", "name")
    right = ("get", "jobspecs.logs.tuneyard.dev", "--subresource=log", "-n", "default")
    assert served.hub.kubectl("--kubeconfig", str(served.reader), "auth", "can-i", *right) == "yes\n"


def test_who_lacks_the_right_is_told_which(served: Served, two_ranks: str, say: Say, tmp_path: Path) -> None:
    (tmp_path / "eve").write_text(served.hub.kubeconfig_for("eve"))
    code, out, err = say("logs", two_ranks, "--kubeconfig", tmp_path / "eve")
    assert (code, out) == (1, "")
    assert err == (
        f"error: eve may not get jobspecs/log in namespace default of the hub at {served.hub.server}\n"
        "next: ask its administrators for the verb 'get' on jobspecs/log of logs.tuneyard.dev, which the role `view` has; "
        "check: kubectl auth can-i get jobspecs.logs.tuneyard.dev --subresource=log -n default\n"
    )


def test_who_lacks_the_right_and_has_keys_reads_storage(
    served: Served, two_ranks: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "eve").write_text(served.hub.kubeconfig_for("eve"))
    for name, value in served.s3.environment.items():
        monkeypatch.setenv(name, value)
    assert say("logs", two_ranks, "--rank", 0, "--kubeconfig", tmp_path / "eve")[:2] == (0, "hello from rank-0\nmore from rank-0\n")


# --- strangers


def direct(served: Served, path: str, headers: dict[str, str], certificate: Path | None = None) -> tuple[int, Object]:
    """A question past the API server."""
    context = ssl._create_unverified_context()
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    connection = http.client.HTTPSConnection("127.0.0.1", served.port, context=context, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


ROOT = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}


@pytest.mark.parametrize("path", ["/apis/logs.tuneyard.dev/v1alpha1", "/nothing", LOG.format("default", "any")])
def test_nobody_but_the_api_server_is_answered(served: Served, path: str) -> None:
    code, said = direct(served, path, ROOT)
    assert (code, said["kind"], said["reason"]) == (401, "Status", "Unauthorized")


def test_certificates_of_users_do_not_pass_for_the_front_proxys(served: Served) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        direct(served, LOG.format("default", "any"), ROOT, served.hub.folder / "pki" / "admin.crt")
    other = served.hub._plane.front_proxy.issue("another-proxy")
    code, said = direct(served, LOG.format("default", "any"), ROOT, other.certificate)
    assert (code, said["message"]) == (401, "this certificate is not that of the API server's front proxy")


def test_a_forged_user_is_the_one_who_forges(served: Served, two_ranks: str, tmp_path: Path) -> None:
    """Through the API server: what a reader writes into its headers is replaced."""
    (tmp_path / "eve").write_text(served.hub.kubeconfig_for("eve"))
    words = ("--kubeconfig", str(tmp_path / "eve"), "get", "--raw", LOG.format("default", two_ranks))
    with pytest.raises(RuntimeError, match='User "eve" cannot get resource "jobspecs/log"'):
        served.hub.kubectl(*words)
    config = yaml.safe_load((tmp_path / "eve").read_text())["users"][0]["user"]
    pair = tmp_path / "pair"
    pair.write_bytes(base64.b64decode(config["client-certificate-data"]) + base64.b64decode(config["client-key-data"]))
    context = ssl._create_unverified_context()
    context.load_cert_chain(pair)
    pool = urllib3.PoolManager(ssl_context=context, retries=False, assert_hostname=False)
    answer = pool.request("GET", served.hub.server + LOG.format("default", two_ranks), headers=ROOT)
    assert answer.status == 403
    assert 'User \\"eve\\"' in answer.data.decode()


@pytest.mark.parametrize(
    "path",
    [
        LOG.format("default", ".."),
        LOG.format("default", "..%2f..%2fx"),
        LOG.format("default", "UPPER"),
        LOG.format("..%2fx", "j"),
        LOG.format("default", "j") + "?source=..%2f..%2fsecret",
        LOG.format("default", "j") + "?cursor=../x:1",
        LOG.format("default", "j") + "?attempt=-1",
        LOG.format("default", "j") + "?atempt=1",
        LOG.format("default", "j") + "?limitBytes=99999999999",
    ],
)
def test_names_that_lead_elsewhere_are_refused(served: Served, path: str) -> None:
    with pytest.raises(Refused) as refused:
        served.hub.api.get(path)
    assert refused.value.status in (400, 404)
    assert served.healthy()


# --- storage of others


def test_an_author_leads_the_hub_to_no_server_of_his(served: Served, say: Say) -> None:
    heard: list[bytes] = []

    class Listener(BaseHTTPRequestHandler):
        def handle(self) -> None:
            heard.append(self.request.recv(65536))

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        keys = [{"name": key, "valueFrom": {"secretKeyRef": {"name": "s3", "key": key}}} for key in KEYS]
        make_job(served, "led-astray", env=[*keys, {"name": "AWS_ENDPOINT_URL_S3", "value": address}])
        code, out, err = say("logs", "led-astray")
        server.shutdown()
        thread.join()
    assert (code, out, heard) == (1, "", [])
    assert f"is at {address}: that is what the job says, and" in err


def test_the_hubs_own_keys_open_nothing_that_an_author_names(served: Served) -> None:
    make_job(served, "keyless", env=[])
    with pytest.raises(Refused, match="the hub has no keys for the storage of default/keyless: the Secret tuneyard-storage of namespace"):
        raw(served, "keyless")


def member(name: str, server: str, **spec: Any) -> Object:
    """A Cluster that gives its containers keys, from a Secret of its namespace `jobs-there`."""
    found = cluster(name, server)
    found["spec"]["env"] += [{"name": key, "valueFrom": {"secretKeyRef": {"name": "of-member", "key": key}}} for key in KEYS]
    found["spec"] |= {"namespace": "jobs-there", **spec}
    return found


def placed_on(name: str) -> list[Object]:
    return [make_attempt(1) | {"placement": make_attempt()["placement"] | {"cluster": name}}]


def test_the_keys_that_a_member_gives_to_its_pods(served: Served, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {name: served.s3.environment[name] for name in KEYS}
    given = secret("of-member", values)
    given["metadata"]["namespace"] = "jobs-there"
    served.hub.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobs-there"}}, given)
    served.hub.apply(member("home", served.s3.environment["AWS_ENDPOINT_URL"]))
    store = served.store(make_job(served, "at-home", env=[], attempts=placed_on("home")), monkeypatch)
    store.create(Chunk("train", 1, "driver", 1).path, b"hello\n")
    assert say("logs", "at-home") == (0, "hello\n", "")


def test_a_member_that_is_away_gives_none_and_says_so(served: Served) -> None:
    config = yaml.safe_load(served.hub.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    there = secret("away-kubeconfig", {"kubeconfig": yaml.safe_dump(config)})
    there["metadata"]["namespace"] = SYSTEM
    reference = {"kubeconfigSecret": {"name": "away-kubeconfig", "key": "kubeconfig"}}
    served.hub.apply(there, member("away", served.s3.environment["AWS_ENDPOINT_URL"], endpoint=reference))
    make_job(served, "far-away", env=[], attempts=placed_on("away"))
    with pytest.raises(Refused, match=r"the member away gives no keys: https://127\.0\.0\.1:9 does not answer") as refused:
        raw(served, "far-away")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("hdfs://nowhere.example:8020/models/x", "hdfs://, which the hub does not read"),
        ("webhdfs://127.0.0.1:1/models/x", "webhdfs://, which the hub does not read"),
        ("file:///etc", "a path of its pods' machines"),
        ("/etc", "a path of its pods' machines"),
        ("s3://key:secret@bucket/x", "credentials are written into a s3:// URI"),
    ],
)
def test_what_the_hub_does_not_read(served: Served, output: str, why: str) -> None:
    name = f"o-{abs(hash(output))}"
    make_job(served, name, output)
    with pytest.raises(Refused) as refused:
        raw(served, name)
    assert refused.value.status == 400
    assert why in str(refused.value)


def test_a_local_output_is_read_where_it_lies(served: Served, say: Say, tmp_path: Path) -> None:
    make_job(served, "local", str(tmp_path / "out"))
    open_store(str(tmp_path / "out")).create(Chunk("train", 2, "rank-0", 1).path, b"here\n")
    assert say("logs", "local")[:2] == (0, "here\n")


# --- much, slow, broken


def test_megabytes_come_in_bounded_parts(served: Served, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    store = served.store(make_job(served, "long"), monkeypatch)
    lines = [f"{number:07} {'x' * 992}\n" for number in range(3500)]
    for number, start in enumerate(range(0, len(lines), 500), 1):
        store.create(Chunk("train", 2, "rank-0", number).path, "".join(lines[start : start + 500]).encode())
    answer = raw(served, "long")
    assert answer["more"]
    assert sum(len(part["text"]) for part in answer["parts"]) <= LARGEST_ANSWER
    assert say("logs", "long", "--rank", 0)[1] == "".join(lines)
    assert say("logs", "long", "--rank", 0, "--tail", 3)[1] == "".join(lines[-3:])
    assert not raw(served, "long", cursor="rank-0:7")["more"]


def test_a_file_that_no_rank_of_ours_has_written_is_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    store = served.store(make_job(served, "huge"), monkeypatch)
    store.put(Chunk("train", 2, "rank-0", 1).path, b"\x1b[2J" + b"y" * (40 << 20))
    (part,) = raw(served, "huge")["parts"]
    assert len(part["text"]) < LARGEST_ANSWER + 100
    assert part["text"].endswith("[41,943,044 bytes: the rest of this file is left out]\n")
    assert raw(served, "huge", cursor="rank-0:1")["parts"] == []
    assert raw(served, "huge", format="text").startswith("\\u001b[2Jyyy")


def test_storage_that_is_down_is_named(served: Served, say: Say) -> None:
    down = f"http://127.0.0.1:{free_port()}"
    served.hub.apply(cluster("down", down))
    make_job(served, "on-down", attempts=placed_on("down"))
    code, out, err = say("logs", "on-down")
    assert (code, out) == (1, "")
    assert err.startswith("error: the hub cannot read the log of default/on-down: cannot list s3://tests/on-down")
    assert "next: try again in a minute" in err
    assert served.healthy()


def test_a_storage_that_hangs_takes_nothing_from_others(served: Served, two_ranks: str, say: Say) -> None:
    """It accepts, and never answers: so many questions wait for it, the rest are asked to come again, and all else goes on."""
    release = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def handle(self) -> None:
            release.wait()

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        served.hub.apply(cluster("slow", f"http://127.0.0.1:{server.server_port}"))
        make_job(served, "on-slow", attempts=placed_on("slow"))
        api = replace(served.hub.api, timeout_s=120)
        codes: list[int] = []

        def ask() -> None:
            server_address, pool = api._connection
            codes.append(pool.request("GET", server_address + LOG.format("default", "on-slow")).status)

        with ThreadPoolExecutor(40) as readers:
            asked = [readers.submit(ask) for _ in range(40)]
            wait_for("those who are too many", lambda: codes.count(429) >= 28, limit_s=120)
            assert served.healthy()
            assert say("logs", two_ranks, "--rank", 0)[1] == "hello from rank-0\nmore from rank-0\n"
            for each in asked:
                each.result()
        release.set()
        server.shutdown()
        thread.join()
    assert sorted(set(codes)) == [429, 503]


# --- following


def test_following_outlives_the_hub(served: Served, two_ranks: str, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    assert say("logs", two_ranks, "--rank", 0)[0] == 0
    output = served.hub.api.get(f"{JOBS.format('default')}/{two_ranks}")["status"]["output"]
    store = served.store(output, monkeypatch)
    with started("logs", two_ranks, "-f", "--rank", "0") as following:
        read_until(following.stdout, "more from rank-0")
        served.operator.kill()
        read_until(following.stderr, f"the hub at {served.hub.server} cannot answer just now")
        store.create(Chunk("train", 2, "rank-0", 3).path, b"while the hub was away\n")
        served.operator.start()
        read_until(following.stdout, "while the hub was away")
        attempts = [make_failed_attempt(1), make_failed_attempt(2), make_attempt(3)]
        report(served.hub, {"attempts": attempts}, two_ranks)
        store.create(Chunk("train", 3, "rank-0", 1).path, b"resumed\n")
        read_until(following.stdout, "resumed")
        report(served.hub, {"phase": "Succeeded", "message": "all tasks succeeded"}, two_ranks)
        out, err = following.communicate()
    assert (following.returncode, out) == (0, "")
    assert err.endswith(f"default/{two_ranks}: Succeeded: all tasks succeeded\n")
    wait_for("the API of logs", served.available)


@pytest.mark.usefixtures("say")
def test_following_ends_with_a_job_that_is_deleted(served: Served, two_ranks: str) -> None:
    with started("logs", two_ranks, "-f", "--rank", "0") as following:
        read_until(following.stdout, "more from rank-0")
        served.hub.kubectl("delete", "jobspec", two_ranks)
        out, err = following.communicate()
    assert (following.returncode, out) == (0, "")
    assert f"default/{two_ranks} was deleted, and the hub reads no logs of it any more; what it has written stays in s3://" in err


# --- trust


def test_a_certificate_that_somebody_has_spoilt_is_made_anew(served: Served, two_ranks: str) -> None:
    served.hub.api.patch(f"/api/v1/namespaces/{SYSTEM}/secrets/{LOGS}", {"data": {"tls.crt": "bm9uc2Vuc2U="}})
    served.operator.stop()
    assert "not served any more" not in served.operator.log
    assert "Traceback" not in served.operator.log
    served.operator.start()
    wait_for("the certificate", lambda: raw_or_none(served, two_ranks), limit_s=240)


def raw_or_none(served: Served, name: str) -> Any:
    try:
        return raw(served, name)
    except Refused:
        return None


def test_answers_are_counted(served: Served, two_ranks: str) -> None:
    raw(served, two_ranks)
    text = urllib3.request("GET", f"{served.health}/metrics").data.decode()
    assert 'tuneyard_log_requests_total{code="200"}' in text
    assert "tuneyard_leader 0.0" in text
