"""Two container images without a registry or an engine, and what pods need to use this machine's Python in them.

`pause` holds one static program. `host` holds empty folders, links and a few files of /etc; its pods mount this machine's /usr, its
Python, and this repository with its `.venv`, all read-only, so that they run exactly what a developer runs, and nothing is copied.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import sys
import tarfile
from pathlib import Path
from typing import Any

from tests.testcluster.binaries import binary

ROOT = Path(__file__).resolve().parents[2]
PAUSE_IMAGE = "tuneyard.test/pause:1"
HOST_IMAGE = "tuneyard.test/host:1"
USER_ID = 10001
"""The user of pods; no such user need exist on this machine."""
_HOME = "/home/tuneyard"
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FOLDERS = ("usr", "proc", "sys", "dev", "etc", "run", "home", "root", "var", "var/tmp")
_USERS = {
    "etc/passwd": f"root:x:0:0::/root:/bin/sh\ntuneyard:x:{USER_ID}:{USER_ID}::{_HOME}:/bin/bash\n",
    "etc/group": f"root:x:0:\ntuneyard:x:{USER_ID}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
# Where the dynamic linker finds libraries, where compilers and Java are chosen, and whom TLS trusts.
_OF_THIS_MACHINE = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def pause_image(folder: Path) -> Path:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(binary("pause"), "pause")
    return layout(folder / "pause.tar", PAUSE_IMAGE, layer.getvalue(), {"Entrypoint": ["/pause"], "User": "65535:65535"})


def host_image(folder: Path) -> Path:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in _FOLDERS:
            add_entry(tar, name, tarfile.DIRTYPE, mode=0o755)
        add_entry(tar, "tmp", tarfile.DIRTYPE, mode=0o1777)
        add_entry(tar, _HOME.lstrip("/"), tarfile.DIRTYPE, mode=0o777)
        for name in _LINKS:
            if Path("/", name).is_symlink():
                add_entry(tar, name, tarfile.SYMTYPE, target=os.readlink(f"/{name}"))
        for name, text in _USERS.items():
            add_entry(tar, name, tarfile.REGTYPE, text=text)
        for path in _OF_THIS_MACHINE:
            if Path(path).exists():
                tar.add(path, path.lstrip("/"))
    variables = {
        "PATH": f"{Path(sys.prefix).resolve()}/bin:/usr/local/bin:/usr/bin:/bin",
        "USER": "tuneyard",
        # The repository cannot be written to.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    run = {"Cmd": ["/bin/bash"], "User": f"{USER_ID}:{USER_ID}", "Env": [f"{name}={value}" for name, value in variables.items()]}
    return layout(folder / "host.tar", HOST_IMAGE, layer.getvalue(), run)


def mounted_folders() -> dict[str, Path]:
    """Folders of this machine that pods mount, by a short name."""
    mounted = {"usr": Path("/usr"), "repository": ROOT, "venv": Path(sys.prefix).resolve(), "python": Path(sys.base_prefix).resolve()}
    folders: dict[str, Path] = {}
    for name, path in mounted.items():
        if not any(path.is_relative_to(other) for other in folders.values()):
            folders[name] = path
    return folders


def pod_template(server: str | None, *, below: str = "") -> dict[str, Any]:
    """What every pod of a job on such a cluster needs: `Cluster.spec.podTemplate`.

    A fragment of a PodTemplate; its one container has no name, and is laid over every container of a pod. `server`: URL of the cluster's
    API server as pods reach it where no kube-proxy leads the usual address there. `below`: where a node has this machine's folders.
    """
    folders = mounted_folders()
    volumes: list[dict[str, Any]] = [{"name": f"host-{name}", "hostPath": {"path": f"{below}{path}"}} for name, path in folders.items()]
    mounts: list[dict[str, Any]] = [{"name": f"host-{name}", "mountPath": str(path), "readOnly": True} for name, path in folders.items()]
    for name, inside in {"tmp": "/tmp", "home": _HOME}.items():
        volumes.append({"name": f"host-{name}", "emptyDir": {}})
        mounts.append({"name": f"host-{name}", "mountPath": inside})
    variables: dict[str, str] = {}
    if server is not None:
        host, port = server.removeprefix("https://").rsplit(":", 1)
        variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "KUBERNETES_SERVICE_PORT_HTTPS": port}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    return {"spec": {"volumes": volumes, "containers": [{"volumeMounts": mounts, "env": env}]}}


def add_entry(tar: tarfile.TarFile, name: str, kind: bytes, *, mode: int = 0o644, target: str = "", text: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, len(text)
    tar.addfile(entry, io.BytesIO(text.encode()))


def layout(path: Path, name: str, layer: bytes, run: dict[str, Any]) -> Path:
    """An OCI image layout of one layer, in a tar file that `ctr images import` reads."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    stored = blob(layer, "layer.v1.tar")
    config = {"architecture": architecture, "os": "linux", "config": run, "rootfs": {"type": "layers", "diff_ids": [stored["digest"]]}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [stored],
    }
    entry = {**blob(json.dumps(manifest).encode(), "manifest.v1+json"), "annotations": {"io.containerd.image.name": name}}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for file, content in {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}.items():
            info = tarfile.TarInfo(file)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path
