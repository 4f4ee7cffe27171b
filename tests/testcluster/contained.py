"""A hub and members as clusters of kind or k3d: the same objects to callers, without faults of components and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml
from tests.testcluster import network
from tests.testcluster.engines import HOST, Tool, kept
from tests.testcluster.hub import Hub
from tests.testcluster.images import host_image, mounted_folders, pod_template
from tests.testcluster.member import Member
from tests.testcluster.network import bridge_name
from tests.testcluster.node import SKU_LABEL


@dataclass(frozen=True)
class ContainedHub(Hub):
    @cached_property
    def tool(self) -> Tool:
        found = kept(self.folder.parent)
        assert found is not None
        return found

    @property
    def cluster(self) -> str:
        """Its name to the tool, which follows from the state folder."""
        return f"{self.name}-{bridge_name(self.folder)}"

    @property
    def server(self) -> str:
        return str(yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])

    @property
    def address(self) -> str:
        return self.tool.address()

    def programs(self) -> list[str]:
        return []

    def components(self) -> dict[str, int | None]:
        return {**super().components(), self.tool.name: self.tool.pid(self.cluster)}

    def _claim_network(self) -> None:
        network.claim(self.folder, bridge=False)  # only for the loopback address of servers on this machine

    def _start_plane(self) -> None:
        mounts = list(mounted_folders().values())
        self.tool.create(self.cluster, self.kubeconfig, labels={SKU_LABEL: "cpu"}, mounts=mounts)
        assert self.address  # an engine whose pods cannot reach this machine is refused here

    def _end_pods(self) -> None:
        self.tool.delete(self.cluster, self.kubeconfig)


@dataclass(frozen=True)
class ContainedMember(ContainedHub, Member):
    @property
    def node_name(self) -> str:
        return self.tool.node(self.cluster)

    def programs(self) -> list[str]:
        return ["kuberay-operator"]

    def pod_template(self) -> dict[str, Any]:
        return pod_template(None, below=HOST)

    def _start_plane(self) -> None:
        super()._start_plane()
        image = host_image(self.folder)
        self.tool.load(self.cluster, image)
        image.unlink()
        self._start_kuberay(network.of(self.folder))
        self._set_slots()
