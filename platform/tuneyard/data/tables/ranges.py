"""Read plans: byte ranges of column chunks, merged into requests, and a source that serves fetched ranges to Arrow and counts traffic.

A wide table has thousands of small column chunks per row group. One request per chunk is slow on every store. Ranges with a gap of at most
`hole_bytes` therefore become one request; the bytes between them are read and dropped. Zhao et al. 2022 (section 5.2) merge up to 1.25 MiB.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pyarrow as pa

from tuneyard.data.access import Bucket, reading
from tuneyard.data.file_types import DataFile
from tuneyard.storage.forks import is_cut_off

_PARALLEL_REQUESTS = 8


@dataclass(frozen=True)
class Coalescing:
    """Neighbouring ranges become one request where the gap is at most `hole_bytes` and the request at most `request_bytes`."""

    hole_bytes: int
    request_bytes: int = 32 << 20


LOCAL = Coalescing(hole_bytes=64 << 10)
REMOTE = Coalescing(hole_bytes=1 << 20)
"""At 100 MB/s, reading a hole of 1 MiB takes about as long as the latency of a request, 10 ms."""


@dataclass(frozen=True)
class Range:
    """Bytes [start, stop)."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass
class Traffic:
    """The storage traffic of a reader: requests and bytes for column chunks, bytes of the wanted chunks alone; footers count separately."""

    requests: int = 0
    read_bytes: int = 0
    wanted_bytes: int = 0
    footer_requests: int = 0
    footer_bytes: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def count(self, requests: int, read_bytes: int, *, footer: bool = False) -> None:
        """Add completed requests. Safe for any thread."""
        with self._lock:
            if footer:
                self.footer_requests += requests
                self.footer_bytes += read_bytes
            else:
                self.requests += requests
                self.read_bytes += read_bytes


def coalesced(ranges: Iterable[Range], rule: Coalescing) -> list[Range]:
    """The requests for `ranges`, ordered by offset. A range is never cut."""
    requests: list[Range] = []
    for one in sorted(ranges, key=lambda one: one.start):
        last = requests[-1] if requests else None
        if last and one.start - last.stop <= rule.hole_bytes and max(one.stop, last.stop) - last.start <= rule.request_bytes:
            requests[-1] = Range(last.start, max(one.stop, last.stop))
        else:
            requests.append(one)
    return requests


def chunk_range(chunk: Any) -> Range:
    """The bytes of a column chunk (`pyarrow.parquet.ColumnChunkMetaData`): its dictionary page, then its data pages."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    return Range(start, start + chunk.total_compressed_size)


def leaves(schema: pa.Schema) -> dict[str, range]:
    """Column -> indices of its column chunks in a row group. A nested column has one chunk per leaf."""
    found, at = {}, 0
    for column in schema:
        count = _leaf_count(column.type)
        found[column.name] = range(at, at + count)
        at += count
    return found


def _leaf_count(kind: pa.DataType) -> int:
    return sum(_leaf_count(kind.field(index).type) for index in range(kind.num_fields)) or 1


class RangeSource:
    """A file that Arrow reads through `pa.PythonFile`. Fetched ranges are served from memory without a copy.

    Other reads, which are reads of the footer, become requests. Only one thread at a time may use it; `fetched` may run in another one.
    """

    def __init__(self, file: DataFile, traffic: Traffic) -> None:
        self.file = file
        self.closed = False
        self._traffic = traffic
        self._position = 0
        self._segments: Sequence[tuple[Range, pa.Buffer]] = ()
        self._descriptor: int | None = None

    def fetched(self, requests: Sequence[Range], *, footer: bool = False) -> list[tuple[Range, pa.Buffer]]:
        """The bytes of each request: one read of a local file, or one ranged GET of a remote store, several at a time."""
        with reading(self.file.uri):
            if self.file.is_local or len(requests) < 2:
                found = [(one, self._fetch(one)) for one in requests]
            else:
                with ThreadPoolExecutor(min(_PARALLEL_REQUESTS, len(requests))) as pool:
                    found = list(zip(requests, pool.map(self._fetch, requests), strict=True))
        self._traffic.count(len(requests), sum(buffer.size for _, buffer in found), footer=footer)
        return found

    def serve(self, segments: Sequence[tuple[Range, pa.Buffer]]) -> None:
        """Serve reads from these segments until the next call."""
        self._segments = segments

    def _fetch(self, wanted: Range) -> pa.Buffer:
        if isinstance(self.file.found.fs, Bucket) or (not self.file.is_local and is_cut_off()):
            stream = self.file.open_raw()  # each read is one request, refuses another version, and retries
            stream.seek(wanted.start)
            return pa.py_buffer(stream.read(wanted.size))
        if not self.file.is_local:
            return pa.py_buffer(self.file.found.fs.cat_file(self.file.path, start=wanted.start, end=wanted.stop))
        if self._descriptor is None:
            self.file.check_unchanged()
            self._descriptor = os.open(self.file.path, os.O_RDONLY)
        block = pa.allocate_buffer(wanted.size)  # Arrow's pool reuses pages; numpy would allocate new ones each time
        view, done = memoryview(block), 0
        while done < wanted.size and (count := os.preadv(self._descriptor, [view[done:]], wanted.start + done)):
            done += count
        return block.slice(0, done)

    # --- called by pa.PythonFile ---

    def read_buffer(self, size: int) -> pa.Buffer:
        wanted = Range(self._position, min(self._position + size, self.file.size_bytes))
        for segment, buffer in self._segments:
            if segment.start <= wanted.start and wanted.stop <= segment.start + buffer.size:
                self._position = wanted.stop
                return buffer.slice(wanted.start - segment.start, wanted.size)
        if wanted.size <= 0:
            return pa.py_buffer(b"")
        ((_, buffer),) = self.fetched([wanted], footer=True)
        self._position += buffer.size
        return buffer

    def read(self, size: int = -1) -> bytes:
        content: bytes = self.read_buffer(self.file.size_bytes if size < 0 else size).to_pybytes()
        return content

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.file.size_bytes}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Does nothing: the file is read-only."""

    def close(self) -> None:
        """Close the file descriptor."""
        self.closed = True
        self._segments = ()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
