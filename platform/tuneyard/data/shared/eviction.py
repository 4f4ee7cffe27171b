"""Removes shards of a team that were not used for the longest time, until the rest fit.

A shard's last use is the time of its object, or of the note beside it, if that is later. One process evicts in each period: the one that
creates the claim of the period. Each removal stands alone, so a process that dies between two of them leaves nothing to repair; the
notes of removed shards and old claims are removed by the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tuneyard.storage import AlreadyExists, FileInfo, Store

EVERY_S = 600.0
_KEPT_SHARE = 0.9
"""Share of the limit that is left after an eviction, so that not each one removes some."""
_CLAIMS = "evictions"
_SHARD, _NOTE = ".shard", ".used"


class Evicted(NamedTuple):
    """Removed shards, and their bytes."""

    shards: int
    size_bytes: int


def note_path(shard: str) -> str:
    """The path of the note about the last use of the shard at a path."""
    return shard.removesuffix(_SHARD) + _NOTE


def evict(store: Store, team: str, most_bytes: int, *, now: float) -> Evicted:
    """Remove shards of `team` until the rest have at most `most_bytes`. Nothing, if another process does so in this period.

    `now`: seconds since 1970. Raises StorageError.
    """
    period = int(now // EVERY_S)
    try:
        store.create(f"{team}/{_CLAIMS}/{period}", b"")
    except AlreadyExists:
        return Evicted(0, 0)
    files = {file.path: file for file in store.list(team)}
    shards = {path: file for path, file in files.items() if path.endswith(_SHARD)}
    last_use = {path: max(file.modified_s, _modified_s(files, note_path(path))) for path, file in shards.items()}
    total, removed, removed_bytes = sum(file.size_bytes for file in shards.values()), set[str](), 0
    if total > most_bytes:
        for path in sorted(shards, key=lambda each: (last_use[each], each)):
            if total - removed_bytes <= _KEPT_SHARE * most_bytes:
                break
            store.delete(path)
            removed.add(path)
            removed_bytes += shards[path].size_bytes
    notes_of = {note_path(path) for path in shards.keys() - removed}
    for path in files:
        if (path.endswith(_NOTE) and path not in notes_of) or _is_old_claim(team, path, period):
            store.delete(path)
    return Evicted(len(removed), removed_bytes)


def _modified_s(files: Mapping[str, FileInfo], path: str) -> float:
    return files[path].modified_s if path in files else 0.0


def _is_old_claim(team: str, path: str, period: int) -> bool:
    name = path.removeprefix(f"{team}/{_CLAIMS}/")
    return name != path and name.isdigit() and int(name) < period
