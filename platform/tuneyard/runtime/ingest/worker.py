"""A data worker of an ingestion service: an actor that builds shards."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from tuneyard.api import TuneyardError
from tuneyard.data.stream import Stream, stream_of

TOKENIZERS, TABLES = "transformers:PreTrainedTokenizerFast", "tuneyard.ranking.stream.recipe:TableRecipe"
"""Objects that data workers of texts and of tables load for their first split, as module:object."""


class DataWorker:
    """Builds shards. The actor may be lost at any time. It also keeps the shards on its machine, for later requests."""

    def __init__(self, folder: str, loads: str = TOKENIZERS) -> None:
        """`loads`: object that the first split needs, as module:object."""
        self._folder, self._loads = Path(folder), loads
        self._streams: dict[str, Stream[Any]] = {}

    def ready(self) -> int:
        """The id of its process, once it has loaded the object that the first split needs."""
        module, _, name = self._loads.partition(":")
        getattr(import_module(module), name)
        return os.getpid()

    def build(self, key: str, blob: bytes, number: int) -> tuple[str, bytes]:
        """The problem, or an empty text, and the bytes of the shard of split `number`."""
        try:
            if key not in self._streams:
                self._streams[key] = stream_of(blob)
            stream = self._streams[key]
            return "", stream.recipe.build(stream.splits[number], self._folder).read_bytes()
        except TuneyardError as error:
            return f"{error.cause}; {error.next_step}", b""
