"""Kueue 0.15, a peer that benchmarks measure beside: its manager as a process of this machine, and its own scheduler benchmark.

Nothing of Tuneyard needs it, and no test builds it. What it takes to run the manager outside of a cluster is said where it is done.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import urllib3
import yaml
from tests.testcluster import network
from tests.testcluster.binaries import MODULES, binary
from tests.testcluster.certificates import Authority
from tests.testcluster.hub import Hub
from tests.testcluster.processes import Processes
from tests.testcluster.unavailable import Unavailable
from tests.testcluster.waiting import wait_for

VERSION = "0.15.0"
MODULE = "sigs.k8s.io/kueue"
SYSTEM = "kueue-system"
MANAGED_BY = "kueue.x-k8s.io/multikueue"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
METRICS_CERTIFICATES = Path("/etc/kueue/metrics/certs")
"""Compiled into the manager, which does not start without."""
_API = "kueue.x-k8s.io/v1beta2"
_UNLIMITED = "1000000"


def module_folder() -> Path:
    """Kueue's sources: its CRDs and the configuration of its benchmark lie there."""
    command = ["go", "mod", "download", "-json", MODULE]
    answer = subprocess.run(command, cwd=MODULES / "kueue", capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise Unavailable(f"`go mod download {MODULE}` failed: {(answer.stderr or answer.stdout).strip()[-500:]}")
    return Path(json.loads(answer.stdout)["Dir"])


def crds() -> Path:
    """Folder of the CRDs, as they are."""
    return module_folder() / "config/components/crd/bases"


def assets(folder: Path) -> Path:
    """What controller-runtime's envtest wants in KUBEBUILDER_ASSETS."""
    folder.mkdir(parents=True)
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (folder / name).symlink_to(binary(name))
    return folder


@dataclass(frozen=True)
class Manager:
    """Kueue's manager beside one cluster of the harness."""

    cluster: Hub
    program: str = "kueue"
    """`kueue-lifted`: with clients to member clusters that send 1,000 requests a second instead of 5."""

    @property
    def folder(self) -> Path:
        return self.cluster.folder / "kueue"

    def start(self) -> None:
        """Give the cluster Kueue's kinds, and start the manager; it is ready on return. Needs `metrics_certificate`."""
        self.folder.mkdir()
        self.cluster.apply(*_one_version(crds(), self.folder / "crds"), _namespace(SYSTEM))
        address = network.of(self.cluster.folder).loopback
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(self._configuration(address)))
        # The visibility server wants an APIService that reaches it, and answers nothing that is asked here.
        command = [binary(self.program), "--config", str(file), "--kubeconfig", str(self.cluster.kubeconfig), "--zap-log-level=error"]
        self._processes.start("kueue", [*command, "--feature-gates=VisibilityOnDemand=false"])

        def ready() -> bool:
            if self._processes.pid("kueue") is None:
                raise RuntimeError(f"Kueue's manager ended; its log ends:\n{self._processes.tail('kueue')}")
            try:
                return urllib3.request("GET", f"http://{address}:8081/readyz", retries=False, timeout=5).status == 200
            except urllib3.exceptions.HTTPError:
                return False

        wait_for(f"Kueue on {self.cluster.name}", ready, limit_s=120, words=lambda: self._processes.tail("kueue"))

    def stop(self) -> None:
        self._processes.stop("kueue", signal.SIGKILL)

    @property
    def cpu_s(self) -> float:
        pid = self._processes.pid("kueue")
        times = psutil.Process(pid).cpu_times() if pid else None
        return times.user + times.system if times else 0.0

    @property
    def log(self) -> str:
        return self._processes.log("kueue").read_text(errors="replace")

    @property
    def _processes(self) -> Processes:
        return Processes(self.folder / "processes")

    def _configuration(self, address: str) -> dict[str, Any]:
        """As Kueue ships it, but with rates that do not bind, and with RayJobs alone."""
        pair = Authority(self.folder / "pki").issue("kueue-webhook", addresses=[address])
        certificates = self.folder / "webhook"
        certificates.mkdir()
        shutil.copyfile(pair.certificate, certificates / "tls.crt")
        shutil.copyfile(pair.key, certificates / "tls.key")
        kinds = ("Workload.kueue.x-k8s.io", "RayJob.ray.io")
        single = ("LocalQueue", "Cohort", "ClusterQueue", "ResourceFlavor")
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": SYSTEM,
            "health": {"healthProbeBindAddress": f"{address}:8081"},
            "metrics": {"bindAddress": f"{address}:8443"},
            "webhook": {"host": address, "port": 9443, "certDir": str(certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "controller": {"groupKindConcurrency": {**dict.fromkeys(kinds, 5), **{f"{kind}.kueue.x-k8s.io": 1 for kind in single}}},
            "clientConnection": {"qps": 1000, "burst": 2000},
            "integrations": {"frameworks": ["ray.io/rayjob"]},
        }


@contextmanager
def metrics_certificate(folder: Path) -> Iterator[None]:
    """The certificate that managers on this machine look for, at the one place where they do. Needs root."""
    if METRICS_CERTIFICATES.exists():
        yield
        return
    pair = Authority(folder).issue("kueue-metrics")
    made = next(path for path in reversed([METRICS_CERTIFICATES, *METRICS_CERTIFICATES.parents]) if not path.exists())
    try:
        METRICS_CERTIFICATES.mkdir(parents=True)
    except PermissionError as error:
        raise Unavailable(f"Kueue wants a certificate in {METRICS_CERTIFICATES}: run as root") from error
    try:
        shutil.copyfile(pair.certificate, METRICS_CERTIFICATES / "tls.crt")
        shutil.copyfile(pair.key, METRICS_CERTIFICATES / "tls.key")
        yield
    finally:
        shutil.rmtree(made)


def queue_locally(cluster: Hub, queue: str) -> None:
    """A worker of MultiKueue: a queue without limits."""
    cluster.apply(*_queue(queue, {}))


def queue_to(cluster: Hub, queue: str, workers: Sequence[Hub]) -> None:
    """A manager of MultiKueue: the same queue, whose workloads go to the first of `workers` that admits them."""
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "multikueue"}]}}
    reference = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "multikueue"}
    check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": reference}
    objects = [
        _object("AdmissionCheck", "multikueue", check),
        _object("MultiKueueConfig", "multikueue", {"clusters": [worker.name for worker in workers]}),
        *_queue(queue, checks),
    ]
    for worker in workers:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": worker.name, "namespace": SYSTEM}}
        source = {"kubeConfig": {"locationType": "Secret", "location": worker.name}}
        objects += [
            {**secret, "stringData": {"kubeconfig": worker.kubeconfig.read_text()}},
            _object("MultiKueueCluster", worker.name, {"clusterSource": source}),
        ]
    cluster.apply(*objects)
    for kind, condition in (("multikueueclusters", "Active"), ("admissionchecks", "Active"), ("clusterqueues", "Active")):
        cluster.kubectl("wait", f"{kind}.kueue.x-k8s.io", "--all", f"--for=condition={condition}", "--timeout=120s")


def run_benchmark(generator: Path, out: Path) -> None:
    """Kueue's own scheduler benchmark, with an API server and a minimal manager of its own: summary.yaml and more in `out`."""
    out.mkdir(parents=True)
    command = [binary("kueue-runner"), "--crds", str(crds()), "--generatorConfig", str(generator), "--minimalKueue", binary("minimalkueue")]
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(assets(out / "assets"))}
    command += ["--qps", "1000", "--burst", "2000", "--o", str(out)]
    with (out / "runner.log").open("w") as log:
        runner = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            code = runner.wait(timeout=660)
        finally:
            _end_session(runner.pid)
            runner.wait()
    if code != 0:
        raise RuntimeError(f"Kueue's runner failed; its log ends:\n{(out / 'runner.log').read_text()[-2000:]}")


def _end_session(leader: int) -> None:
    """A runner that fails, or is cut short, leaves its API server and etcd behind."""
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader:
                process.kill()
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue


def _one_version(source: Path, folder: Path) -> list[Path]:
    """The CRDs with v1beta2 alone: versions are converted by a webhook, which the API server does not reach."""
    folder.mkdir()
    for file in sorted(source.glob("*.yaml")):
        crd = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
        versions = [version for version in crd["spec"]["versions"] if version["name"] == "v1beta2"] or crd["spec"]["versions"][:1]
        crd["spec"]["versions"] = [{**version, "served": True, "storage": True} for version in versions]
        crd["spec"].pop("conversion", None)
        (folder / file.name).write_text(json.dumps(crd))
    return sorted(folder.glob("*.yaml"))


def _queue(name: str, more: dict[str, Any]) -> list[dict[str, Any]]:
    names = ["cpu", "memory", "nvidia.com/gpu"]
    resources = [{"name": each, "nominalQuota": f"{_UNLIMITED}{'Gi' if each == 'memory' else ''}"} for each in names]
    groups = [{"coveredResources": names, "flavors": [{"name": "default", "resources": resources}]}]
    local = {"apiVersion": _API, "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name}}
    return [
        _object("ResourceFlavor", "default", {}),
        _object("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups, **more}),
        local,
    ]


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
