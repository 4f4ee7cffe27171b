"""The programs that clusters are made of: found on this machine, or built once by Go into the user's cache.

Each folder in `go/` is a Go module that pins one project; each program is built by itself, on first use. Who has the programs already, in
KUBEBUILDER_ASSETS (as for controller-runtime's envtest) or on PATH, builds nothing.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.servers.installed import CACHE, installed, made_once
from tests.testcluster.progress import say, stage
from tests.testcluster.unavailable import Unavailable

MODULES = Path(__file__).parent / "go"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_VERSION = "k8s.io/component-base/version"
_KUBERNETES = "v1.36.3"
_CPU_MIN = 25 / 12
"""Processor minutes of a program, on average: the twelve of a hub and its members take 25 from an empty cache."""
_STAMP = f"-X {_VERSION}.gitVersion={_KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
"""Without it the server calls itself v0.0.0, and clients that read the version fail."""


@dataclass(frozen=True)
class Program:
    """`module`: a folder in go/. `package`: what is built there."""

    module: str
    package: str
    ldflags: str = ""
    major: str = ""
    """How the output of `--version` must read in a program found on PATH: containerd 1 does not know our configuration."""
    tags: str = ""
    """Build tags."""


PROGRAMS = {
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program("kubernetes", "./kube-apiserver", _STAMP),
    "kube-controller-manager": Program("kubernetes", "./kube-controller-manager", _STAMP),
    "kube-scheduler": Program("kubernetes", "./kube-scheduler", _STAMP),
    "kubelet": Program("kubernetes", "./kubelet", _STAMP),
    "kubectl": Program("kubernetes", "./kubectl", _STAMP),
    "containerd": Program("containerd", "github.com/containerd/containerd/v2/cmd/containerd", major=" v2."),
    "containerd-shim-runc-v2": Program("containerd", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", major=" v2."),
    "ctr": Program("containerd", "github.com/containerd/containerd/v2/cmd/ctr", major=" v2."),
    "pause": Program("pause", "."),
    "coredns": Program("coredns", "."),
    "kuberay-operator": Program("kuberay", "github.com/ray-project/kuberay/ray-operator"),
    "helm": Program("helm", "helm.sh/helm/v3/cmd/helm"),
    "kwok": Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    # Without the service discoveries of all clouds, whose libraries take most of the build.
    "promtool": Program("prometheus", "github.com/prometheus/prometheus/cmd/promtool", tags="remove_all_sd"),
    "prometheus": Program("prometheus", "github.com/prometheus/prometheus/cmd/prometheus", tags="remove_all_sd"),
}


@functools.cache
def binary(name: str) -> str:
    """Path of a program, built if need be (a minute or two each on 2 cores).

    Raises:
        Unavailable: it is not here, and there is no Go to build it, or the build fails.
    """
    program = PROGRAMS[name]
    found = _found(name, program)
    if found:
        return found
    if shutil.which("go") is None:
        raise Unavailable(f"no {name} in KUBEBUILDER_ASSETS or on PATH, and no Go to build it: install either")
    return str(made_once(f"bin/{_hash(program.module)}/{name}", functools.partial(_build, name, program)) / name)


def have_built(names: Sequence[str]) -> None:
    """Build the programs that are missing, and say first what that takes. Raises as `binary`.

    One after the other: two builds at once would compile what they share twice.
    """
    missing = [name for name in names if not is_here(name)]
    if missing:
        say(
            f"{len(names) - len(missing)} of {len(names)} programs are there. The others are built once and kept in {CACHE / 'bin'}; "
            f"on a fresh machine this takes about {math.ceil(_CPU_MIN * len(missing))} minutes of processor time"
        )
    for number, name in enumerate(missing, start=1):
        say(f"building {name}, {number} of {len(missing)}")
        binary(name)


def is_here(name: str) -> bool:
    """Whether a program is on this machine, found or built."""
    program = PROGRAMS[name]
    return bool(_found(name, program)) or (CACHE / f"bin/{_hash(program.module)}/{name}").is_dir()


def kuberay_crds() -> Path:
    """Folder with the CRDs of the KubeRay that is built here."""
    module = "github.com/ray-project/kuberay/ray-operator"

    def copy(folder: Path) -> None:
        answer = subprocess.run(
            ["go", "mod", "download", "-json", module], cwd=MODULES / "kuberay", capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            raise Unavailable(f"`go mod download {module}` failed: {(answer.stderr or answer.stdout).strip()[-500:]}")
        shutil.copytree(
            Path(json.loads(answer.stdout)["Dir"]) / "config/crd/bases", folder, dirs_exist_ok=True, copy_function=shutil.copyfile
        )

    return made_once(f"bin/{_hash('kuberay')}/crds", copy)


def debian(program: str, package: str, *, folders: str | None = None) -> str:
    """Path of a program that the distribution has, on PATH or in `folders`; installed where that is possible."""
    try:
        return installed(program, package, folders=folders)
    except pytest.skip.Exception as reason:
        raise Unavailable(str(reason)) from None


def cni_folder() -> Path:
    """Folder of the CNI plugins `bridge` and `host-local`, which Debian keeps off PATH."""
    return Path(debian("bridge", "containernetworking-plugins", folders=os.pathsep.join(map(str, CNI_FOLDERS)))).parent


def _found(name: str, program: Program) -> str | None:
    path = shutil.which(name, path=os.environ.get("KUBEBUILDER_ASSETS", "")) or shutil.which(name)
    if (
        path
        and program.major
        and program.major not in subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    ):
        return None
    return path


def _hash(module: str) -> str:
    digest = hashlib.sha256(_STAMP.encode())
    for file in sorted((MODULES / module).rglob("*")):
        if file.is_file():
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _build(name: str, program: Program, folder: Path) -> None:
    flags = ["-trimpath", "-ldflags", f"-s -w {program.ldflags}", "-tags", program.tags]
    command = ["go", "build", *flags, "-o", str(folder / name), program.package]
    with stage(f"built {name}"):
        # No limit: beside other work Go has taken more than half an hour. The suite ends what hangs.
        done = subprocess.run(command, cwd=MODULES / program.module, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"`go build {program.package}` failed in {MODULES / program.module}: {done.stderr.strip()[-500:]}")
