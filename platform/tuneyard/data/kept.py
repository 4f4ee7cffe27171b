"""What a look at data has found, kept in the cache under a hash of all that it depends on."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from tuneyard.api import ScoreData, TrainData
from tuneyard.data.cache import cache_root
from tuneyard.data.chat import template_text
from tuneyard.data.preparation import CODE_VERSION
from tuneyard.data.sources import Located, locate

NO_PART = {
    *("max_length", "overlong", "pack", "validation_fraction", "validation", "max_bad_fraction", "show_sample", "shuffle", "mix"),
    *("streaming", "workers", "service", "temperature", "when_exhausted"),
}
"""Fields of training data that change no sample: another maxLength needs no other look."""


def fields_of(data: TrainData | ScoreData) -> dict[str, Any]:
    """The fields that change samples, as JSON."""
    left_out = NO_PART if isinstance(data, TrainData) else set[str]()
    return data.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True, exclude=left_out)


def facts_of(data: TrainData | ScoreData, located: Located | None = None) -> list[Any]:
    """All that the samples of one data set with a resolved `source` depend on; its files by their marks. Raises BadInput."""
    located = located or locate(data.source or "", file_type=data.file_type, split=data.split, sheet=data.sheet)
    files = [(file.reader, file.uri, file.mark, file.size_bytes) for file in located.files]
    template = template_text(data.chat_template) if isinstance(data, TrainData) and data.chat_template else None
    return [CODE_VERSION, fields_of(data), files, template]


def key_of(*known: Any) -> str:
    return sha256(json.dumps(known, default=str).encode()).hexdigest()[:32]


def kept(folder: str, key: str) -> Any:
    """The value that was kept; None where there is none."""
    with suppress(OSError, ValueError):
        return json.loads(_place(folder, key).read_text())
    return None


def keep(folder: str, key: str, value: Any) -> None:
    """Keep a value. A disk that is full or read-only costs the next look alone."""
    with suppress(OSError):
        place = _place(folder, key)
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(value))
        beside.replace(place)


def _place(folder: str, key: str) -> Path:
    return cache_root() / folder / f"{key}.json"
