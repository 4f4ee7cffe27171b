"""Reads of a fork through the process that reads for it."""

from __future__ import annotations

import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from tuneyard.api import StorageError
from tuneyard.data import fork_reader
from tuneyard.data.file_types import FoundFile

ROOT = Path(__file__).parents[3]
TEXT = b"0123456789" * 10
HANG_S = 240
_met = threading.Barrier(8)
"""In the process that reads, which imports this module for `Store`."""


class Store:
    """A file system whose reads wait for others: for eight that are in flight, for ever, or not at all."""

    def __init__(self, reads: str) -> None:
        self.reads = reads

    def open(self, path: str, _mode: str) -> IO[bytes]:
        if path == "gone":
            raise FileNotFoundError(path)
        return _Waits(self.reads)


class _Waits(io.BytesIO):
    def __init__(self, reads: str) -> None:
        super().__init__(TEXT)
        self._reads = reads

    def read(self, size: int | None = -1, /) -> bytes:
        if self._reads == "meet":
            _met.wait(HANG_S)
        if self._reads == "hang":
            threading.Event().wait()
        if self._reads == "strange":
            return _Strange()
        return super().read(size)


class _Strange(bytes):
    """An answer that the fork cannot read."""

    def __reduce__(self) -> Any:
        return (int, ("no number",))


@pytest.fixture(autouse=True)
def own_reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(fork_reader, "_reader", None)


def found(reads: str, path: str = "a") -> FoundFile:
    return FoundFile(f"store://{path}", path, len(TEXT), fs=Store(reads))


def test_eight_reads_are_in_flight_and_each_gets_its_own_bytes() -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda place: fork_reader.read_range(found("meet"), place, 3), range(8)))
    assert answers == [TEXT[place : place + 3] for place in range(8)]


def test_an_error_is_that_of_its_own_read() -> None:
    with ThreadPoolExecutor(2) as pool:
        lost, read = (pool.submit(fork_reader.read_range, found("at once", path), 5, 2) for path in ("gone", "a"))
        with pytest.raises(FileNotFoundError, match="gone"):
            lost.result()
        assert read.result() == b"56"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_answer_that_cannot_be_read_ends_the_reads_in_flight() -> None:
    with ThreadPoolExecutor(2) as pool:
        reads = [pool.submit(fork_reader.read_range, found(kind), 0, 1) for kind in ("hang", "strange")]
        for each in reads:
            with pytest.raises(StorageError, match="the process that reads it has ended"):
                each.result(HANG_S)
    assert fork_reader.read_range(found("at once"), 0, 2) == b"01"


def test_reads_whose_process_is_killed_fail_and_the_next_has_another() -> None:
    with ThreadPoolExecutor(3) as pool:
        reads = [pool.submit(fork_reader.read_range, found("hang"), 0, 1) for _ in range(3)]
        while (reader := fork_reader._reader) is None or len(reader._waiting) < 3:
            os.sched_yield()
        psutil.Process(reader._process.pid).kill()
        for each in reads:
            with pytest.raises(StorageError, match="the process that reads it has ended"):
                each.result()
    assert fork_reader.read_range(found("at once"), 0, 2) == b"01"
