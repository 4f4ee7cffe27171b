"""Other versions of the whole product: a revision of this repository's history, or a next version that is made of the tree by edits.

A version is a folder with `platform`, `operators` and `charts`. Its programs run on the libraries of this environment, with the version's
own packages before them on PYTHONPATH: the hub as a process, or the hub and the attempts in pods, by environment and mounts.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.testcluster.images import ROOT, pod_template

PARTS = ("platform", "operators", "charts")
BEFORE = "bd8b39b"
"""The previous revision, whose hub and CRDs stand for what is installed before an upgrade."""
_READY = ".complete"


class NotInHistory(RuntimeError):
    """The revision is not in this clone, such as a shallow one, or there is no git."""


@dataclass(frozen=True)
class Version:
    """A checkout of the product. `name`: for people."""

    name: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which this environment's Python finds the version's packages."""
        return {"PYTHONPATH": f"{self.folder / 'platform'}{os.pathsep}{self.folder / 'operators'}"}

    @property
    def takes_a_grace(self) -> bool:
        """Whether its hub has the option `--stop-grace`."""
        return "--stop-grace" in (self.folder / "operators" / "tuneyard_operators" / "__main__.py").read_text()

    @property
    def has_templates(self) -> bool:
        """Whether its jobs may name a ModelTemplate."""
        return (self.folder / "platform" / "tuneyard" / "api" / "templates.py").exists()

    def crds(self, folder: Path) -> list[Path]:
        """The version's CRDs of all kinds, as files in `folder`."""
        command = [sys.executable, "-P", "-m", "tuneyard.api.schema", str(folder)]
        subprocess.run(command, check=True, env={**os.environ, **self.environment})
        return sorted(folder.glob("*.yaml"))

    def pod_template(self, server: str) -> dict[str, Any]:
        """`tests.testcluster.images.pod_template`, for pods that run the version's packages."""
        template = pod_template(server)
        if self.folder == ROOT:
            return template
        (container,) = template["spec"]["containers"]
        container["env"] += [{"name": name, "value": value} for name, value in self.environment.items()]
        template["spec"]["volumes"].append({"name": "host-version", "hostPath": {"path": str(self.folder)}})
        container["volumeMounts"].append({"name": "host-version", "mountPath": str(self.folder), "readOnly": True})
        return template


TREE = Version("tree", ROOT)


def revision(name: str) -> Version:
    """A revision of this repository, checked out into the user's cache. Raises NotInHistory."""
    try:
        commit = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").decode().strip()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        raise NotInHistory(f"{name} is not in the history of this clone; a shallow one: git fetch --unshallow") from error
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "tuneyard" / "versions" / commit[:12]
    if not (folder / _READY).exists():
        made = folder.with_name(f"{folder.name}.{os.getpid()}")
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
            archive.extractall(made, filter="data")
        _complete(made, folder)
    return Version(name, folder)


@dataclass(frozen=True)
class Edit:
    """`old` stands in `file` exactly once, and becomes `new`."""

    file: str
    old: str
    new: str


def edited(name: str, folder: Path, edits: Sequence[Edit], *, of: Version = TREE) -> Version:
    """A version made of another by edits, in `folder`. Raises ValueError where an edit's text is not there once."""
    for part in PARTS:
        shutil.copytree(of.folder / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in edits:
        text = (folder / edit.file).read_text()
        if text.count(edit.old) != 1:
            raise ValueError(f"{edit.file} holds {text.count(edit.old)} times: {edit.old}")
        (folder / edit.file).write_text(text.replace(edit.old, edit.new))
    return Version(name, folder)


def _complete(made: Path, folder: Path) -> None:
    """Build the scheduler's core, where the revision has one, and give the checkout its name; the first of several wins."""
    build = made / "hatch_build.py"
    if build.exists():
        subprocess.run([sys.executable, str(build)], check=True)
    (made / _READY).touch()
    try:
        made.rename(folder)
    except OSError:
        shutil.rmtree(made)


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True).stdout
