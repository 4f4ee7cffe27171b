"""A data worker of an ingestion service: an actor that builds shards."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tuneyard.api import TuneyardError
from tuneyard.data.shared.place import Counts, SharedShards
from tuneyard.data.shared.tier import Tier
from tuneyard.data.stream import Stream, stream_of

TOKENIZERS, TABLES = "transformers:PreTrainedTokenizerFast", "tuneyard.ranking.stream.recipe:TableRecipe"
ROWS = "tuneyard.data.stream.row_recipe:RowRecipe"
"""Objects that data workers of texts, tables and rows of programs load for their first split, as module:object."""


class Built(NamedTuple):
    """A worker's answer beside the bytes of a shard. `problem`: why there is no shard, or empty; `shared`: of shared shards, since the
    answer before.
    """

    problem: str
    shared: Counts


class DataWorker:
    """Builds shards. The actor may be lost at any time. It also keeps the shards on its machine, for later requests."""

    def __init__(self, folder: str, loads: str = TOKENIZERS) -> None:
        """`loads`: object that the first split needs, as module:object."""
        self._folder, self._loads = Path(folder), loads
        self._streams: dict[str, Stream[Any]] = {}
        self._tiers: dict[SharedShards, Tier] = {}

    def ready(self) -> int:
        """The id of its process, once it has loaded the object that the first split needs."""
        module, _, name = self._loads.partition(":")
        getattr(import_module(module), name)
        return os.getpid()

    def build(self, key: str, blob: bytes, number: int) -> tuple[Built, bytes]:
        """The shard of split `number`, and its bytes."""
        try:
            if key not in self._streams:
                self._streams[key] = stream_of(blob)
            stream = self._streams[key]
            shard = stream.recipe.build(stream.splits[number], self._folder, self._tier(stream)).read_bytes()
            return Built("", self._counts()), shard
        except TuneyardError as error:
            return Built(f"{error.cause}; {error.next_step}", self._counts()), b""

    def finish(self) -> Counts:
        """Wait for shards that are being stored for other jobs, for a bounded time; the counts since the last answer."""
        for tier in self._tiers.values():
            tier.finish()
        return self._counts()

    def _tier(self, stream: Stream[Any]) -> Tier | None:
        """The shared shards, in this process: the courier of the stream is on the machine of the ranks."""
        if stream.shared is None:
            return None
        if stream.shared.place not in self._tiers:
            self._tiers[stream.shared.place] = Tier(stream.shared.place)
        return self._tiers[stream.shared.place]

    def _counts(self) -> Counts:
        sums = Counts()
        for tier in self._tiers.values():
            sums.add(tier.take_counts())
        return sums
