"""kind and k3d, where a container engine answers: clusters of containers, for which no program of Kubernetes is built.

A node is a container of an image that the tool pulls. This machine's Python and repository are mounted into it below `HOST`, and pods mount
them from there. The image of pods is an archive, which the tool imports. Flags: `kind create cluster --help`, `k3d cluster create --help`.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from tests.servers.installed import free_port
from tests.testcluster.unavailable import Unavailable

HOST = "/tuneyard-host"
"""Folder of a node below which this machine's folders are mounted."""
Wanted = Literal["auto", "kind", "k3d", "source"]
_ANSWER_LIMIT_S = 20
_START_LIMIT = "300s"
_ENGINES = {"kind": ("docker", "podman", "nerdctl"), "k3d": ("docker",)}
"""The engines that a tool works with, the best first. k3d calls its own support of podman experimental."""
_NETWORK = {"kind": "kind", "k3d": "tuneyard"}
_FILE = "engine.json"
_INSTEAD = "`make cluster-up ARGS='--with source'` starts clusters without containers"


@dataclass(frozen=True)
class Tool:
    """`name`: kind or k3d. `engine`: docker, podman or nerdctl."""

    name: str
    engine: str

    def create(self, cluster: str, kubeconfig: Path, *, labels: Mapping[str, str], mounts: list[Path]) -> None:
        """Start a cluster of one node, which is ready on return; write its kubeconfig. Raises Unavailable with the tool's words."""
        if self.name == "kind":
            extra = [{"hostPath": str(path), "containerPath": f"{HOST}{path}", "readOnly": True} for path in mounts]
            node = {"role": "control-plane", "labels": dict(labels), "extraMounts": extra}
            config = kubeconfig.with_name("kind.yaml")
            config.write_text(yaml.safe_dump({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]}))
            self._run("create", "cluster", "--name", cluster, "--config", config, "--kubeconfig", kubeconfig, "--wait", _START_LIMIT)
            return
        words = ["--api-port", f"127.0.0.1:{free_port()}", "--network", _NETWORK[self.name], "--no-lb", "--wait", "--timeout", _START_LIMIT]
        words += ["--kubeconfig-update-default=false", "--kubeconfig-switch-context=false", "--k3s-arg", "--disable=traefik@server:0"]
        words += [word for path in mounts for word in ("--volume", f"{path}:{HOST}{path}:ro@server:0")]
        words += [word for name, value in labels.items() for word in ("--k3s-node-label", f"{name}={value}@server:0")]
        self._run("cluster", "create", cluster, *words)
        kubeconfig.write_text(self._run("kubeconfig", "get", cluster))

    def load(self, cluster: str, image: Path) -> None:
        """Import an image, a tar file of an OCI layout."""
        kind = ("load", "image-archive", image, "--name", cluster)
        self._run(*(kind if self.name == "kind" else ("image", "import", image, "--cluster", cluster)))

    def delete(self, cluster: str, kubeconfig: Path) -> None:
        """Remove a cluster. One that does not exist is fine."""
        kind = ("delete", "cluster", "--name", cluster, "--kubeconfig", kubeconfig)
        self._run(*(kind if self.name == "kind" else ("cluster", "delete", cluster)))

    def node(self, cluster: str) -> str:
        """Name of the node, and of its container."""
        return f"{cluster}-control-plane" if self.name == "kind" else f"k3d-{cluster}-server-0"

    def pid(self, cluster: str) -> int | None:
        """Process id of the node; None where it does not run."""
        done = _ran([self.engine, "inspect", "--format", "{{.State.Pid}}", self.node(cluster)])
        return int(done.stdout) or None if done is not None and done.returncode == 0 and done.stdout.strip().isdigit() else None

    def address(self) -> str:
        """This machine's address on the network of the nodes. Raises Unavailable where the engine runs in a machine of its own."""
        done = _ran([self.engine, "network", "inspect", _NETWORK[self.name]])
        found = next(_gateways(json.loads(done.stdout)), None) if done is not None and done.returncode == 0 else None
        if found is None or not _is_own(found):
            where = f"the gateway of its network, {found or 'which it does not name'}, is not this machine's"
            raise Unavailable(f"pods of {self.name} on {self.engine} cannot reach this machine: {where}; {_INSTEAD}")
        return found

    def keep(self, folder: Path) -> None:
        """Remember in a state folder that its clusters are of this tool."""
        (folder / _FILE).write_text(json.dumps(asdict(self)))

    def _run(self, *words: object) -> str:
        """What the tool prints."""
        command = [self.name, *map(str, words)]
        variables = {"KIND_EXPERIMENTAL_PROVIDER": self.engine} if self.name == "kind" else {}
        if shutil.which(self.name) is None:
            raise Unavailable(f"{self.name} is not on PATH, and made the clusters of this state folder: install it again")
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise Unavailable(f"`{' '.join(command[:3])} …` failed: {said}; {_INSTEAD}")
        return done.stdout


def kept(folder: Path) -> Tool | None:
    """The tool of the clusters in a state folder; None: they are programs of this machine."""
    file = folder / _FILE
    return Tool(**json.loads(file.read_text())) if file.exists() else None


def choose(wanted: Wanted) -> tuple[Tool | None, str]:
    """What clusters are made with, and the reason. None: programs of this machine, built where they are missing.

    Raises:
        Unavailable: kind or k3d is asked for and cannot be used here.
    """
    if wanted == "source":
        return None, "Kubernetes programs of this machine, as asked for"
    engines = [engine for engine in _ENGINES["kind"] if _answers(engine)]
    for name in ("kind", "k3d") if wanted == "auto" else (wanted,):
        engine = next((each for each in _ENGINES[name] if each in engines), None)
        if engine is not None and shutil.which(name) is not None:
            return Tool(name, engine), f"{name} on {engine}: no Kubernetes is built"
    reason = _why_none(engines)
    if wanted != "auto":
        raise Unavailable(f"{wanted} cannot be used here: {reason}; {_INSTEAD}")
    return None, f"Kubernetes programs of this machine: {reason}"


def _why_none(engines: list[str]) -> str:
    if engines:
        return f"{' and '.join(engines)} would do, and neither kind nor a k3d that works with it is on PATH (install kind to build less)"
    silent = [engine for engine in _ENGINES["kind"] if shutil.which(engine) is not None]
    return f"{' and '.join(silent)} does not answer" if silent else "no container engine is here"


def _answers(engine: str) -> bool:
    """Whether an engine is installed and runs: its `info` asks the engine."""
    done = _ran([engine, "info"])
    return done is not None and done.returncode == 0


def _ran(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """None: it is not here, or did not end in time."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _is_own(address: str) -> bool:
    with socket.socket() as server:
        try:
            server.bind((address, 0))
        except OSError:
            return False
    return True


def _gateways(found: Any) -> Iterator[str]:
    """IPv4 gateways in what an engine says of a network; engines nest and spell them differently."""
    if isinstance(found, list):
        for each in found:
            yield from _gateways(each)
    elif isinstance(found, dict):
        for name, value in found.items():
            if name.lower() == "gateway" and isinstance(value, str) and ":" not in value and value:
                yield str(ipaddress.ip_interface(value).ip)
            else:
                yield from _gateways(value)
