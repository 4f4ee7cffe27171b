"""Logs of the ranks, engines and driver of an attempt, in the job's output, readable live and afterwards.

A source (`rank-0`, `engine-1`, `driver`, `process`) is a row of small files, numbered from 1 without gaps and written once each. So
whoever has read number n knows where to go on, and asks storage for one file only, however long the log is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

FOLDER = "logs"
_CHUNK = re.compile(r"^logs/(?P<task>[^/]+)/(?P<attempt>\d+)/(?P<source>[^/]+)/(?P<number>\d+)\.log$")
_MOST_CHUNKS = 200
"""Read at once: some MB, so that a log of any length is shown piece by piece."""


class StoredFile(Protocol):
    @property
    def path(self) -> str: ...


class Readable(Protocol):
    """The source of logs, such as a tuneyard.storage.Store of the job's output."""

    def list(self, prefix: str = "") -> Sequence[StoredFile]: ...

    def get(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...


@dataclass(frozen=True)
class Chunk:
    """One file of a log."""

    task: str
    attempt: int
    source: str
    number: int

    @property
    def path(self) -> str:
        return f"{source_folder(self.task, self.attempt, self.source)}/{self.number:06}.log"

    @classmethod
    def from_path(cls, path: str) -> Chunk | None:
        """None for files that are no part of a log."""
        match = _CHUNK.match(path)
        return cls(match["task"], int(match["attempt"]), match["source"], int(match["number"])) if match else None


def task_folder(task: str) -> str:
    return f"{FOLDER}/{task}"


def source_folder(task: str, attempt: int, source: str) -> str:
    return f"{FOLDER}/{task}/{attempt}/{source}"


def chunks_of(files: Iterable[StoredFile]) -> list[Chunk]:
    """The chunks among these files, in the order in which they were written per source."""
    found = [chunk for file in files if (chunk := Chunk.from_path(file.path)) is not None]
    return sorted(found, key=lambda chunk: (chunk.task, chunk.attempt, source_order(chunk.source), chunk.number))


def source_order(source: str) -> tuple[str, int]:
    """Sorts rank-10 after rank-2."""
    kind, _, number = source.rpartition("-")
    return (kind, int(number)) if number.isdigit() else (source, -1)


def lines_of(text: str) -> list[str]:
    """The lines of a text, each with its newline: other characters that Python takes for an end of line are none here."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


@dataclass(frozen=True)
class LogPart:
    """Whole lines (as one text), and the cursor for the next read. An unchanged `cursor` means no new lines."""

    text: str
    cursor: int


@dataclass(frozen=True)
class LogNews:
    """New lines of several sources."""

    sources: Sequence[str]
    """All that have printed something so far."""
    parts: Mapping[str, str]
    """Whole lines per source with news."""
    cursors: Mapping[str, int]
    more: bool = False
    """Whether to ask again at once."""


class AttemptLogs(Protocol):
    """The logs of one attempt."""

    def sources(self) -> list[str]: ...

    def news(self, wanted: Collection[str], cursors: Mapping[str, int]) -> LogNews: ...

    def tail(self, source: str, lines: int) -> LogPart: ...


class LogReader:
    """Reads the logs of one attempt. Every method may raise StorageError."""

    def __init__(self, store: Readable, task: str, attempt: int) -> None:
        self._store = store
        self._task = task
        self._attempt = attempt

    def sources(self) -> list[str]:
        """Sources with lines so far: `driver`, `engine-0`, `rank-0`, `rank-1`."""
        chunks = chunks_of(self._store.list(f"{task_folder(self._task)}/{self._attempt}"))
        return list(dict.fromkeys(chunk.source for chunk in chunks))

    def read(self, source: str, cursor: int = 0) -> LogPart:
        """Lines after `cursor` (0: from the start), some MB at most. Call it with each new cursor until the cursor stays."""
        texts: list[str] = []
        while len(texts) < _MOST_CHUNKS:
            path = Chunk(self._task, self._attempt, source, cursor + 1).path
            if not self._store.exists(path):
                break
            texts.append(self._store.get(path).decode(errors="replace"))
            cursor += 1
        return LogPart("".join(texts), cursor)

    def news(self, wanted: Collection[str], cursors: Mapping[str, int]) -> LogNews:
        """Lines of the sources in `wanted` (empty: all) after `cursors`, some MB of each at most."""
        there = self.sources()
        found = {source: self.read(source, cursors.get(source, 0)) for source in there if not wanted or source in wanted}
        parts = {source: part.text for source, part in found.items() if part.cursor != cursors.get(source, 0)}
        return LogNews(there, parts, {**cursors, **{source: part.cursor for source, part in found.items()}})

    def tail(self, source: str, lines: int) -> LogPart:
        """The last `lines` lines, and the cursor after them."""
        chunks = chunks_of(self._store.list(source_folder(self._task, self._attempt, source)))
        kept: list[str] = []
        for chunk in reversed(chunks):
            kept = lines_of(self._store.get(chunk.path).decode(errors="replace")) + kept
            if len(kept) >= lines:
                break
        return LogPart("".join(kept[-lines:] if lines else []), chunks[-1].number if chunks else 0)
