"""A hub: an API server and its controllers. What every cluster here has, so that members are hubs with nodes.

A cluster object holds nothing but the path of its state folder: two processes that open the same folder see the same cluster.
"""

from __future__ import annotations

import datetime
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from tests.testcluster import network
from tests.testcluster.binaries import binary
from tests.testcluster.controlplane import ControlPlane
from tests.testcluster.kubeapi import KubeApi
from tests.testcluster.kubeconfig import kubeconfig
from tests.testcluster.mounts import remove_folder
from tests.testcluster.processes import Processes
from tests.testcluster.waiting import wait_for

READY_LIMIT_S = 120
_SERVE_API = ("etcd", "kube-apiserver")


@dataclass(frozen=True)
class Hub:
    """An API server and its controllers, in a state folder."""

    name: str
    folder: Path

    # --- what others connect with

    @property
    def kubeconfig(self) -> Path:
        """Of a user who may do everything."""
        return self.folder / "kubeconfig"

    @property
    def server(self) -> str:
        return self._plane.server

    @property
    def pod_server(self) -> str:
        """The API server's URL as pods of any cluster on this machine reach it; the same, as the address is the bridge's."""
        return self._plane.server

    @property
    def address(self) -> str:
        """This machine's address on the cluster's own network: what listens here is reached by pods."""
        return self._plane.network.address

    @cached_property
    def api(self) -> KubeApi:
        return KubeApi(self.kubeconfig)

    def kubeconfig_for(self, user: str, groups: Iterable[str] = (), *, valid: datetime.timedelta = datetime.timedelta(days=1)) -> str:
        """The kubeconfig of another user, who may do what RBAC grants; with a `valid` below zero, of one whose credentials expired."""
        pki = self._plane.authority
        return kubeconfig(self.name, self.server, pki.certificate, pki.issue(user, groups=groups, valid=valid))

    def token(self, account: str, namespace: str = "default", *, hours: int = 2) -> str:
        """A token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.api.create(path, {"spec": {"expirationSeconds": hours * 3600}})["status"]["token"])

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """What `kubectl` prints. Raises RuntimeError with its words where it fails."""
        command = [binary("kubectl"), "--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.folder / "kubectl"), *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"`kubectl {' '.join(words)}` failed on {self.name}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *manifests: dict[str, Any] | Path) -> None:
        """Server-side apply, of objects and of files. CustomResourceDefinitions are served on return."""
        made = [each for manifest in manifests for each in (_objects(manifest) if isinstance(manifest, Path) else [manifest])]
        for each in made:
            self.api.apply(each)
        for each in made:
            if each["kind"] == "CustomResourceDefinition":
                self._wait_served(each["metadata"]["name"])

    def programs(self) -> list[str]:
        """What the cluster consists of, in the order in which it is worth building."""
        return ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"]

    # --- life

    def start(self, component: str | None = None) -> None:
        """Start the cluster, over what an earlier run left in its folder; or one component again, as it was started last."""
        if component is not None:
            self._processes.start(component)
            if component in _SERVE_API and None not in map(self._processes.pid, _SERVE_API):
                self._wait_for_api()
            return
        self.close()
        self.folder.mkdir(parents=True)
        self._claim_network()
        self._start_plane()
        wait_for("the default service account", lambda: self.api.find("/api/v1/namespaces/default/serviceaccounts/default"))

    def stop(self, component: str, *, gently: bool = False) -> None:
        """End a component as a crash does, or `gently` as an upgrade does."""
        number = signal.SIGTERM if gently else signal.SIGKILL
        self._processes.stop(component, number, limit_s=90 if gently else 20)

    def freeze(self, component: str = "kube-apiserver") -> None:
        """Its connections stay open, and nobody answers."""
        self._processes.send(component, signal.SIGSTOP)

    def thaw(self, component: str = "kube-apiserver") -> None:
        self._processes.send(component, signal.SIGCONT)

    def close(self) -> None:
        """End everything and remove the state folder. Works on what a killed run left, from any process."""
        self._processes.end_all()
        self._end_pods()
        remove_folder(self.folder)
        network.release(self.folder)
        for name in ("_plane", "api"):
            self.__dict__.pop(name, None)

    def components(self) -> dict[str, int | None]:
        """Process ids by name; None for one that does not run."""
        return {name: self._processes.pid(name) for name in self._processes.names()}

    def log(self, component: str) -> Path:
        return self._processes.log(component)

    # --- parts

    @property
    def _has_nodes(self) -> bool:
        """Whether pods run here."""
        return False

    @property
    def _processes(self) -> Processes:
        return Processes(self.folder / "processes")

    @cached_property
    def _plane(self) -> ControlPlane:
        return ControlPlane(self.folder, network.of(self.folder))

    def _claim_network(self) -> None:
        network.claim(self.folder)

    def _start_plane(self) -> None:
        plane = self._plane
        admin = plane.authority.issue("admin", groups=["system:masters"])
        self.kubeconfig.write_text(kubeconfig(self.name, plane.server, plane.authority.certificate, admin))
        self._processes.start("etcd", plane.etcd())
        self._processes.start("kube-apiserver", plane.apiserver())
        self._wait_for_api()
        self._processes.start("kube-controller-manager", plane.controller_manager(self.kubeconfig, nodes=self._has_nodes))

    def _end_pods(self) -> None:
        """A hub has none."""

    def _wait_for_api(self) -> None:
        def ready() -> bool:
            for name in _SERVE_API:
                if self._processes.pid(name) is None:
                    raise RuntimeError(f"{name} of {self.name} ended; its log ends:\n{self._processes.tail(name)}")
            return self.api.answers()

        wait_for(f"the API server of {self.name}", ready, limit_s=READY_LIMIT_S, words=lambda: self._processes.tail("kube-apiserver"))

    def _wait_served(self, crd: str) -> None:
        plural, _, group = crd.partition(".")

        def served() -> bool:
            versions = (self.api.find(f"/apis/{group}") or {}).get("versions", [])
            lists = [self.api.find(f"/apis/{each['groupVersion']}") or {} for each in versions]
            return any(each["name"] == plural for one in lists for each in one.get("resources", []))

        wait_for(f"the CRD {crd}", served)


def _objects(file: Path) -> list[dict[str, Any]]:
    return list(yaml.load_all(file.read_text(), yaml.CSafeLoader))
