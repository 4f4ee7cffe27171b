"""Atomic uploads and downloads of folders on any store: files first, the manifest last."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from tuneyard.api import StorageError
from tuneyard.storage.errors import os_errors
from tuneyard.storage.files import is_temporary, read_chunks, remove, staged_folder
from tuneyard.storage.manifest import MANIFEST, Manifest, ManifestFile
from tuneyard.storage.uris import clean, join

if TYPE_CHECKING:
    from tuneyard.storage.store import OnProgress, Store

Item = TypeVar("Item")
Result = TypeVar("Result")

TRANSFERS_AT_ONCE = 4
BEGUN = ".tuneyard-begun.json"
"""Beside files of a folder that is being filled; see `filling`."""


class Progress:
    """Adds up bytes from several threads, and calls the listener."""

    def __init__(self, listener: OnProgress | None, of_bytes: int) -> None:
        self._listener = listener
        self._of_bytes = of_bytes
        self._done_bytes = 0
        self._lock = Lock()

    def add(self, size_bytes: int) -> None:
        if self._listener is None:
            return
        with self._lock:
            self._done_bytes += size_bytes
            self._listener(self._done_bytes, self._of_bytes)


def scan(local: Path) -> list[tuple[str, int]]:
    """Files below a local folder: relative paths and sizes. Temporary files, the folder's manifest and `BEGUN` are left out.

    Raises StorageError where `local` is not a folder.
    """
    if not local.is_dir():
        raise StorageError(f"{local} is not a folder", "check the path: only a folder can be stored")
    with os_errors(str(local), "read"):
        files = [path for path in sorted(local.rglob("*")) if path.is_file() and not is_temporary(path.name)]
        named = [(path.relative_to(local).as_posix(), path.stat().st_size) for path in files]
    return [(name, size) for name, size in named if name not in (MANIFEST, BEGUN)]


def hashed(chunks: Iterable[bytes], digest: Any, progress: Progress) -> Iterator[bytes]:
    """`chunks`, unchanged; each one updates `digest` and `progress`."""
    for chunk in chunks:
        digest.update(chunk)
        progress.add(len(chunk))
        yield chunk


def in_parallel(action: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Results in the order of `items`. The first error cancels all actions that have not begun, and is raised."""
    with ThreadPoolExecutor(TRANSFERS_AT_ONCE, thread_name_prefix="tuneyard-storage") as pool:
        futures = [pool.submit(action, item) for item in items]
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = next((f for f in futures if f.done() and f.exception()), None)
        if failed is not None:
            pool.shutdown(cancel_futures=True)
            failed.result()
        return [future.result() for future in futures]


def upload(store: Store, local: Path, prefix: str, on_progress: OnProgress | None, extra: Mapping[str, Any]) -> Manifest:
    """See Store.upload_folder."""
    prefix = clean(prefix)
    files = scan(local)
    _clear(store, prefix, keep={BEGUN, *(name for name, _ in files)})
    progress = Progress(on_progress, sum(size for _, size in files))

    def send(file: tuple[str, int]) -> ManifestFile:
        name, size = file
        digest = hashlib.sha256()

        def chunks() -> Iterator[bytes]:
            with os_errors(str(local / name), "read"):
                yield from hashed(read_chunks(local / name), digest, progress)

        store.put_stream(join(prefix, name), chunks(), size)
        return ManifestFile(name, size, digest.hexdigest())

    manifest = Manifest(tuple(in_parallel(send, files)), extra)
    store.put(join(prefix, MANIFEST), manifest.to_json())
    return manifest


def _clear(store: Store, prefix: str, keep: set[str]) -> None:
    """Remove the manifest, so that the folder is incomplete; then remove all files that will not be overwritten."""
    store.delete(join(prefix, MANIFEST))
    for file in store.list(prefix):
        name = file.path[len(prefix) + 1 :] if prefix else file.path
        if name not in keep:
            store.delete(file.path)


def download(store: Store, prefix: str, local: Path, on_progress: OnProgress | None) -> Manifest:
    """See Store.download_folder."""
    prefix = clean(prefix)
    manifest = store.manifest(prefix)
    progress = Progress(on_progress, manifest.size_bytes)
    with os_errors(str(local), "write"), staged_folder(local) as staged:

        def fetch(file: ManifestFile) -> None:
            digest = hashlib.sha256()
            target = staged / clean(file.path)
            with os_errors(str(local), "write"):
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as out:
                    for chunk in hashed(store.get_stream(join(prefix, file.path)), digest, progress):
                        out.write(chunk)
            if target.stat().st_size != file.size_bytes or digest.hexdigest() != file.sha256:
                raise StorageError(
                    f"{store.url(join(prefix, file.path))} does not match its manifest",
                    "it was changed or damaged after its commit: remove the folder and create it again",
                )

        in_parallel(fetch, manifest.files)
        (staged / MANIFEST).write_bytes(manifest.to_json())
    return manifest


def remove_local(local: Path) -> None:
    """Remove a local folder that was committed elsewhere."""
    remove(local)
