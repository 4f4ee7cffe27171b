"""A member: a cluster with nodes, either one or two real ones whose pods are processes of this machine, or any number of fake ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.testcluster import fake_nodes, kuberay
from tests.testcluster.fake_nodes import FakeNodes
from tests.testcluster.hub import Hub
from tests.testcluster.images import pod_template
from tests.testcluster.mounts import small_disk
from tests.testcluster.network import Network
from tests.testcluster.node import SLOT, Node
from tests.testcluster.processes import kill_all
from tests.testcluster.unavailable import Unavailable
from tests.testcluster.waiting import wait_for


@dataclass(frozen=True)
class Member(Hub):
    """`fake`: nodes that exist in the API server alone; without any, there is one real node, which needs root.
    `second_node`: labels, as kubelets take them, of a second real node, which has no slots; empty: there is none."""

    fake: tuple[FakeNodes, ...] = ()
    with_kuberay: bool = True
    slots: int = 8
    """How many of `tuneyard.dev/slot`, the stand-in for GPUs, the real node has."""
    second_node: str = ""

    @property
    def node_name(self) -> str:
        """Of the real node, or of the first of two."""
        return f"{self.name}-node"

    def programs(self) -> list[str]:
        node = [] if self.fake else ["kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "pause", "coredns"]
        return [*super().programs(), "kube-scheduler", *node, *(["kuberay-operator"] if self.with_kuberay else [])]

    def pod_template(self) -> dict[str, Any]:
        """What every pod of a job here needs: `Cluster.spec.podTemplate`."""
        return pod_template(self.pod_server)

    # --- faults

    def cut_heartbeat(self) -> None:
        """The node falls silent; its pods' processes live on, with their network."""
        self.stop("kubelet")

    def restore_heartbeat(self) -> None:
        """The kubelet runs on return. It ends where its runtime takes 5 s to answer, and is started again, as by systemd."""

        def runs() -> bool:
            self.start("kubelet")
            return self._node.kubelet_answers()

        wait_for("the kubelet", runs, words=lambda: self._processes.tail("kubelet"))

    def crash_node(self) -> None:
        """The node falls silent, and its pods' processes are gone: a machine without power."""
        self.stop("kubelet")
        self.stop("containerd")
        kill_all({pid for container in self._node.containers() for pid in container.processes()})

    def restart_node(self) -> None:
        self.start("containerd")
        self._wait_for_containerd(self._node)
        self.restore_heartbeat()

    def pod_processes(self, pod: str, namespace: str = "default") -> list[int]:
        """Process ids of a pod's containers, also while kubelet, containerd or API server are down."""
        every = [container for node in self._nodes_on_disk() for container in node.containers()]
        containers = [each for each in every if (each.namespace, each.pod) == (namespace, pod) and not each.holds_pod]
        return sorted({pid for container in containers for pid in container.processes()})

    def kill_pod(self, pod: str, namespace: str = "default") -> list[int]:
        """SIGKILL to every process of a pod's containers; their ids."""
        pids = self.pod_processes(pod, namespace)
        kill_all(pids)
        return pids

    def load_image(self, image: Path) -> None:
        """Import an image, a tar file of an OCI layout, into every real node."""
        for node in self._nodes:
            node.ctr("images", "import", str(image))

    def small_disk(self, name: str, megabytes: int) -> Path:
        """A file system of this size on the node, for a pod's hostPath: what a full scratch disk is tried on."""
        return small_disk(self.folder / "disks" / name, megabytes)

    def set_fake_node_ready(self, name: str, *, ready: bool) -> None:
        fake_nodes.set_ready(self.api, name, ready=ready)

    # --- parts

    @property
    def _has_nodes(self) -> bool:
        return not self.fake

    @cached_property
    def _node(self) -> Node:
        return Node(self._plane, self.node_name)

    @property
    def _nodes(self) -> list[Node]:
        """The real nodes that are to be started."""
        second = Node(self._plane, f"{self.node_name}-2", index=1, labels=self.second_node)
        return [] if self.fake else [self._node, *([second] if self.second_node else [])]

    def _nodes_on_disk(self) -> list[Node]:
        """The real nodes that a folder has, which may be another process's: for their containers."""
        return [node for index in (0, 1) if (node := Node(self._plane, self.node_name, index=index)).folder.exists()]

    def _start_plane(self) -> None:
        if not self.fake:
            if self._plane.network.bridge is None:
                raise Unavailable("a member with a real node needs root: run as root, or give it fake nodes")
            for node in self._nodes:
                if node.index:
                    self._plane.network.add_node(node.index)
                self._processes.start(node.component("containerd"), *node.containerd())
        super()._start_plane()
        self._processes.start("kube-scheduler", self._plane.scheduler(self.kubeconfig))
        if self.fake:
            fake_nodes.add(self.api, self.fake)
        else:
            self._processes.start("coredns", self._node.coredns(self.kubeconfig))
        for node in self._nodes:
            self._start_node(node)
        if self.with_kuberay:
            self._start_kuberay(self._plane.network)
        for node in self._nodes:
            self._wait_for_node(node)
        if not self.fake:
            self._set_slots()

    def _start_kuberay(self, network: Network) -> None:
        self.apply(*kuberay.crds())
        self._processes.start("kuberay-operator", *kuberay.operator(self.kubeconfig, network))

    def _set_slots(self) -> None:
        slots = {"capacity": {SLOT: str(self.slots)}, "allocatable": {SLOT: str(self.slots)}}
        self.api.patch(f"/api/v1/nodes/{self.node_name}/status", {"status": slots})

    def _start_node(self, node: Node) -> None:
        self._wait_for_containerd(node)
        node.weigh_pods()
        node.load_images()
        self._processes.start(node.component("kubelet"), node.kubelet())

    def _wait_for_containerd(self, node: Node) -> None:
        wait_for("containerd", node.answers, words=lambda: self._processes.tail(node.component("containerd")))

    def _wait_for_node(self, node: Node) -> None:
        path = f"/api/v1/nodes/{node.name}"

        def ready() -> bool:
            self._processes.start(node.component("kubelet"))  # again, if it has ended
            found = self.api.find(path) or {}
            return any(each["type"] == "Ready" and each["status"] == "True" for each in found.get("status", {}).get("conditions", []))

        wait_for(f"the node {node.name}", ready, words=lambda: self._processes.tail(node.component("kubelet")))

    def _end_pods(self) -> None:
        for node in self._nodes_on_disk() if self.folder.exists() and not self.fake else ():
            while pids := {*node.helpers(), *(pid for container in node.containers() for pid in container.processes())}:
                kill_all(pids)
            node.remove_traces()
