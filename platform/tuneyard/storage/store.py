"""The interface of a store: a folder at a URI, with the few operations that every kind of storage has.

Paths are relative to the store's URI, with `/` between parts. Writes are atomic. All errors are StorageError (NotFound, AlreadyExists),
with cause and next step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.storage import folders
from tuneyard.storage.errors import os_errors
from tuneyard.storage.files import read_chunks, staged_file
from tuneyard.storage.manifest import MANIFEST, Manifest
from tuneyard.storage.uris import join

OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the total bytes, from any thread."""


@dataclass(frozen=True)
class FileInfo:
    """A file in a listing. `version`: changes with the content (ETag, or modification time); empty where the store has none.
    `modified_s`: when it was written, by the clock of the store, in seconds since 1970.
    """

    path: str
    size_bytes: int
    version: str = ""
    modified_s: float = 0.0


class Store(ABC):
    """A folder in some storage. Safe to use from several threads."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def url(self, path: str = "") -> str:
        """URI of `path` in this store."""
        return join(self.uri, path)

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write `data`; an existing file is replaced."""

    @abstractmethod
    def create(self, path: str, data: bytes) -> None:
        """Write `data` if the path does not exist. Of several racing writers, exactly one succeeds.

        Raises AlreadyExists otherwise. After a lost connection, the successful writer may get AlreadyExists too. A caller that must know
        puts a nonce into `data` and reads it back.
        """

    @abstractmethod
    def put_stream(self, path: str, chunks: Iterable[bytes], size_bytes: int) -> None:
        """Write `chunks`, which have `size_bytes` in total, without keeping them in memory.

        Raises StorageError, and writes nothing, where their total differs.
        """

    @abstractmethod
    def get(self, path: str) -> bytes:
        """The content of a file. Raises NotFound."""

    @abstractmethod
    def get_stream(self, path: str) -> Iterator[bytes]:
        """The content of a file in chunks of some MiB. Raises NotFound."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file with exactly this path."""

    @abstractmethod
    def list(self, prefix: str = "") -> Sequence[FileInfo]:
        """All files in the folder `prefix` and below, sorted by path; empty where there is no such folder."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file, if it exists."""

    def has_files(self, prefix: str = "") -> bool:
        """Whether there is a file in the folder `prefix` or below."""
        return len(self.list(prefix)) > 0

    def delete_prefix(self, prefix: str) -> None:
        """Remove the folder `prefix`. Manifests are removed first, so that an interrupted removal leaves no folder that looks complete."""
        files = self.list(prefix)
        for file in files:
            if file.path.rsplit("/", 1)[-1] == MANIFEST:
                self.delete(file.path)
        for file in files:
            self.delete(file.path)

    def put_file(self, path: str, local: Path) -> None:
        """Upload a local file; a large file in parts."""
        with os_errors(str(local), "read"):
            self.put_stream(path, read_chunks(local), local.stat().st_size)

    def get_file(self, path: str, local: Path) -> None:
        """Download to a local file, which is written atomically."""
        with os_errors(str(local), "write"), staged_file(local) as file:
            for chunk in self.get_stream(path):
                file.write(chunk)

    def upload_folder(
        self, local: Path, prefix: str, on_progress: OnProgress | None = None, *, extra: Mapping[str, Any] | None = None
    ) -> Manifest:
        """Store a local folder as the folder `prefix`. The manifest is written last, and is the commit.

        An existing folder, complete or from an aborted upload, is replaced. `extra` is stored in the manifest.
        """
        return folders.upload(self, local, prefix, on_progress, extra or {})

    def commit_folder(
        self, local: Path, prefix: str, on_progress: OnProgress | None = None, *, extra: Mapping[str, Any] | None = None
    ) -> Manifest:
        """Like `upload_folder`, but moves the local folder: a rename where both lie on one file system."""
        manifest = self.upload_folder(local, prefix, on_progress, extra=extra)
        folders.remove_local(local)
        return manifest

    def download_folder(self, prefix: str, local: Path, on_progress: OnProgress | None = None) -> Manifest:
        """Copy a complete folder to `local`. The copy replaces `local` only after every size and hash has been verified.

        Raises NotFound where the folder is not complete, StorageError where a file does not match its manifest.
        """
        return folders.download(self, prefix, local, on_progress)

    def is_complete(self, prefix: str) -> bool:
        """Whether the folder `prefix` was committed."""
        return self.exists(join(prefix, MANIFEST))

    def manifest(self, prefix: str) -> Manifest:
        """The manifest of a committed folder. Raises NotFound where there is none."""
        return Manifest.from_json(self.get(join(prefix, MANIFEST)))
