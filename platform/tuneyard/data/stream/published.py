"""A stream published by a rank in a folder of its machine, so that a service there can have its shards built elsewhere.

Two files: the pickled stream, and a memory page that the rank and the service share. The page holds the window that the rank reads and the
seconds it has waited for shards. The service puts shards into the stream's folder, where the rank looks for them anyway.
"""

from __future__ import annotations

import mmap
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.data.stream.rows import Stream
from tuneyard.data.stream.windows import Place

_PAGE = struct.Struct("<QQd")
"""Epoch, window, seconds waited."""
_STREAM, _READS = ".stream", ".reads"


class Reads:
    """The shared page of one stream."""

    def __init__(self, path: Path) -> None:
        with path.open("rb+") as file:
            self._page = mmap.mmap(file.fileno(), _PAGE.size)

    def tell(self, place: Place, waited_s: float) -> None:
        _PAGE.pack_into(self._page, 0, place.epoch, place.window, waited_s)

    def look(self) -> tuple[Place, float]:
        """The window that the rank reads, and the seconds it has waited so far."""
        epoch, window, waited_s = _PAGE.unpack_from(self._page, 0)
        return Place(epoch, window), waited_s


@dataclass(frozen=True)
class Published:
    """A published stream. `blob`: the pickled stream, which `stream_of` reads on any machine."""

    key: str
    blob: bytes
    stream: Stream[Any]
    reads: Reads
    number: int
    """Inode of the file of the stream."""


def publish(folder: Path, stream: Stream[Any]) -> Reads:
    """Write a stream to `folder` for the service of this machine, and return its shared page."""
    folder.mkdir(parents=True, exist_ok=True)
    key = stream.recipe.stream_key
    page = folder / f"{key}{_READS}"
    if not page.exists():  # a restarted rank keeps the page: truncating it would kill the service, which has it mapped
        new = folder / f".{key}{_READS}"
        new.write_bytes(_PAGE.pack(0, 0, 0.0))
        new.rename(page)
    beside = folder / f".{key}{_STREAM}"
    beside.write_bytes(pickle.dumps(stream))
    beside.rename(folder / f"{key}{_STREAM}")
    reads = Reads(page)
    reads.tell(Place(0, 0), 0.0)
    return reads


def published(folder: Path, known: dict[str, Published]) -> dict[str, Published]:
    """All streams in a folder, by key. A `known` stream is read again only if it was published again."""
    found = {}
    for path in sorted(folder.glob(f"*{_STREAM}")):
        if path.name.startswith("."):
            continue
        number, before = path.stat().st_ino, known.get(path.stem)
        if before is not None and before.number == number:
            found[path.stem] = before
        else:
            blob = path.read_bytes()
            found[path.stem] = Published(path.stem, blob, stream_of(blob), Reads(path.with_suffix(_READS)), number)
    return found


def stream_of(blob: bytes) -> Stream[Any]:
    """Unpickle the stream of another process of this job."""
    stream = pickle.loads(blob)
    assert isinstance(stream, Stream)
    return stream
