"""The test clusters themselves: pods are real, faults are real, and nothing is left behind."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from tests.cluster.conftest import ApiServers, started
from tests.testcluster import Hub, Member
from tests.testcluster.clusters import Clusters
from tests.testcluster.fake_nodes import FakeNodes
from tests.testcluster.install import Storage
from tests.testcluster.kubeapi import KubeApi, Refused
from tests.testcluster.leftovers import FOLDERS
from tests.testcluster.mounts import mounts_below
from tests.testcluster.network import bridge_name
from tests.testcluster.processes import Processes, boot, started_at
from tests.testcluster.up import status
from tests.testcluster.waiting import wait_for
from tests.testcluster.workloads import allreduce, pod

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/ray.io/v1/namespaces/default/rayjobs"
ROOT = Path(__file__).parents[2]


def phase(member: Member, name: str) -> str:
    return str(member.api.get(f"{PODS}/{name}")["status"]["phase"])


def node_is_ready(member: Member) -> bool:
    conditions = member.api.get(f"/api/v1/nodes/{member.node_name}")["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@pytest.fixture(scope="module")
def twins(storage_of: tuple[Member, Storage], cluster_folder: Path) -> Iterator[tuple[Member, Member]]:
    """Two clusters with real nodes: the one of the whole run, and one that ends with this file."""
    other = Member("other", cluster_folder / "other", with_kuberay=False)
    alone = started(Clusters(other, ()))
    yield storage_of[0], other
    alone.close()


@pytest.fixture
def member(storage_of: tuple[Member, Storage]) -> Iterator[Member]:
    """The cluster of the whole run, without pods."""
    one = storage_of[0]
    yield one
    one.restart_node()
    one.kubectl("delete", "pods", "--all")


@pytest.fixture
def sleeper(member: Member) -> str:
    """Name of a pod that runs until it is ended."""
    member.api.create(PODS, pod("sleeper", ["sleep", "1000"], member, slots=8))
    wait_for("the pod", lambda: phase(member, "sleeper") == "Running")
    return "sleeper"


# --- real pods


@pytest.mark.long
def test_a_ray_job_adds_up_a_number_over_two_pods(member: Member) -> None:
    member.api.create(JOBS, allreduce("sum", member))

    def ended() -> str | None:
        found = member.api.get(f"{JOBS}/sum").get("status", {}).get("jobStatus")
        return str(found) if found in ("SUCCEEDED", "FAILED", "STOPPED") else None

    try:
        assert wait_for("the RayJob", ended, limit_s=600, words=lambda: member.kubectl("get", "pods,events")) == "SUCCEEDED"
    finally:
        member.api.delete(f"{JOBS}/sum")


def test_two_clusters_run_pods_side_by_side(twins: tuple[Member, Member]) -> None:
    for one in twins:
        one.api.create(PODS, pod("twin", ["bash", "-c", "getent hosts kubernetes.default.svc.cluster.local"], one))
    for one in twins:
        wait_for("the pod's end", lambda one=one: phase(one, "twin") == "Succeeded")

    addresses = [one.api.get(f"{PODS}/twin")["status"]["podIP"] for one in twins]
    assert addresses[0].rpartition(".")[0] != addresses[1].rpartition(".")[0]
    for one in twins:
        one.api.delete(f"{PODS}/twin")


def test_a_pod_runs_this_machines_python_and_tuneyard_as_a_user_without_rights(member: Member) -> None:
    script = "id -u && python -c 'import ray' && tuneyard --help >/dev/null && touch $HOME/x /tmp/x && ! touch /usr/x 2>&1"
    member.api.create(PODS, pod("shell", ["bash", "-ec", script], member))

    wait_for("the pod's end", lambda: phase(member, "shell") in ("Succeeded", "Failed"), limit_s=300)

    assert phase(member, "shell") == "Succeeded", member.kubectl("logs", "shell")
    assert member.kubectl("logs", "shell").startswith("10001\n")


def test_a_pod_finds_another_by_name_and_the_api_server_by_its_variables(member: Member, sleeper: str) -> None:
    member.kubectl("label", "pod", sleeper, "app=sleeper")
    selected = {"selector": {"app": "sleeper"}, "clusterIP": "None", "ports": [{"port": 80}]}
    member.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "beds", "namespace": "default"}, "spec": selected})
    script = (
        "until getent hosts beds.default.svc.cluster.local; do sleep 0.2; done;"
        "wget -q -O- --no-check-certificate https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/readyz"
    )
    member.api.create(PODS, pod("asker", ["bash", "-ec", script], member))

    wait_for("the pod's end", lambda: phase(member, "asker") in ("Succeeded", "Failed"))

    address = member.api.get(f"{PODS}/{sleeper}")["status"]["podIP"]
    said = member.kubectl("logs", "asker")
    assert said.startswith(address)
    assert said.endswith("ok")
    member.kubectl("delete", "service", "beds")


# --- faults


def test_killing_a_pod_ends_its_processes_and_the_pod_fails(member: Member, sleeper: str) -> None:
    (pid,) = member.kill_pod(sleeper)

    assert started_at(pid) is None
    wait_for("the pod's failure", lambda: phase(member, sleeper) == "Failed")
    state = member.api.get(f"{PODS}/{sleeper}")["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["exitCode"] == 128 + signal.SIGKILL


def test_a_node_without_heartbeat_is_not_ready_while_its_pods_live_on(member: Member, sleeper: str) -> None:
    (pid,) = member.pod_processes(sleeper)

    member.cut_heartbeat()
    wait_for("the node's silence to show", lambda: not node_is_ready(member))
    assert started_at(pid) is not None

    member.restore_heartbeat()
    wait_for("the node's return", lambda: node_is_ready(member))
    assert member.pod_processes(sleeper) == [pid]
    assert phase(member, sleeper) == "Running"
    room = member.api.get(f"/api/v1/nodes/{member.node_name}")["status"]
    assert room["allocatable"]["tuneyard.dev/slot"] == room["capacity"]["tuneyard.dev/slot"] == "8"


def test_a_crashed_node_comes_back_without_its_pods(member: Member, sleeper: str) -> None:
    (pid,) = member.pod_processes(sleeper)

    member.crash_node()
    assert started_at(pid) is None

    member.restart_node()
    wait_for("the pod's failure", lambda: phase(member, sleeper) == "Failed", words=lambda: seen(member, sleeper))


def seen(member: Member, name: str) -> str:
    """A pod's status, and what the programs of its node said last."""
    logs = [f"{program}: {member.log(program).read_text()[-6000:]}" for program in ("kubelet", "containerd")]
    return "\n".join([member.kubectl("get", "pod", name, "-o", "jsonpath={.status}"), *logs])


def test_a_small_disk_fills(member: Member) -> None:
    disk = member.small_disk("scratch", megabytes=8)
    whole = pod("writer", ["bash", "-c", "head -c 20M /dev/zero >/disk/file"], member)
    whole["spec"]["volumes"].append({"name": "disk", "hostPath": {"path": str(disk)}})
    whole["spec"]["containers"][0]["volumeMounts"].append({"name": "disk", "mountPath": "/disk"})
    member.api.create(PODS, whole)

    wait_for("the pod's failure", lambda: phase(member, "writer") == "Failed")

    assert "No space left on device" in member.kubectl("logs", "writer")


# --- API servers


@pytest.fixture(scope="module")
def hub(cluster_folder: Path) -> Iterator[Hub]:
    """A hub without members. Tests leave it running."""
    alone = started(Clusters(Hub("hub", cluster_folder / "alone" / "hub"), ()))
    yield alone.hub
    alone.close()


def test_a_restarted_api_server_keeps_its_objects(hub: Hub) -> None:
    hub.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}, "data": {"a": "b"}})

    hub.stop("kube-apiserver")
    assert not hub.api.answers()
    hub.stop("etcd")
    hub.start("etcd")
    hub.start("kube-apiserver")

    assert hub.api.get("/api/v1/namespaces/default/configmaps/kept")["data"] == {"a": "b"}


def test_a_frozen_api_server_keeps_its_clients_waiting(hub: Hub) -> None:
    impatient = KubeApi(hub.kubeconfig, timeout_s=0.5)

    hub.freeze()
    with pytest.raises(urllib3.exceptions.TimeoutError):
        impatient.get("/api/v1/namespaces")

    hub.thaw()
    assert impatient.get("/api/v1/namespaces")["items"]


def test_users_have_the_rights_that_rbac_grants_until_their_credentials_expire(hub: Hub, tmp_path: Path) -> None:
    mine, old = tmp_path / "mine", tmp_path / "old"
    mine.write_text(hub.kubeconfig_for("reader"))
    old.write_text(hub.kubeconfig_for("late", ["system:masters"], valid=datetime.timedelta(minutes=-1)))

    for kubeconfig, refusal in ((mine, 403), (old, 401)):
        with pytest.raises(Refused) as refused:
            KubeApi(kubeconfig).get("/api/v1/nodes")
        assert refused.value.status == refusal

    hub.kubectl("create", "clusterrolebinding", "reader", "--clusterrole=system:node-reader", "--user=reader")
    hub.kubectl("create", "clusterrole", "system:node-reader", "--verb=list", "--resource=nodes")
    wait_for("the grant", lambda: KubeApi(mine).find("/api/v1/nodes") if _allowed(mine) else None)


def _allowed(kubeconfig: Path) -> bool:
    try:
        return bool(KubeApi(kubeconfig).get("/api/v1/nodes"))
    except Refused:
        return False


def test_pods_are_scheduled_to_fake_nodes_that_have_room(api_servers: ApiServers) -> None:
    (member,) = api_servers(nodes=[FakeNodes("small", 2, gpus=2), FakeNodes("large", 1, gpus=8)]).members
    asking = pod("asking", ["true"], member)
    asking["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "4"}
    member.set_fake_node_ready("small-0", ready=False)

    member.api.create(PODS, asking)

    wait_for("a node for the pod", lambda: member.api.get(f"{PODS}/asking")["spec"].get("nodeName") == "large-0")
    nodes = {each["metadata"]["name"]: each["spec"].get("taints", []) for each in member.api.get("/api/v1/nodes")["items"]}
    assert [name for name, taints in sorted(nodes.items()) if taints] == ["small-0"]


# --- what is left behind


def test_a_process_id_that_has_gone_to_another_process_is_left_alone(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start("mine", ["sleep", "1000"])
    pid = processes.pid("mine")
    assert pid is not None

    (tmp_path / "mine.pid").write_text(f"{pid} {int(str(started_at(pid))) - 1} {boot()}\n")
    processes.end_all()
    assert started_at(pid) is not None

    (tmp_path / "mine.pid").write_text(f"{pid} {started_at(pid)} {boot()}\n")
    processes.end_all()
    assert started_at(pid) is None


def test_a_process_whose_first_thread_has_ended_is_not_gone() -> None:
    """As after SIGKILL, while others still hold its ports."""
    code = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); ctypes.CDLL(None).pthread_exit(None)"
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_for("the first thread's end", lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert started_at(process.pid) is not None
    process.kill()
    process.wait()
    assert started_at(process.pid) is None


@pytest.mark.long
def test_the_next_up_removes_what_a_killed_one_left(twins: tuple[Member, Member]) -> None:
    """`twins`: they can run real nodes here, and their own are not touched."""
    folder = FOLDERS / "killed"
    command = [sys.executable, "-m", "tests.testcluster", "up", "--members=1", "--no-operator", f"--state={folder}"]
    first = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_for("the kubelet of the first", lambda: status(folder).get("member-1/kubelet"), limit_s=300)
    first.kill()
    first.wait()
    left = [pid for pid in status(folder).values() if pid is not None]
    assert left

    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert second.stdout.splitlines()[-1] == f"KUBECONFIG={folder}/hub/kubeconfig"
    assert all(started_at(pid) is None for pid in left)
    assert None not in status(folder).values()

    subprocess.run([sys.executable, "-m", "tests.testcluster", "down", f"--state={folder}"], cwd=ROOT, check=True)
    assert not folder.exists()
    assert not mounts_below(folder)
    assert not [name for name in os.listdir("/sys/class/net") if name in {bridge_name(folder / each) for each in ("hub", "member-1")}]
    assert all(pid is not None for member in twins for pid in member.components().values())
