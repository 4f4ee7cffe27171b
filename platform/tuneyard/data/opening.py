"""Opens a file in the version of the listing. A file that has changed since then is refused by name.

Metadata of a local file are compared when it is opened, and again after it has been read. An object is read by ranges. Every response
carries size, ETag and time, so that no two versions are mixed. Requests to a store that throttles or is unreachable are retried.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tuneyard.api import BadInput
from tuneyard.data.access import READ_RETRY_S, Bucket, patiently, reading
from tuneyard.data.fork_reader import read_range
from tuneyard.data.read_limit import limit
from tuneyard.storage.forks import is_cut_off

if TYPE_CHECKING:
    from tuneyard.data.file_types import FoundFile

REMOTE_BLOCK_BYTES = 8 << 20
"""Size of one request in a sequential read of an object: large enough that the latency of the store is a small part of the time."""


@dataclass(frozen=True)
class Version:
    """The version of a remote file. `modified`: in seconds for an object, else the store's own number; 0 where unknown."""

    size_bytes: int
    modified: int = 0
    etag: str = ""

    def differs(self, other: Version) -> bool:
        """Whether the versions differ. ETags decide if both are known: listings give times in fractions of a second, responses do not."""
        if self.size_bytes != other.size_bytes:
            return True
        if self.etag and other.etag:
            return self.etag != other.etag
        return bool(self.modified and other.modified and self.modified != other.modified)


def open_found(found: FoundFile) -> IO[bytes]:
    """The stored bytes, seekable. Raises BadInput where the file has changed since the listing, and ReadLimit under a limit."""
    if found.content is not None:
        return io.BytesIO(found.content)
    stream = _opened(found)
    return stream if found.fs is None or limit() is None else _Limited(found, stream)  # type: ignore[return-value]


def _opened(found: FoundFile) -> IO[bytes]:
    if found.fs is not None and is_cut_off():
        return RangesOfFork(found)  # type: ignore[return-value]
    if isinstance(found.fs, Bucket):
        return ObjectFile(found)  # type: ignore[return-value]
    check_unchanged(found)
    if found.fs is None:
        return Path(found.path).open("rb")
    stream: IO[bytes] = found.fs.open(found.path, "rb")
    return stream


def check_unchanged(found: FoundFile) -> None:
    """Raises BadInput where a file has changed since the listing, or is gone. Objects are not checked here, but with every read."""
    if found.fs is None:
        with reading(found.uri):
            if found.mark and local_mark(found.path) != found.mark:
                raise _changed(found, os.stat(found.path).st_size)
    elif found.modified and not isinstance(found.fs, Bucket) and not is_cut_off():  # the process that reads for a fork checks it
        _refuse_other(found, version_of(found.fs.info(found.path)))


def local_mark(path: str) -> str:
    """Size, mtime and inode of a file. A write or a replacement of the file changes at least one of them.

    ctime is left out: permissions and hard links (backups) change it too.
    """
    about = os.stat(path)
    return f"{about.st_size} {about.st_mtime_ns} {about.st_ino}"


def version_of(row: dict[str, Any]) -> Version:
    """The version in a row of a listing by fsspec or obstore."""
    modified = row.get("modificationTime") or row.get("mtime") or row.get("last_modified") or 0
    seconds = modified.timestamp() if hasattr(modified, "timestamp") else modified
    return Version(int(row.get("size") or 0), int(seconds), str(row.get("e_tag") or row.get("ETag") or ""))


def _refuse_other(found: FoundFile, now: Version) -> None:
    if found.version.differs(now):
        raise _changed(found, now.size_bytes)


def _changed(found: FoundFile, size_bytes: int) -> BadInput:
    sizes = f"{found.size_bytes:,} bytes, now {size_bytes:,}"
    how = sizes if size_bytes != found.size_bytes else f"still {size_bytes:,} bytes, written anew"
    next_step = "write new data into new files, and start the task again with these"
    return BadInput(f"{found.uri}: changed while it was being used ({how})", next_step)


class _Ranges(io.RawIOBase):
    """A remote file, read by ranges: each read is one request."""

    def __init__(self, found: FoundFile) -> None:
        super().__init__()
        self._found = found
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._position = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._found.size_bytes}[whence])
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        left = max(0, self._found.size_bytes - self._position)
        wanted = left if size < 0 else min(size, left)
        content = self._range(wanted) if wanted else b""
        self._position += len(content)
        return content

    def readinto(self, buffer: Any, /) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _range(self, size: int) -> bytes:
        raise NotImplementedError


class RangesOfFork(_Ranges):
    """A remote file in a process that is a fork, where clients of stores do not work."""

    def _range(self, size: int) -> bytes:
        return read_range(self._found, self._position, size)


class _Limited(_Ranges):
    """A remote file whose reads count (`read_limit`)."""

    def __init__(self, found: FoundFile, stream: IO[bytes]) -> None:
        super().__init__(found)
        self._stream = stream

    def _range(self, size: int) -> bytes:
        if (counted := limit()) is not None:
            counted.take(size)
        self._stream.seek(self._position)
        return self._stream.read(size)


class ObjectFile(_Ranges):
    """An object of a bucket."""

    def __init__(self, found: FoundFile) -> None:
        super().__init__(found)
        assert isinstance(found.fs, Bucket)
        self._store = found.fs.store

    def _range(self, size: int) -> bytes:
        return patiently(lambda: self._asked(size), total_s=READ_RETRY_S, away=True)

    def _asked(self, size: int) -> bytes:
        import obstore
        from obstore.exceptions import NotFoundError

        try:
            answer = obstore.get(self._store, self._found.path, options={"range": (self._position, self._position + size)})
        except (FileNotFoundError, NotFoundError) as error:
            raise BadInput(
                f"{self._found.uri}: was deleted while it was being used", "start the task again when no other process changes these files"
            ) from error
        _refuse_other(self._found, version_of(dict(answer.meta)))
        return bytes(answer.bytes())
