"""The interface of a store: a folder at some URI, with the few operations that every kind of storage has.

Paths are relative to the store's URI, with `/` between parts. A write is seen whole or not at all. All errors are
StorageError (NotFound, AlreadyExists), with cause and next step.
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
"""Called with bytes done and bytes in all, from any thread."""


@dataclass(frozen=True)
class FileInfo:
    """`version` changes when the content does (e-tag, or modification time); empty where the store has none."""

    path: str
    size_bytes: int
    version: str = ""


class Store(ABC):
    """A folder in some storage. Safe to use from several threads."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def url(self, path: str = "") -> str:
        """URI of `path` in this store."""
        return join(self.uri, path)

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write `data`, over what was there."""

    @abstractmethod
    def create(self, path: str, data: bytes) -> None:
        """Write `data` if nothing is there: of any number of racing writers, exactly one succeeds.

        Raises AlreadyExists otherwise. After a lost connection the one that succeeded may be told AlreadyExists too:
        who must know puts something of its own into `data` and reads it back.
        """

    @abstractmethod
    def put_stream(self, path: str, chunks: Iterable[bytes], size_bytes: int) -> None:
        """Write what `chunks` yield, `size_bytes` in all, without holding it in memory.

        Raises StorageError, and writes nothing, where they yield more or less.
        """

    @abstractmethod
    def get(self, path: str) -> bytes:
        """The content. Raises NotFound."""

    @abstractmethod
    def get_stream(self, path: str) -> Iterator[bytes]:
        """The content in chunks of some MiB. Raises NotFound."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """True if a file is stored under exactly this path."""

    @abstractmethod
    def list(self, prefix: str = "") -> Sequence[FileInfo]:
        """All files in the folder `prefix` and below, by path; none where there is no such folder."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file; nothing happens where there is none."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove the folder `prefix`. Manifests go first, so that a removal cut short leaves no folder that looks complete."""
        files = self.list(prefix)
        for file in files:
            if file.path.rsplit("/", 1)[-1] == MANIFEST:
                self.delete(file.path)
        for file in files:
            self.delete(file.path)

    def put_file(self, path: str, local: Path) -> None:
        """Upload a local file, in parts where it is large."""
        with os_errors(str(local), "read"):
            self.put_stream(path, read_chunks(local), local.stat().st_size)

    def get_file(self, path: str, local: Path) -> None:
        """Download into a local file, which appears when it is whole."""
        with os_errors(str(local), "write"), staged_file(local) as file:
            for chunk in self.get_stream(path):
                file.write(chunk)

    def upload_folder(
        self, local: Path, prefix: str, on_progress: OnProgress | None = None, *, extra: Mapping[str, Any] | None = None
    ) -> Manifest:
        """Store a local folder as the folder `prefix`, complete or absent: the manifest is written last and is the commit.

        What was there before, whole or left over from an aborted upload, is replaced. `extra` goes into the manifest.
        """
        return folders.upload(self, local, prefix, on_progress, extra or {})

    def commit_folder(
        self, local: Path, prefix: str, on_progress: OnProgress | None = None, *, extra: Mapping[str, Any] | None = None
    ) -> Manifest:
        """Like `upload_folder`, but the local folder is used up: a rename where both lie on one file system."""
        manifest = self.upload_folder(local, prefix, on_progress, extra=extra)
        folders.remove_local(local)
        return manifest

    def download_folder(self, prefix: str, local: Path, on_progress: OnProgress | None = None) -> Manifest:
        """Copy a complete folder to `local`, which appears (or is replaced) when every size and hash was found right.

        Raises NotFound where the folder is not complete, StorageError where a file does not match its manifest.
        """
        return folders.download(self, prefix, local, on_progress)

    def is_complete(self, prefix: str) -> bool:
        """True if the folder `prefix` was committed."""
        return self.exists(join(prefix, MANIFEST))

    def manifest(self, prefix: str) -> Manifest:
        """The manifest of a committed folder. Raises NotFound where there is none."""
        return Manifest.from_json(self.get(join(prefix, MANIFEST)))
