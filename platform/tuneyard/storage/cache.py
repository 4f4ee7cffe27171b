"""Local copies of remote folders: one copy of each content per machine, shared by all processes."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuneyard.storage.errors import NotFound, os_errors
from tuneyard.storage.files import staged_folder
from tuneyard.storage.folders import Progress, in_parallel
from tuneyard.storage.opening import open_store
from tuneyard.storage.store import FileInfo, OnProgress, Store
from tuneyard.storage.uris import is_local, local_path


def fetch_folder(uri: str, cache_dir: Path, on_progress: OnProgress | None = None) -> Path:
    """A local folder with the content of the folder at `uri`. A local URI is returned as its path.

    The copy is named by the hash of its manifest, so a changed folder gets a new copy. A folder without a manifest (written by another
    tool) is named by its listing. Of several concurrent processes, one copies and the others wait.

    Raises NotFound where nothing is stored at `uri`.
    """
    if is_local(uri):
        path = local_path(uri)
        if not path.exists():
            raise NotFound(f"{uri} does not exist", "check the path")
        return path
    store = open_store(uri)
    if store.is_complete(""):
        target = cache_dir / hashlib.sha256(store.manifest("").to_json()).hexdigest()[:32]
        with _only_one(target):
            if not target.exists():
                store.download_folder("", target, on_progress)
        return target
    files = store.list()
    if not files:
        raise NotFound(f"nothing is stored at {uri}", "check the path; a model is a folder with config.json")
    target = cache_dir / hashlib.sha256(repr([uri, *files]).encode()).hexdigest()[:32]
    with _only_one(target):
        if not target.exists():
            _copy_plain(store, [file for file in files if not file.path.endswith("/")], target, on_progress)
    return target


@contextmanager
def _only_one(target: Path) -> Iterator[None]:
    """A lock, so that one process at a time builds `target`. The kernel releases it if the process dies."""
    with os_errors(str(target), "write"):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = target.with_suffix(".lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _copy_plain(store: Store, files: list[FileInfo], target: Path, on_progress: OnProgress | None) -> None:
    progress = Progress(on_progress, sum(file.size_bytes for file in files))
    with os_errors(str(target), "write"), staged_folder(target) as staged:

        def fetch(file: FileInfo) -> None:
            store.get_file(file.path, staged / file.path)
            progress.add(file.size_bytes)

        in_parallel(fetch, files)
