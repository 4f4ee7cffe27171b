"""A shard as an object of the tier: a line of JSON that says whose content follows, and its hash.

The line holds the shard's name, so that an object that was copied to another name is known as well as one that was cut short.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256

import xxhash

from tuneyard import __version__

_FORMAT = "tuneyard-shared-shard-1"
_LONGEST_LINE = 1024
_FOLDERS = 2


class Unusable(ValueError):
    """An object that is not the shard that its name promises."""


@dataclass(frozen=True)
class Stored:
    """A shard from the tier. `build_s`: what it took to build; `stored_at`: seconds since 1970."""

    content: memoryview
    build_s: float
    stored_at: float


def object_path(team: str, name: str) -> str:
    """The path of a shard in the tier. Another version of Tuneyard, which may make other rows, has other paths."""
    known = sha256(f"{_FORMAT} {__version__} {name}".encode()).hexdigest()[:40]
    return f"{team}/{known[:_FOLDERS]}/{known}.shard"


def wrapped(path: str, content: bytes, *, build_s: float, now: float) -> bytes:
    """The object at `path` with the bytes of a shard."""
    about = {"format": _FORMAT, "path": path, "bytes": len(content), "xxh3": _hash(content), "build_s": build_s, "stored_at": now}
    return json.dumps(about).encode() + b"\n" + content


def unwrapped(path: str, data: bytes) -> Stored:
    """The shard in the object at `path`. Raises Unusable."""
    end = data.find(b"\n", 0, _LONGEST_LINE)
    try:
        about = json.loads(data[: max(end, 0)])
        known = about["format"] == _FORMAT
        whose, size, digest, build_s, stored_at = (about[name] for name in ("path", "bytes", "xxh3", "build_s", "stored_at"))
        build_s, stored_at = float(build_s), float(stored_at)
    except (ValueError, KeyError, TypeError) as error:
        raise Unusable("it is not a shared shard") from error
    content = memoryview(data)[end + 1 :]
    if not known:
        raise Unusable("it is not a shared shard")
    if whose != path:
        raise Unusable(f"it was stored as {whose}")
    if len(content) != size:
        raise Unusable(f"it has {len(content):,} bytes instead of {size:,}")
    if _hash(content) != digest:
        raise Unusable("its content is damaged")
    return Stored(content, max(0.0, build_s), stored_at)


def _hash(content: bytes | memoryview) -> str:
    return xxhash.xxh3_128(content).hexdigest()
