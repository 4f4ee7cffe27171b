"""A Ray cluster of several machines on this one: a head without CPUs, as KubeRay starts it for a hub's attempt, and workers.

With root each worker has a mount namespace with a scratch disk of its own, and a host name of its own: what lies on one machine's disk
the others do not see, as between pods.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.installed import free_port

RAY = str(Path(sys.executable).with_name("ray"))
IS_ROOT = os.geteuid() == 0
_UP_LIMIT_S = 120.0
_TRIES = 5
"""Ray gives a node 30 s to come up, which a machine under load can miss."""
_ASK = """
import json, os, sys, ray
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Ray prints to stdout what it has to say of lost machines, in the middle of other lines
ray.init(log_to_driver=False)
for line in sys.stdin:
    print(json.dumps(eval(line)), file=answers, flush=True)
"""
_EVERY_S = 0.2
_PLAIN = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_TRAIN_V2_ENABLED": "1",
    "OMP_NUM_THREADS": "1",
    "TUNEYARD_HISTORY": "off",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}


@dataclass
class Machine:
    """A worker of the cluster, with all that it has started."""

    name: str
    node: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Everything on it at once, as when its power is cut."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in _descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Machines:
    """The cluster: `environment` lets a driver on its head in; `scratch` is each machine's own folder."""

    folder: Path
    scratch: Path
    port: int
    variables: Mapping[str, str]
    workers: list[Machine] = field(default_factory=list)
    added: int = 0
    """Workers that were ever added."""
    _asked: subprocess.Popen[str] | None = None
    """A process that is connected to the head, for questions about it."""

    @property
    def environment(self) -> dict[str, str]:
        address = {"RAY_ADDRESS": f"127.0.0.1:{self.port}", "TUNEYARD_SCRATCH": str(self.scratch), "TUNEYARD_POD": "head-0"}
        return {**os.environ, **_PLAIN, **self.variables, **address, **self._warm, "TUNEYARD_NODE": "node-head"}

    @property
    def _warm(self) -> dict[str, str]:
        """Where a machine's fork server is; without root the machines share one disk, and have none."""
        return {"TUNEYARD_WARM_SERVERS": str(self.scratch / "warm") if IS_ROOT else "off"}

    def lose(self, machine: Machine) -> None:
        """End a worker, and wait until Ray knows: before that it would place actors there."""
        machine.kill()
        self.workers.remove(machine)
        deadline = time.monotonic() + _UP_LIMIT_S
        while machine.name in self.alive():
            assert time.monotonic() < deadline, f"Ray believes that {machine.name} lives"
            time.sleep(_EVERY_S)

    def alive(self) -> set[str]:
        """Host names of the machines that Ray's head holds for alive: with root, the names of the pods."""
        return set(self._ask("[node['NodeManagerHostname'] for node in ray.nodes() if node['Alive']]"))

    def until_idle(self) -> None:
        """Wait until nothing of an earlier attempt holds a CPU any more."""
        deadline = time.monotonic() + _UP_LIMIT_S
        while self._ask("[ray.cluster_resources().get('CPU', 0), ray.available_resources().get('CPU', 0)]") != [len(self.workers)] * 2:
            assert time.monotonic() < deadline, "the machines are not idle"
            time.sleep(_EVERY_S)

    def _ask(self, expression: str) -> Any:
        if self._asked is None:
            self._asked = subprocess.Popen(
                [sys.executable, "-c", _ASK], env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._asked.stdin is not None
        assert self._asked.stdout is not None
        print(expression, file=self._asked.stdin, flush=True)
        return json.loads(self._asked.stdout.readline())

    def close(self) -> None:
        """End all machines but the head."""
        if self._asked is not None:
            self._asked.kill()
            self._asked.communicate()
        for worker in self.workers:
            worker.kill()

    def add(self, name: str, **variables: str) -> Machine:
        """Start one more worker, with one CPU; `variables` in its environment."""
        pod = {"TUNEYARD_POD": name, "TUNEYARD_NODE": f"node-{name}", "TUNEYARD_SCRATCH": str(self.scratch), **self._warm}
        ray = [
            RAY,
            "start",
            f"--address=127.0.0.1:{self.port}",
            "--num-cpus=1",
            "--num-gpus=0",
            "--block",
            "--object-store-memory=100000000",
        ]
        alone = f"hostname {name} && mount -t tmpfs tmpfs {self.scratch} && " if IS_ROOT else ""
        # As in a worker pod: the ranks' stack is loaded while Ray starts.
        warm = self.scratch / "warm"
        serve = f"{{ mkdir -p {warm}; {sys.executable} -P -m tuneyard.runtime.stack_server training {warm}/training & }}; "
        again = f'{alone}{serve if IS_ROOT else ""}for _ in {{1..{_TRIES}}}; do "$@" && break; done'
        ray = [*(["unshare", "--mount", "--uts"] if IS_ROOT else []), "bash", "-c", again, "machine", *ray]
        process = subprocess.Popen(
            ray,
            env={**os.environ, **_PLAIN, **self.variables, **pod, **variables},
            stdout=(self.folder / f"{name}.log").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        worker = Machine(name, f"node-{name}", process)
        self.workers.append(worker)
        self.added += 1
        return worker


@contextmanager
def started(workers: int, variables: Mapping[str, str]) -> Iterator[Machines]:
    """A cluster with workers `pod-0`, `pod-1` …; `variables` are set in all of its containers."""
    folder = Path(tempfile.mkdtemp(prefix="ty-machines-", dir="/tmp"))  # short: Ray puts sockets below it
    cluster = Machines(folder, folder / "scratch", free_port(), variables)
    cluster.scratch.mkdir()
    head: Machine | None = None
    try:
        head = _head(cluster)
        for number in range(workers):
            cluster.add(f"pod-{number}")
        yield cluster
    finally:
        cluster.close()
        if head is not None:
            head.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def shared_warm_servers(folder: Path, environment: Mapping[str, str], *stacks: str) -> Iterator[Path]:
    """Fork servers of these stacks (by default all), and the variable by which jobs of this process find them."""
    stacks = stacks or ("training", "engines")
    servers = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "tuneyard.runtime.stack_server", stack, str(folder / stack)],
            env={**environment},
            stderr=(folder / f"{stack}.log").open("wb"),
            start_new_session=True,
        )
        for stack in stacks
    ]
    for stack, server in zip(stacks, servers, strict=True):
        while not (folder / stack).exists():  # a job that comes before would start cold
            assert server.poll() is None, (folder / f"{stack}.log").read_text()
            time.sleep(0.05)
    kept = os.environ.get("TUNEYARD_WARM_SERVERS")
    os.environ["TUNEYARD_WARM_SERVERS"] = str(folder)
    try:
        yield folder
    finally:
        os.environ.pop("TUNEYARD_WARM_SERVERS")
        if kept is not None:
            os.environ["TUNEYARD_WARM_SERVERS"] = kept
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait()


def _head(cluster: Machines) -> Machine:
    log = cluster.folder / "head.log"
    for _ in range(_TRIES):
        ports = [f"--port={cluster.port}", f"--ray-client-server-port={free_port()}", f"--temp-dir={cluster.folder / 'ray'}"]
        command = [RAY, "start", "--head", *ports, "--num-cpus=0", "--num-gpus=0", "--include-dashboard=false", "--block"]
        process = subprocess.Popen(
            [*command, "--object-store-memory=100000000"],
            env={**os.environ, **_PLAIN, **cluster.variables},
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        head = Machine("head", "node-head", process)
        deadline = time.monotonic() + _UP_LIMIT_S
        while process.poll() is None and time.monotonic() < deadline:
            if b"Ray runtime started" in log.read_bytes():
                return head
            time.sleep(_EVERY_S)
        head.kill()
    raise RuntimeError("Ray's head did not start:\n" + log.read_text(errors="replace")[-2000:])


def _descendants(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found
