"""Folders of clusters that belong to a process, and the end of those whose process is gone."""

from __future__ import annotations

import os
from pathlib import Path

from tests.testcluster.clusters import Clusters
from tests.testcluster.mounts import remove_folder
from tests.testcluster.processes import started_at

FOLDERS = Path("/tmp/tuneyard-tests")
"""Short, for the sake of Unix sockets, whose paths may have 107 characters."""


def own_folder() -> Path:
    """A new folder for clusters of this process. What killed processes left is removed first."""
    FOLDERS.mkdir(exist_ok=True)
    for folder in FOLDERS.iterdir():
        pid, _, start = folder.name.partition("-")
        if pid.isdigit() and started_at(int(pid)) != start:
            remove(folder)
    folder = FOLDERS / f"{os.getpid()}-{started_at(os.getpid())}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def remove(folder: Path) -> None:
    """End all clusters one or two levels below a folder, and remove it."""
    for place in (folder, *folder.glob("*/")):
        Clusters.found(place).close()
    remove_folder(folder)
