"""The command lines of a cluster's control plane."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.testcluster.binaries import binary
from tests.testcluster.certificates import Authority
from tests.testcluster.network import Network

API_PORT = 6443
SERVICES = "10.96.0.0/16"
"""Nothing routes there: no kube-proxy runs. Equal in all clusters."""
_WITHOUT_NODES = (
    *("serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller"),
    *("namespace-controller", "garbage-collector-controller", "clusterrole-aggregation-controller"),
    *("deployment-controller", "replicaset-controller", "job-controller", "resourcequota-controller"),
)
"""What a cluster without real nodes needs. All controllers together take a hundredth of a core at rest."""
NODE_GRACE_S = 12
"""A node that has been silent for this long is not ready."""


@dataclass(frozen=True)
class ControlPlane:
    folder: Path
    network: Network

    @property
    def authority(self) -> Authority:
        return Authority(self.folder / "pki")

    @property
    def front_proxy(self) -> Authority:
        """Signs for the API server as the proxy of aggregated APIs: not the authority of clients, who could pass for it otherwise."""
        return Authority(self.folder / "front-proxy")

    @property
    def server(self) -> str:
        return f"https://{self.network.address}:{API_PORT}"

    def etcd(self) -> list[str]:
        client, peer = f"http://{self.network.loopback}:2379", f"http://{self.network.loopback}:2380"
        return [
            binary("etcd"),
            "--name=etcd",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=etcd={peer}",
            "--quota-backend-bytes=4294967296",
        ]

    def apiserver(self) -> list[str]:
        pki = self.authority
        keys = pki.service_account_keys()
        kubelet = pki.issue("kube-apiserver-kubelet-client", groups=["system:masters"])
        proxy = self.front_proxy.issue("front-proxy-client")
        hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        serving = pki.issue("kube-apiserver", addresses=[self.network.address, self.network.loopback, "10.96.0.1"], hosts=hosts)
        return [
            binary("kube-apiserver"),
            f"--bind-address={self.network.address}",
            f"--advertise-address={self.network.address}",
            f"--secure-port={API_PORT}",
            # The endpoints of the service `kubernetes` may not be a loopback address, and nobody here uses that service.
            "--endpoint-reconciler-type=none",
            f"--etcd-servers=http://{self.network.loopback}:2379",
            f"--client-ca-file={pki.certificate}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={keys.certificate}",
            f"--service-account-signing-key-file={keys.key}",
            f"--kubelet-certificate-authority={pki.certificate}",
            f"--kubelet-client-certificate={kubelet.certificate}",
            f"--kubelet-client-key={kubelet.key}",
            "--kubelet-preferred-address-types=InternalIP",
            # Aggregated APIs, as kubeadm sets them up; without a kube-proxy, they are reached by the addresses of their endpoints.
            f"--requestheader-client-ca-file={self.front_proxy.certificate}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy.certificate}",
            f"--proxy-client-key-file={proxy.key}",
            "--enable-aggregator-routing=true",
            # Ends watches at once on SIGTERM, which would wait a minute otherwise.
            "--shutdown-delay-duration=0s",
            "--max-requests-inflight=1000",
            "--max-mutating-requests-inflight=500",
        ]

    def controller_manager(self, kubeconfig: Path, *, nodes: bool) -> list[str]:
        """`nodes`: whether there are real ones: then all controllers run, and nodes that do not report are marked."""
        return [
            binary("kube-controller-manager"),
            f"--kubeconfig={kubeconfig}",
            f"--bind-address={self.network.loopback}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--root-ca-file={self.authority.certificate}",
            f"--service-account-private-key-file={self.authority.service_account_keys().key}",
            f"--controllers={'*' if nodes else ','.join(_WITHOUT_NODES)}",
            "--node-monitor-period=2s",
            f"--node-monitor-grace-period={NODE_GRACE_S}s",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def scheduler(self, kubeconfig: Path) -> list[str]:
        return [
            binary("kube-scheduler"),
            f"--kubeconfig={kubeconfig}",
            f"--bind-address={self.network.loopback}",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]
