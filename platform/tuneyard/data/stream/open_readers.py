"""The readers that this process keeps open on files that can only be read from their front: one for each file, the last used stay."""

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
"""Enough for two parts of a mixture at a time. One holds 1 to 10 MiB: what was read ahead, and the window of its compression."""

_Key = tuple[str, str, int, str]


@dataclass
class _Open:
    reader: Reader | None = None
    lock: Lock = field(default_factory=Lock)


class OpenReaders:
    """A piece behind the place of its file's reader is reached by reading on; one before it by a new reader."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start without readers: a forked process shares the places of its parent's files."""
        self._lock = Lock()
        self._open: OrderedDict[_Key, _Open] = OrderedDict()

    def take(self, file: DataFile, start: int, end: int) -> Rows:
        """The rows of a file that begin in [start, end). Raises BadInput (broken off, changed), StorageError."""
        key = _key(file)
        with self._lock:
            place = self._open.setdefault(key, _Open())
            self._open.move_to_end(key)
            while len(self._open) > _MOST:
                self._open.popitem(last=False)
        with place.lock, reading(file.uri):
            reader, place.reader = place.reader, None  # after an error it stands nowhere
            if reader is None or start < reader.covered:
                reader = reader_of(file)
            rows = reader.take(start, end)
            file.check_unchanged()
            place.reader = reader
        return rows

    def way(self, file: DataFile, start: int) -> int:
        """Bytes that must be passed over to get to `start`."""
        place = self._open.get(_key(file))
        covered = place.reader.covered if place is not None and place.reader is not None else 0
        return start - covered if covered <= start else start


def reader_of(file: DataFile) -> Reader:
    """A reader at the front of a file. Raises BadInput where it is not what it should be."""
    if file.kind == "arrow":
        return ArrowReader(file)
    return CsvReader(file) if file.kind == "csv" else LineReader(file)


def _key(file: DataFile) -> _Key:
    return file.uri, file.mark, file.size_bytes, file.reader


READERS = OpenReaders()
os.register_at_fork(after_in_child=READERS.forget)
