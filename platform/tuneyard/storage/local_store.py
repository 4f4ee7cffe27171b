"""A folder of this machine (or of a network file system that it mounts) as a store."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuneyard.storage.errors import AlreadyExists, os_errors
from tuneyard.storage.files import (
    as_umask_says,
    exactly,
    is_temporary,
    read_chunks,
    remove,
    remove_stale_siblings,
    replace_folder,
    staged_file,
    staged_folder,
    sync_folder,
)
from tuneyard.storage.folders import Progress, hashed, in_parallel, scan
from tuneyard.storage.manifest import MANIFEST, Manifest, ManifestFile
from tuneyard.storage.store import FileInfo, OnProgress, Store
from tuneyard.storage.uris import clean

# Errors of link() on file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class LocalStore(Store):
    """A store in a local folder. Files are written under a temporary name, synced to disk (fsync), and renamed."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.root = root

    def _path(self, path: str) -> Path:
        return self.root / clean(path)

    def put(self, path: str, data: bytes) -> None:
        self.put_stream(path, [data], len(data))

    def put_stream(self, path: str, chunks: Iterable[bytes], size_bytes: int) -> None:
        with os_errors(self.url(path), "write"), staged_file(self._path(path)) as file:
            for chunk in exactly(chunks, size_bytes, self.url(path)):
                file.write(chunk)

    def create(self, path: str, data: bytes) -> None:
        target = self._path(path)
        with os_errors(self.url(path), "write"):
            try:
                _create(target, data)
            except FileExistsError as error:
                if not target.exists():
                    raise
                raise AlreadyExists(f"{self.url(path)} exists already", "another process was first") from error

    def get(self, path: str) -> bytes:
        with os_errors(self.url(path), "read"):
            return self._path(path).read_bytes()

    def get_stream(self, path: str) -> Iterator[bytes]:
        with os_errors(self.url(path), "read"):
            yield from read_chunks(self._path(path))

    def exists(self, path: str) -> bool:
        return self._path(path).is_file()

    def list(self, prefix: str = "") -> Sequence[FileInfo]:
        found = []
        with os_errors(self.url(prefix), "list"):
            for folder, subfolders, names in os.walk(self._path(prefix), onerror=_raise_unless_absent):
                subfolders[:] = [name for name in subfolders if not is_temporary(name)]
                for name in names:
                    if not is_temporary(name):
                        found.append(self._info(Path(folder, name)))
        return sorted(found, key=lambda file: file.path)

    def _info(self, path: Path) -> FileInfo:
        status = path.stat()
        return FileInfo(path.relative_to(self.root).as_posix(), status.st_size, str(status.st_mtime_ns), status.st_mtime)

    def delete(self, path: str) -> None:
        with os_errors(self.url(path), "remove"):
            self._path(path).unlink(missing_ok=True)

    def delete_prefix(self, prefix: str) -> None:
        super().delete_prefix(prefix)
        remove(self._path(prefix))

    def upload_folder(
        self, local: Path, prefix: str, on_progress: OnProgress | None = None, *, extra: Mapping[str, Any] | None = None
    ) -> Manifest:
        target = self._path(prefix)
        with os_errors(str(target), "write"), staged_folder(target) as staged:
            return _copy(local, staged, on_progress, extra or {})

    def commit_folder(
        self, local: Path, prefix: str, on_progress: OnProgress | None = None, *, extra: Mapping[str, Any] | None = None
    ) -> Manifest:
        target = self._path(prefix)
        with os_errors(str(target), "write"):
            target.parent.mkdir(parents=True, exist_ok=True)
            if local.is_dir() and local.stat().st_dev != target.parent.stat().st_dev:
                return super().commit_folder(local, prefix, on_progress, extra=extra)
            manifest = _seal(local, on_progress, extra or {})
            remove_stale_siblings(target)
            replace_folder(local, target)
        return manifest


def _create(target: Path, data: bytes) -> None:
    try:
        with staged_file(target, replace=False) as file:
            file.write(data)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without hard links, the file is created first and written second: still one writer wins, but readers may see a partial file.
        with target.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(target.parent)


def _raise_unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _copy(local: Path, staged: Path, on_progress: OnProgress | None, extra: Mapping[str, Any]) -> Manifest:
    files = scan(local)
    progress = Progress(on_progress, sum(size for _, size in files))

    def copy(file: tuple[str, int]) -> ManifestFile:
        name, size = file
        digest = hashlib.sha256()
        with staged_file(staged / name) as out:
            for chunk in exactly(hashed(read_chunks(local / name), digest, progress), size, str(local / name)):
                out.write(chunk)
        return ManifestFile(name, size, digest.hexdigest())

    return _write_manifest(staged, Manifest(tuple(in_parallel(copy, files)), extra))


def _seal(local: Path, on_progress: OnProgress | None, extra: Mapping[str, Any]) -> Manifest:
    """Hash the files in place, set their modes by the umask, sync them to disk, and write the manifest beside them."""
    files = scan(local)
    as_umask_says(local)
    progress = Progress(on_progress, sum(size for _, size in files))

    def seal(file: tuple[str, int]) -> ManifestFile:
        name, size = file
        digest = hashlib.sha256()
        for _ in exactly(hashed(read_chunks(local / name), digest, progress), size, str(local / name)):
            pass
        with (local / name).open("rb") as written:
            os.fsync(written.fileno())
        return ManifestFile(name, size, digest.hexdigest())

    return _write_manifest(local, Manifest(tuple(in_parallel(seal, files)), extra))


def _write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    with staged_file(folder / MANIFEST) as file:
        file.write(manifest.to_json())
    return manifest
