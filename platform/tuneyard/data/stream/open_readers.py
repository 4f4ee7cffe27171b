"""The readers that this process keeps open on files without random access: one per file, least recently used closed first."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

from tuneyard.data.access import reading
from tuneyard.data.file_types import DataFile
from tuneyard.data.stream.forward import LineReader, Reader, Rows
from tuneyard.data.stream.forward_arrow import ArrowReader
from tuneyard.data.stream.forward_csv import CsvReader

_MOST = 32
"""Maximum number of open readers: enough for two parts of a mixture. One holds 1 to 10 MiB: read-ahead, and the compression window."""

_Key = tuple[str, str, int, str]


@dataclass
class _Open:
    reader: Reader | None = None
    lock: Lock = field(default_factory=Lock)


class OpenReaders:
    """Reads pieces of files. A piece after the reader's place is reached by reading on, an earlier piece by a new reader."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop all readers. A forked process must: it shares file positions with its parent."""
        self._lock = Lock()
        self._open: OrderedDict[_Key, _Open] = OrderedDict()

    def take(self, file: DataFile, start: int, end: int) -> Rows:
        """The rows of a file that begin in [start, end). Raises BadInput (truncated, changed), StorageError."""
        key = _key(file)
        with self._lock:
            place = self._open.setdefault(key, _Open())
            self._open.move_to_end(key)
            while len(self._open) > _MOST:
                self._open.popitem(last=False)
        with place.lock, reading(file.uri):
            reader, place.reader = place.reader, None  # after an error its place is undefined
            if reader is None or start < reader.covered:
                reader = reader_of(file)
            rows = reader.take(start, end)
            file.check_unchanged()
            place.reader = reader
        return rows

    def way(self, file: DataFile, start: int) -> int:
        """Bytes that must be skipped to reach `start`."""
        place = self._open.get(_key(file))
        covered = place.reader.covered if place is not None and place.reader is not None else 0
        return start - covered if covered <= start else start


def reader_of(file: DataFile) -> Reader:
    """A new reader at the front of a file. Raises BadInput where the file does not have its type."""
    if file.kind == "arrow":
        return ArrowReader(file)
    return CsvReader(file) if file.kind == "csv" else LineReader(file)


def _key(file: DataFile) -> _Key:
    return file.uri, file.mark, file.size_bytes, file.reader


READERS = OpenReaders()
os.register_at_fork(after_in_child=READERS.forget)
