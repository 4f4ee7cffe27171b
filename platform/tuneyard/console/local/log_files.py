"""Logs in an output folder of this machine: a window of bytes, and a search, without reading a whole log.

A log is one growing file (`logs/train-rank-0.log`, by `tuneyard run`), or a row of numbered files that are written once
(`logs/train/1/rank-0/000001.log`, by a hub's attempts). Either is a sequence of bytes with one offset. Only files that a listing of the
folder shows are read: a request names a log by its label and never by a path, and links out of the folder are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuneyard.tracking.task_logs import Chunk, source_order

WINDOW = 64 << 10
"""Bytes shown at once."""
SEARCHED = 64 << 20
"""Bytes that one search reads; a link continues it."""
MOST_LOGS = 5_000
LONGEST_LINE = 2_000
"""Characters of a line that are shown."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class LogFile:
    """A log. `pieces`: its files with their sizes when it was listed, in order."""

    label: str
    pieces: Sequence[tuple[Path, int]]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.pieces)

    def read(self, start: int, length: int) -> bytes:
        """Bytes [start, start + length), fewer at the end. Raises OSError."""
        parts = []
        for path, size in self.pieces:
            if start < size and length > 0:
                with path.open("rb") as file:
                    file.seek(start)
                    part = file.read(min(length, size - start))
                parts.append(part)
                length -= len(part)
            start = max(0, start - size)
        return b"".join(parts)


@dataclass(frozen=True)
class Window:
    """Whole lines of a log. `start`, `end`: their bytes [start, end). `size`: of the log."""

    lines: Sequence[str]
    start: int
    end: int
    size: int


@dataclass(frozen=True)
class Found:
    """The result of a search. `at`: the offset of the first line that holds the text; None where `reached` was read without a match."""

    at: int | None
    reached: int


def logs_of(folder: Path) -> list[LogFile]:
    """The logs of a job, rank-10 after rank-2. Raises OSError."""
    root = (folder / "logs").resolve()
    if not root.is_relative_to(folder.resolve()) or not root.is_dir():
        return []
    pieces: dict[tuple[str, ...], list[tuple[int, Path, int]]] = {}
    for count, (path, inside) in enumerate(_files(root)):
        if count >= 4 * MOST_LOGS:
            break
        chunk = Chunk.from_path(f"logs/{inside}")
        key, number = ((chunk.task, str(chunk.attempt), chunk.source), chunk.number) if chunk else ((inside,), 0)
        pieces.setdefault(key, []).append((number, path, path.stat().st_size))
    made = [LogFile(_label(key), [(path, size) for _, path, size in sorted(found)]) for key, found in pieces.items()]
    return sorted(made, key=lambda log: [source_order(part.removesuffix(".log")) for part in log.label.split(" · ")])[:MOST_LOGS]


def window(log: LogFile, at: int | None = None, length: int = WINDOW) -> Window:
    """Lines from the one that holds byte `at`; the end of the log for None. A line longer than the window is cut."""
    size = log.size
    start = max(0, size - length) if at is None else max(0, min(at, size))
    begin = start if start == 0 else _line_start(log, start) if at is not None else _next_line(log, start)
    raw = log.read(begin, length)
    if begin + len(raw) < size and b"\n" in raw:
        raw = raw[: raw.rfind(b"\n") + 1]
    return Window(_lines(raw), begin, begin + len(raw), size)


def before(log: LogFile, end: int, length: int = WINDOW) -> int:
    """The start of the window that ends where this one starts."""
    return 0 if end <= length else _next_line(log, end - length)


def search(log: LogFile, text: str, at: int = 0, limit: int = SEARCHED) -> Found:
    """The first line from byte `at` that holds `text`, in any case of its letters. Reads `limit` bytes at most."""
    wanted, size = text.encode("utf-8", "replace").lower(), log.size
    overlap, place, stop = len(wanted) - 1, max(0, at), min(log.size, max(0, at) + limit)
    tail = b""
    while wanted and place < stop:
        block = log.read(place, min(_BLOCK, stop - place))
        if not block:
            break
        hay = (tail + block).lower()
        hit = hay.find(wanted)
        if hit >= 0:
            return Found(_line_start(log, place - len(tail) + hit), stop)
        tail = (tail + block)[-overlap:] if overlap else b""
        place += len(block)
    return Found(None, min(place, size))


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    """Plain files below `root`, with their path in it."""
    for folder, subfolders, names in os.walk(root):
        subfolders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(".log") and not path.is_symlink() and path.is_file():
                yield path, path.relative_to(root).as_posix()


def _label(key: tuple[str, ...]) -> str:
    if len(key) == 1:
        return key[0].removesuffix(".log")
    task, attempt, source = key
    return f"{task} · attempt {attempt} · {source}"


def _line_start(log: LogFile, at: int) -> int:
    """The start of the line that holds byte `at`; `at` itself in a line without an end."""
    begin = max(0, at - WINDOW)
    found = log.read(begin, at - begin).rfind(b"\n")
    return begin + found + 1 if found >= 0 else begin if begin == 0 else at


def _next_line(log: LogFile, at: int) -> int:
    """The first start of a line from byte `at` on; `at` itself in a line without an end."""
    found = log.read(at - 1, WINDOW).find(b"\n") if at else -1
    return at + found if found >= 0 else at


def _lines(raw: bytes) -> list[str]:
    """Lines as they stand on a terminal: a progress bar that redraws itself with carriage returns shows its last state."""
    text = raw.decode("utf-8", "replace")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    shown = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines]
    return [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}… ({len(line):,} characters)" for line in shown]
