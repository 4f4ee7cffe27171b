"""Shards named by the content of their split, for all recipes that read rows one by one: token rows of texts, and rows of programs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tuneyard.data.file_types import DataFile
from tuneyard.data.shard_files import unfinished_name, writing_shards
from tuneyard.data.shared.place import ShardTier, Wanted, fetched
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.shards import ShardFacts
from tuneyard.data.stream.splits import Split

_ITEM = TypeVar("_ITEM")


class HasFacts(Protocol):
    """An open shard, of any kind."""

    @property
    def facts(self) -> ShardFacts: ...


ShardT = TypeVar("ShardT", bound=HasFacts)


class SplitRecipe(Generic[ShardT]):
    """Builds the shard of a split. A subclass has `files` and `key`, and says how rows are written and opened."""

    files: tuple[DataFile, ...]

    @property
    def prefix(self) -> str:
        """The beginning of the names of shards, on this machine and in a shared tier, for those that are kept apart."""
        return ""

    @property
    def key(self) -> str:
        """A hash of all inputs except the files."""
        raise NotImplementedError

    def open(self, path: Path) -> ShardT:
        """Open a shard. Raises OSError for a missing shard, ValueError for a damaged one."""
        raise NotImplementedError

    def write(self, data: SplitData, path: Path, clock: Clock, content: str) -> None:
        """Write the rows of a split. `content`: the hash that the shard's facts have."""
        raise NotImplementedError

    def trim(self, made: Path) -> None:
        """Remove the oldest shards beside a new one, where their kind has a limit of bytes. Token rows have none."""

    def begin_worker(self) -> None:
        """Prepare a forked process that only builds shards: it uses one thread."""

    @cached_property
    def stream_key(self) -> str:
        """A hash of settings and files: two parts of a mixture often share their settings."""
        files = [f"{file.reader} {file.uri} {file.mark} {file.size_bytes}" for file in self.files]
        return sha256("\n".join([self.key, *files]).encode()).hexdigest()[:32]

    def mark(self, split: Split) -> str:
        """A hash that names the rows of a split without reading it, from metadata of its files."""
        parts = [self.key]
        for piece in split.pieces:
            file = self.files[piece.file]
            parts.append(f"{file.reader} {file.uri} {file.mark} {file.size_bytes} {piece.start} {piece.end}")
        return self.prefix + sha256("\n".join(parts).encode()).hexdigest()[:32]

    def build(self, split: Split, folder: Path, shared: ShardTier | None = None) -> Path:
        """The shard of a split in `folder`: found by its mark, else by its content, there or in `shared`, else built. Raises BadInput,
        StorageError.
        """
        named = folder / f"{self.mark(split)}.shard"
        if named.exists():
            return named
        clock = Clock()
        with clock("storage"):
            data = SplitData(self.files, split)
            content = sha256(f"{self.key} {data.content()}".encode()).hexdigest()[:32]
        by_content = folder / f"{self.prefix}{content}.content.shard"
        wanted = Wanted(f"{self.prefix}{content}", by_content, named.stem)
        while True:
            if self._why_not(by_content, content):
                if not fetched(shared, wanted, lambda path: self._why_not(path, content)):
                    began = time.monotonic()
                    self.write(data, by_content, clock, content)
                    if shared is not None:
                        shared.store(wanted, time.monotonic() - began)
                self.trim(by_content)
            if _link(by_content, named):
                return named

    def _why_not(self, path: Path, content: str) -> str:
        """Why the file at `path` is not the shard of this content, or an empty text."""
        try:
            found = self.open(path).facts.content
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"it is no shard of rows: {error}"
        return "" if found == content else "it has the rows of other data"


class Clock:
    """Seconds by kind of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, kind: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + time.perf_counter() - began

    def each(self, kind: str, items: Iterator[_ITEM]) -> Iterator[_ITEM]:
        """The items; the clock counts the time to get each."""
        while True:
            began = time.perf_counter()
            item = next(items, None)
            self.seconds[kind] = self.seconds.get(kind, 0.0) + time.perf_counter() - began
            if item is None:
                return
            yield item


def _link(there: Path, name: Path) -> bool:
    """Link a shard to another name. False: another process has removed the shard to make room."""
    beside = unfinished_name(name)
    with writing_shards(name.parent):
        try:
            try:
                os.link(there, beside)
            except FileNotFoundError:
                return False
            except OSError:  # a file system without hard links
                try:
                    content = there.read_bytes()
                except FileNotFoundError:
                    return False
                beside.write_bytes(content)
            beside.rename(name)
        finally:
            beside.unlink(missing_ok=True)  # POSIX: a rename onto another link of the same file does nothing
    return True
