"""Which hub the client talks to: kubectl's rules, and words where they lead nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tuneyard.api import TuneyardError
from tuneyard.cluster import open_hub


def kubeconfig(path: Path, current: str | None = "work", **namespaces: str) -> Path:
    contexts = [{"name": name, "context": {"cluster": name, "user": "ada", "namespace": space}} for name, space in namespaces.items()]
    clusters = [{"name": name, "cluster": {"server": f"https://{name}:6443"}} for name in namespaces]
    content = {"contexts": contexts, "clusters": clusters, "users": [{"name": "ada", "user": {"token": "t"}}]}
    path.write_text(yaml.safe_dump(content | ({"current-context": current} if current else {})))
    return path


def test_the_current_context_and_its_namespace(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", work="maps", home="garden")
    address = open_hub(environment={"KUBECONFIG": str(path)}).address
    assert (address.server, address.namespace) == ("https://work:6443", "maps")


def test_flags_win(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", work="maps", home="garden")
    address = open_hub(kubeconfig=path, context="home", namespace="shed", environment={"KUBECONFIG": "/nowhere"}).address
    assert (address.server, address.namespace, address.flags) == ("https://home:6443", "shed", f" --kubeconfig {path} --context home")


def test_several_files_are_one(tmp_path: Path) -> None:
    first, second = kubeconfig(tmp_path / "a", work="maps"), kubeconfig(tmp_path / "b", current=None, home="garden")
    assert open_hub(context="home", environment={"KUBECONFIG": f"{first}:{second}:/nowhere"}).address.namespace == "garden"


def test_the_file_in_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube/config", work="maps")
    assert open_hub(environment={"HOME": str(tmp_path)}).address.server == "https://work:6443"


@pytest.mark.parametrize(
    ("content", "arguments", "cause", "next_step", "code"),
    [
        (None, {}, "no hub is configured", "set KUBECONFIG", 1),
        (None, {"kubeconfig": "/nowhere/config"}, "--kubeconfig names /nowhere/config", "set KUBECONFIG", 2),
        ("", {}, "is no usable kubeconfig", "kubectl config view", 1),
        ("{", {}, "is no usable kubeconfig", "kubectl config view", 1),
        ("- a list", {}, "is no usable kubeconfig", "kubectl config view", 1),
        ("contexts: []", {}, "is no usable kubeconfig", "kubectl config view", 1),
        ("ok", {"context": "wrok"}, "has no context 'wrok'", "did you mean --context work?", 2),
        ("ok", {"context": "zzz"}, "has no context 'zzz'", "use one of: work, home", 2),
    ],
)
def test_what_cannot_be_used(content: str | None, arguments: dict[str, str], cause: str, next_step: str, code: int, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    if content == "ok":
        environment["KUBECONFIG"] = str(kubeconfig(tmp_path / "config", work="maps", home="garden"))
    elif content is not None:
        (tmp_path / "config").write_text(content)
        environment["KUBECONFIG"] = str(tmp_path / "config")
    with pytest.raises(TuneyardError) as refused:
        open_hub(environment=environment, **arguments)
    assert cause in refused.value.cause
    assert next_step in refused.value.next_step
    assert refused.value.exit_code == code


def test_a_broken_file_is_told_of_without_its_token(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("users:\n- name: ada\n  user: {token: very-secret: x}\n")
    with pytest.raises(TuneyardError) as refused:
        open_hub(kubeconfig=tmp_path / "config")
    assert "is no usable kubeconfig: it is no YAML in line 3" in refused.value.cause
    assert "very-secret" not in refused.value.cause


def test_importing_the_room_loads_no_kubernetes_library() -> None:
    code = "import sys, tuneyard.cluster; print([m for m in ('kubernetes', 'urllib3', 'torch', 'ray') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
