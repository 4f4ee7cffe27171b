"""The interface that builds shards from splits: token rows of texts (`recipe`), flat rows of tables (`tuneyard.ranking`)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from tuneyard.data.file_types import DataFile
from tuneyard.data.shared.place import ShardTier
from tuneyard.data.stream.splits import Split

ShardT_co = TypeVar("ShardT_co", covariant=True)


class ShardMaker(Protocol[ShardT_co]):
    """Builds the same shard of a split on every machine and in every process. It can be pickled."""

    @property
    def files(self) -> tuple[DataFile, ...]: ...

    @property
    def key(self) -> str:
        """A hash of all inputs of rows except the files."""

    @property
    def stream_key(self) -> str:
        """A hash of settings and files."""

    def mark(self, split: Split) -> str:
        """A hash that names the shard of a split without reading the split."""

    def build(self, split: Split, folder: Path, shared: ShardTier | None = None) -> Path:
        """The shard of a split in `folder`: found there, fetched from `shared`, or built, and then stored there too. Raises BadInput,
        StorageError.
        """

    def open(self, path: Path) -> ShardT_co:
        """Open a shard. Raises OSError for a missing shard, ValueError for a damaged one."""

    def trim(self, made: Path) -> None:
        """Remove the oldest shards beside a new one, where their kind has a limit of bytes."""

    def begin_worker(self) -> None:
        """Prepare a forked process that only builds shards: it uses one thread."""
