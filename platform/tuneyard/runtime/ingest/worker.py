"""A data worker of an ingestion service: an actor that builds shards."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from tuneyard.api import TuneyardError
from tuneyard.data.stream import Stream, stream_of

TOKENIZERS, TABLES = "transformers:PreTrainedTokenizerFast", "tuneyard.ranking.stream.recipe:TableRecipe"
"""What data workers of texts and of tables need for their first split."""


class DataWorker:
    """Builds shards: an actor without state that matters. It keeps them on its machine too, for the next time."""

    def __init__(self, folder: str, loads: str = TOKENIZERS) -> None:
        """`loads`: what the first split needs, as module:object."""
        self._folder, self._loads = Path(folder), loads
        self._streams: dict[str, Stream[Any]] = {}

    def ready(self) -> int:
        """Its process, once it runs, and has loaded what the first split needs."""
        module, _, name = self._loads.partition(":")
        getattr(import_module(module), name)
        return os.getpid()

    def build(self, key: str, blob: bytes, number: int) -> tuple[str, bytes]:
        """Why there is no shard, or nothing; and the bytes of the shard."""
        try:
            if key not in self._streams:
                self._streams[key] = stream_of(blob)
            stream = self._streams[key]
            return "", stream.recipe.build(stream.splits[number], self._folder).read_bytes()
        except TuneyardError as error:
            return f"{error.cause}; {error.next_step}", b""
