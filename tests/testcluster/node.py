"""A real node: containerd and a kubelet, and on the first one the cluster's DNS, in the state folder of one cluster.

Nothing of it lies where another cluster's or the machine's own could be: images, logs, mounts and network namespaces of pods are below
the state folder, and sockets in a folder of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.testcluster.binaries import binary, cni_folder, debian
from tests.testcluster.controlplane import NODE_GRACE_S, ControlPlane
from tests.testcluster.images import PAUSE_IMAGE, host_image, pause_image
from tests.testcluster.kubeconfig import kubeconfig
from tests.testcluster.network import bridge_name

SKU_LABEL = "tuneyard.dev/sku"
SLOT = "tuneyard.dev/slot"
"""An extended resource that stands for GPUs on nodes that have none."""
_SBIN = "/usr/sbin:/sbin"
"""iproute2 and runc are in sbin, which not every user's PATH has."""
_HEALTH_PORT = 10248
"""The kubelet's own choice."""
_SHARES_OF_PODS = 4096
"""Four times those of a session: pods of all clusters share one control group, and would starve beside tests with many sessions."""


@dataclass(frozen=True)
class Container:
    id: str
    holds_pod: bool
    """Whether it is the one that only holds a pod's namespaces."""
    namespace: str
    pod: str
    cgroup: str

    def groups(self) -> list[Path]:
        """Its group in every hierarchy (cgroup v1) or in the only one (v2)."""
        inside = self.cgroup.lstrip("/")
        return [*Path("/sys/fs/cgroup").glob(inside), *Path("/sys/fs/cgroup").glob(f"*/{inside}")]

    def processes(self) -> set[int]:
        return {int(pid) for group in self.groups() for file in group.rglob("cgroup.procs") for pid in _text(file).split()}


@dataclass(frozen=True)
class Node:
    """`index`: 0 for the first of a cluster. `labels`: as kubelets take them."""

    plane: ControlPlane
    name: str
    index: int = 0
    labels: str = f"{SKU_LABEL}=cpu"

    @property
    def folder(self) -> Path:
        return self.plane.folder / f"node{self._suffix}"

    @property
    def _suffix(self) -> str:
        return f"-{self.index + 1}" if self.index else ""

    def component(self, program: str) -> str:
        """Name of a program of this node among the cluster's components."""
        return f"{program}{self._suffix}"

    @property
    def sockets(self) -> Path:
        """Folder of sockets: the path of one may have 107 characters, and a state folder can lie anywhere."""
        return Path("/run") / f"{bridge_name(self.plane.folder)}{self._suffix}"

    @property
    def socket(self) -> Path:
        return self.sockets / "containerd.sock"

    def containerd(self) -> tuple[list[str], dict[str, str]]:
        """Command and environment; writes the configuration."""
        path = f"{os.environ['PATH']}:{_SBIN}"
        debian("runc", "runc", folders=path)
        self.folder.mkdir(parents=True, exist_ok=True)
        network = self.plane.network
        first, last = network.pods_of(self.index)
        conf = self.folder / "cni" / "10-pods.conflist"
        conf.parent.mkdir(exist_ok=True)
        ipam = {
            "type": "host-local",
            "dataDir": str(self.folder / "addresses"),
            "ranges": [[{"subnet": network.pods, "rangeStart": first, "rangeEnd": last, "gateway": network.address}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": network.bridge, "isGateway": True, "ipam": ipam}
        conf.write_text(json.dumps({"cniVersion": "1.0.0", "name": network.bridge, "plugins": [bridge]}))
        config = self.folder / "containerd.toml"
        config.write_text(
            _CONTAINERD.format(folder=self.folder, sockets=self.sockets, pause=PAUSE_IMAGE, plugins=cni_folder(), conf=conf.parent)
        )
        shim = Path(binary("containerd-shim-runc-v2")).parent
        return [binary("containerd"), "--config", str(config)], {"PATH": f"{shim}:{path}"}

    def answers(self) -> bool:
        """Whether containerd takes connections; its socket outlives it, and a kubelet that finds nobody there exits."""
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket)) == 0

    def weigh_pods(self) -> None:
        """Give the pods of all clusters on this machine together the processor time of several sessions (cgroup v1)."""
        for shares in Path("/sys/fs/cgroup").glob("cpu*/cpu.shares"):
            group = shares.parent / "k8s.io"
            group.mkdir(exist_ok=True)
            (group / shares.name).write_text(str(_SHARES_OF_PODS))

    def load_images(self) -> None:
        for image in (pause_image(self.folder), host_image(self.folder)):
            self.ctr("images", "import", str(image))
            image.unlink()

    def ctr(self, *words: str) -> str:
        """What `ctr` says of the node's containers."""
        done = subprocess.run([binary("ctr"), "-a", str(self.socket), "-n", "k8s.io", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"`ctr {' '.join(words)}` failed: {done.stderr.strip()}")
        return done.stdout

    @property
    def address(self) -> str:
        return self.plane.network.node(self.index)

    def kubelet(self) -> list[str]:
        pki = self.plane.authority
        user = pki.issue(f"system:node:{self.name}", groups=["system:nodes"], addresses=[self.address], hosts=[self.name])
        config = self.folder / "kubelet.kubeconfig"
        config.write_text(kubeconfig(self.name, self.plane.server, pki.certificate, user))
        # A kubelet that starts again over an empty folder takes its node for a new machine, and sets extended resources to zero.
        devices = self.folder / "kubelet" / "device-plugins"
        devices.mkdir(parents=True, exist_ok=True)
        (devices / "not-a-new-machine").touch()
        settings = self.folder / "kubelet.yaml"
        settings.write_text(yaml.safe_dump(self._kubelet_settings(str(user.certificate), str(user.key))))
        return [
            binary("kubelet"),
            f"--config={settings}",
            f"--kubeconfig={config}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--cert-dir={self.folder / 'kubelet-pki'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--node-labels={self.labels}",
        ]

    def _kubelet_settings(self, certificate: str, key: str) -> dict[str, object]:
        network = self.plane.network
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzBindAddress": network.node_loopback(self.index),
            "healthzPort": _HEALTH_PORT,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.plane.authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": certificate,
            "tlsPrivateKeyFile": key,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "podLogsDir": str(self.folder / "logs"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "staticPodPath": "",
            "clusterDNS": [network.address],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            # Works on machines without systemd and with cgroup v1; only limits of containers are enforced.
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            # A developer's full disk is no reason to refuse or evict pods.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "3s",
            "nodeStatusReportFrequency": "3s",
            # Renewed four times in this time: a silent node shows within the controller manager's grace.
            "nodeLeaseDurationSeconds": NODE_GRACE_S,
            "serializeImagePulls": False,
            "maxPods": 200,
        }

    def kubelet_answers(self) -> bool:
        """Whether its health endpoint takes connections; it does so once its parts have begun."""
        with socket.socket() as client:
            return client.connect_ex((self.plane.network.node_loopback(self.index), _HEALTH_PORT)) == 0

    def coredns(self, config: Path) -> list[str]:
        corefile = self.folder / "Corefile"
        address, loopback = self.plane.network.address, self.plane.network.loopback
        corefile.write_text(_COREFILE.format(address=address, loopback=loopback, kubeconfig=config))
        return [binary("coredns"), "-conf", str(corefile)]

    def containers(self) -> list[Container]:
        """From what containerd keeps on disk: it need not run, nor must anything else."""
        bundles = self.folder / "run" / "io.containerd.runtime.v2.task" / "k8s.io"
        return [container for file in bundles.glob("*/config.json") if (container := _container(file)) is not None]

    def helpers(self) -> list[int]:
        """Ids of containerd's processes on the node (shims, runc); they outlive it."""
        marks = (str(self.sockets), str(self.folder / "run"))
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if any(mark in _text(path) for mark in marks)]

    def remove_traces(self) -> None:
        """Remove what a kubelet and containerd leave outside the state folder."""
        for container in self.containers():
            for group in container.groups():
                for folder in [*sorted(group.rglob("*/"), reverse=True), group]:
                    _remove_group(folder)
        for link in Path("/var/log/containers").glob("*.log"):
            if str(self.folder) in os.readlink(link):
                link.unlink(missing_ok=True)
        for result in Path("/var/lib/cni/results").glob(f"{self.plane.network.bridge}-*"):
            result.unlink(missing_ok=True)
        shutil.rmtree(self.sockets, ignore_errors=True)


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode(errors="replace")
    except OSError:
        return ""  # the process is gone


def _container(config: Path) -> Container | None:
    try:
        whole = json.loads(config.read_text())
    except (OSError, ValueError):
        return None  # being made or removed
    notes = whole["annotations"]
    kind, namespace, pod = (notes.get(f"io.kubernetes.cri.{key}", "") for key in ("container-type", "sandbox-namespace", "sandbox-name"))
    return Container(config.parent.name, kind == "sandbox", namespace, pod, whole["linux"]["cgroupsPath"])


def _remove_group(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # a process is still on its way out: an empty group hurts nobody


_CONTAINERD = """version = 3
root = "{folder}/containerd"
state = "{folder}/run"

[grpc]
  address = "{sockets}/containerd.sock"

# Its socket is one for the whole machine: of two nodes that start at the same moment, one would end.
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = "{sockets}/s"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
  # Without it every pod dies where this process may not lower the score: "can't get final child's PID from pipe".
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    Root = "{sockets}/runc"

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{conf}"
  use_internal_loopback = true
"""

_COREFILE = """. {{
  bind {address}
  health {loopback}:8181
  ready {loopback}:8182
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    ttl 1
  }}
}}
"""
