"""What `make cluster-up` makes clusters with, over programs that stand for engines and tools: no real engine is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.testcluster.clusters import Clusters
from tests.testcluster.contained import ContainedMember
from tests.testcluster.engines import HOST, Tool, Wanted, choose, kept
from tests.testcluster.images import pod_template
from tests.testcluster.unavailable import Unavailable
from tests.testcluster.up import up

ROOT = Path(__file__).parents[3]
Programs = Callable[..., Path]
_TOOL = 'echo "$0 $*" >>"{log}"; [ "$1 $2" = "kubeconfig get" ] && echo "clusters: []"; true'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Puts programs on an otherwise empty PATH: names with the shell lines that each runs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(**bodies: str) -> Path:
        for name, body in bodies.items():
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)
        return folder

    return put


@pytest.mark.parametrize(
    ("there", "wanted", "tool"),
    [
        ({"docker": "exit 0", "kind": ""}, "auto", Tool("kind", "docker")),
        ({"docker": "exit 0", "kind": "", "k3d": ""}, "auto", Tool("kind", "docker")),
        ({"docker": "exit 0", "kind": "", "k3d": ""}, "k3d", Tool("k3d", "docker")),
        ({"docker": "exit 0", "k3d": ""}, "auto", Tool("k3d", "docker")),
        ({"docker": "exit 1", "podman": "exit 0", "kind": ""}, "auto", Tool("kind", "podman")),
        ({"nerdctl": "exit 0", "kind": ""}, "auto", Tool("kind", "nerdctl")),
        ({"podman": "exit 0", "k3d": ""}, "auto", None),
        ({"docker": "exit 1", "kind": ""}, "auto", None),
        ({"docker": "exit 0"}, "auto", None),
        ({"kind": "", "k3d": ""}, "auto", None),
        ({}, "auto", None),
        ({"docker": "exit 0", "kind": ""}, "source", None),
    ],
)
def test_a_tool_is_taken_where_an_engine_answers(programs: Programs, there: dict[str, str], wanted: Wanted, tool: Tool | None) -> None:
    programs(**there)
    assert choose(wanted)[0] == tool


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({}, "no container engine is here"),
        ({"docker": "exit 1", "kind": ""}, "docker does not answer"),
        ({"podman": "exit 0", "k3d": ""}, "podman would do, and neither kind nor a k3d that works with it is on PATH"),
    ],
)
def test_the_reason_is_told(programs: Programs, there: dict[str, str], words: str) -> None:
    programs(**there)
    assert words in choose("auto")[1]
    with pytest.raises(Unavailable, match=f"kind cannot be used here: {words}.*--with source"):
        choose("kind")


def test_kind_mounts_this_machine_and_imports_the_image(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "log"
    programs(kind=f'echo "$KIND_EXPERIMENTAL_PROVIDER" >>"{log}"; {_TOOL.format(log=log)}')
    tool, kubeconfig = Tool("kind", "podman"), tmp_path / "kubeconfig"
    tool.create("one", kubeconfig, labels={"a/b": "cpu"}, mounts=[Path("/usr")])
    tool.load("one", tmp_path / "host.tar")
    tool.delete("one", kubeconfig)
    said = log.read_text().replace(f"{tmp_path}/", "").split("\n")
    assert said[:6:2] == ["podman"] * 3
    assert said[1:6:2] == [
        "bin/kind create cluster --name one --config kind.yaml --kubeconfig kubeconfig --wait 300s",
        "bin/kind load image-archive host.tar --name one",
        "bin/kind delete cluster --name one --kubeconfig kubeconfig",
    ]
    (node,) = yaml.safe_load((tmp_path / "kind.yaml").read_text())["nodes"]
    assert node["labels"] == {"a/b": "cpu"}
    assert node["extraMounts"] == [{"hostPath": "/usr", "containerPath": f"{HOST}/usr", "readOnly": True}]


def test_k3d_mounts_this_machine_and_leaves_the_users_kubeconfig_alone(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "log"
    programs(k3d=_TOOL.format(log=log))
    tool = Tool("k3d", "docker")
    tool.create("one", tmp_path / "kubeconfig", labels={"a/b": "cpu"}, mounts=[Path("/usr")])
    tool.load("one", tmp_path / "host.tar")
    tool.delete("one", tmp_path / "kubeconfig")
    created, got, loaded, deleted = log.read_text().replace(f"{tmp_path}/", "").splitlines()
    assert created.startswith("bin/k3d cluster create one --api-port 127.0.0.1:")
    assert "--kubeconfig-update-default=false" in created
    assert f"--volume /usr:{HOST}/usr:ro@server:0 --k3s-node-label a/b=cpu@server:0" in created
    assert [got, loaded, deleted] == [
        "bin/k3d kubeconfig get one",
        "bin/k3d image import host.tar --cluster one",
        "bin/k3d cluster delete one",
    ]
    assert yaml.safe_load((tmp_path / "kubeconfig").read_text()) == {"clusters": []}


def test_a_tool_that_fails_or_is_gone_is_told_with_its_words(programs: Programs, tmp_path: Path) -> None:
    folder = programs(kind="echo 'node image is missing' >&2; exit 1")
    with pytest.raises(Unavailable, match=r"`kind delete cluster …` failed: node image is missing"):
        Tool("kind", "docker").delete("one", tmp_path / "kubeconfig")
    (folder / "kind").unlink()
    with pytest.raises(Unavailable, match="kind is not on PATH"):
        Tool("kind", "docker").delete("one", tmp_path / "kubeconfig")


@pytest.mark.parametrize(
    "shown",
    [
        '[{"IPAM": {"Config": [{"Gateway": "fc00::1"}, {"Subnet": "127.3.0.0/16", "Gateway": "127.3.0.1"}]}}]',
        '[{"name": "kind", "subnets": [{"subnet": "127.3.0.0/16", "gateway": "127.3.0.1"}]}]',
    ],
    ids=["docker", "podman"],
)
def test_pods_reach_this_machine_at_the_gateway_of_their_network(programs: Programs, shown: str) -> None:
    programs(docker=f"echo '{shown}'")
    assert Tool("kind", "docker").address() == "127.3.0.1"


@pytest.mark.parametrize("shown", ['[{"IPAM": {"Config": [{"Gateway": "203.0.113.1"}]}}]', "[]"])
def test_an_engine_in_a_machine_of_its_own_is_refused(programs: Programs, shown: str) -> None:
    programs(docker=f"echo '{shown}'")
    with pytest.raises(Unavailable, match=r"cannot reach this machine.*--with source"):
        Tool("kind", "docker").address()


def test_a_state_folder_remembers_what_made_its_clusters(tmp_path: Path) -> None:
    assert kept(tmp_path) is None
    Tool("kind", "docker").keep(tmp_path)
    clusters = Clusters.in_folder(tmp_path, 1)
    (member,) = clusters.members
    assert isinstance(member, ContainedMember)
    assert [clusters.hub.programs(), member.programs()] == [[], ["kuberay-operator"]]
    (container,) = member.pod_template()["spec"]["containers"]
    assert container["env"] == []  # kube-proxy leads pods to the API server
    volumes = {each["name"]: each["hostPath"]["path"] for each in member.pod_template()["spec"]["volumes"] if "hostPath" in each}
    assert volumes["host-usr"] == f"{HOST}/usr"
    plain = pod_template("https://10.213.1.1:6443")["spec"]["volumes"]
    assert volumes == {each["name"]: f"{HOST}{each['hostPath']['path']}" for each in plain if "hostPath" in each}


def test_clusters_of_another_tool_are_not_taken_for_those_that_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "up.json").write_text('{"members": 0}')
    with pytest.raises(Unavailable, match="run already, and were made with source: `make cluster-down` first"):
        up(tmp_path / "state", members=0, wanted="kind")
    assert up(tmp_path / "state", members=0, wanted="source") == tmp_path / "state" / "hub" / "kubeconfig"


def test_what_a_build_takes_is_told_before_it_begins(programs: Programs, tmp_path: Path) -> None:
    go = '[ "$1" = build ] || exit 1\nwhile [ "$1" != -o ]; do shift; done\nprintf "#!/bin/sh\\n" >"$2"'
    folder = programs(go=go, etcd="")
    program = "from tests.testcluster.binaries import have_built; have_built(['etcd', 'coredns', 'pause'])"
    env = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": ""}

    def lines() -> list[str]:
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
        return done.stderr.splitlines()

    told, *rest = lines()
    assert told == (
        f"1 of 3 programs are there. The others are built once and kept in {tmp_path}/tuneyard/bin; "
        "on a fresh machine this takes about 5 minutes of processor time"
    )
    assert rest[0] == "building coredns, 1 of 2"
    assert rest[1].startswith("built coredns")
    assert rest[2] == "building pause, 2 of 2"
    assert lines() == []
