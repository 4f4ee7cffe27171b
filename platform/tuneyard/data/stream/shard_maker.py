"""What makes shards of splits: token rows of texts (`recipe`), flat rows of tables (`tuneyard.ranking`)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from tuneyard.data.file_types import DataFile
from tuneyard.data.stream.splits import Split

ShardT_co = TypeVar("ShardT_co", covariant=True)


class ShardMaker(Protocol[ShardT_co]):
    """Makes equal shards of a split wherever, whenever and by whomever it is asked. A value that can be pickled."""

    @property
    def files(self) -> tuple[DataFile, ...]: ...

    @property
    def key(self) -> str:
        """A hash of all that rows depend on but the files."""

    @property
    def stream_key(self) -> str:
        """A name for settings and files."""

    def mark(self, split: Split) -> str:
        """A name for the shard of a split that can be told without reading it."""

    def build(self, split: Split, folder: Path) -> Path:
        """The shard of a split in `folder`, found or built. Raises BadInput, StorageError."""

    def open(self, path: Path) -> ShardT_co:
        """Raises OSError where there is no shard, ValueError where it is damaged."""

    def begin_worker(self) -> None:
        """In a fork that does nothing but build shards: one thread."""
