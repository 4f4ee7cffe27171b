"""Reads an answer from storage: the sources of an attempt, and their text after cursors, or their last lines. All work is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tuneyard.cluster.log_api import LARGEST_ANSWER, MOST_SOURCES, LogAnswer, LogQuery, is_source
from tuneyard.tracking.task_logs import Chunk, source_order, task_folder
from tuneyard_operators.logs.storage import Found, LogStorage

_AT_ONCE = 32
"""Sources that are looked up concurrently. Their files are read one at a time."""
_MOST_FILES, _ENOUGH_S = 500, 5.0
"""Limits of one answer: files read, and seconds spent reading. Beyond a limit, the answer ends with the text read so far."""
_CUT = "\n[{size:,} bytes: the rest of this file is left out]\n"


async def read_answer(storage: LogStorage, task: str, attempt: int, query: LogQuery) -> LogAnswer:
    """The answer to a query about one attempt. Raises StorageError."""
    names = await storage.folders(f"{task_folder(task)}/{attempt}")
    there = sorted((name for name in names if is_source(name)), key=source_order)[:MOST_SOURCES]
    wanted = [source for source in there if not query.sources or source in query.sources]
    reader = _Reader(storage, task, attempt, query.limit_bytes)
    parts: dict[str, str] = {}
    cursors = dict(query.cursors)
    if query.limit_bytes and query.tail_lines is not None:
        parts, cursors = await reader.tails(wanted, query.tail_lines)
    elif query.limit_bytes:
        parts, cursors = await reader.news(wanted, query.cursors)
    kept = {source: cursors[source] for source in (*wanted, *query.cursors) if source in cursors}
    return LogAnswer(task, attempt, tuple(there), {source: parts[source] for source in wanted if source in parts}, kept, reader.full)


class _Reader:
    """Reads until `limit_bytes`, the number of files or the time is used up. `full` then tells that there may be more."""

    def __init__(self, storage: LogStorage, task: str, attempt: int, limit_bytes: int) -> None:
        self._storage = storage
        self._task = task
        self._attempt = attempt
        self._limit = self._left = limit_bytes
        self._files = 0
        self._until = asyncio.get_running_loop().time() + _ENOUGH_S
        self.full = False

    async def news(self, sources: Sequence[str], cursors: Mapping[str, int]) -> tuple[dict[str, str], dict[str, int]]:
        """The text of each source after its cursor, and the new cursors."""
        texts: dict[str, list[str]] = {}
        now = dict(cursors)
        pending = list(sources)
        while pending and not self.full:
            batch, pending = pending[:_AT_ONCE], pending[_AT_ONCE:]
            found = await asyncio.gather(*(self._find(source, now.get(source, 0) + 1) for source in batch))
            again = []
            for source, file in zip(batch, found, strict=True):
                if file is None:
                    continue
                text = await self._take(file)
                if text is None:
                    break
                texts.setdefault(source, []).append(text)
                now[source] = now.get(source, 0) + 1
                again.append(source)
            pending = [*again, *pending]
            self.full = self.full or (bool(pending) and self._late)
        return {source: "".join(pieces) for source, pieces in texts.items()}, now

    async def tails(self, sources: Sequence[str], lines: int) -> tuple[dict[str, str], dict[str, int]]:
        """The last lines of each source, and the cursors after them. Each source gets an equal share of the limit."""
        texts: dict[str, str] = {}
        now: dict[str, int] = {}
        share = max(1, self._limit // max(1, len(sources)))
        for start in range(0, len(sources), _AT_ONCE):
            batch = sources[start : start + _AT_ONCE]
            for source, newest in zip(batch, await asyncio.gather(*map(self._newest, batch)), strict=True):
                if self._late:
                    self.full = True
                    return texts, now
                texts[source], now[source] = await self._tail(source, newest, lines, share), newest
        return texts, now

    async def _tail(self, source: str, newest: int, lines: int, most: int) -> str:
        text = ""
        for number in range(newest, 0, -1):
            file = await self._find(source, number)
            if file is None:
                break
            text = await self._read(file) + text
            if text.count("\n") >= lines or len(text) >= most or self._late:
                break
        return last_lines(text, lines, most)

    async def _newest(self, source: str) -> int:
        """The number of the last file, found in steps that double and then halve: numbers have no gaps."""
        low, high = 0, 1
        while await self._exists(source, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if await self._exists(source, middle) else (low, middle)
        return low

    async def _take(self, file: Found) -> str | None:
        """The text of a file, or None if the limit leaves no room for it. The first file always has room; a huge file is cut."""
        if file.size_bytes > self._left and self._left < self._limit:
            self.full = True
            return None
        self._left -= min(file.size_bytes, self._limit)
        self.full = self._left <= 0
        return await self._read(file)

    async def _read(self, file: Found) -> str:
        self._files += 1
        data = await file.read(LARGEST_ANSWER)
        text = data.decode(errors="replace")
        return text + _CUT.format(size=file.size_bytes) if file.size_bytes > len(data) else text

    @property
    def _late(self) -> bool:
        return self._files >= _MOST_FILES or asyncio.get_running_loop().time() > self._until

    async def _find(self, source: str, number: int) -> Found | None:
        return await self._storage.find(self._path(source, number))

    async def _exists(self, source: str, number: int) -> bool:
        return await self._storage.exists(self._path(source, number))

    def _path(self, source: str, number: int) -> str:
        return Chunk(self._task, self._attempt, source, number).path


def last_lines(text: str, lines: int, most: int) -> str:
    """The last `lines` lines of a text that fit into `most` characters; the end of the last line if it alone is longer."""
    kept = "\n".join(text.removesuffix("\n").rsplit("\n", lines)[-lines:]) + ("\n" if text.endswith("\n") else "")
    if len(kept) <= most:
        return kept
    cut = kept[-most:]
    if kept[-most - 1] == "\n":
        return cut
    _, _, whole = cut.partition("\n")
    return whole or cut
