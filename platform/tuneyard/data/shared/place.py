"""The place of shared shards, and what those who build shards ask of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from tuneyard.api import BadInput
from tuneyard.api.quantities import parse_size_bytes
from tuneyard.api.shared_shards import place_error

PLACE, SIZE = "TUNEYARD_SHARED_SHARDS", "TUNEYARD_SHARED_SHARDS_SIZE"
"""Environment variables: a folder or a bucket, and the most bytes that a team keeps there."""


@dataclass(frozen=True)
class SharedShards:
    """Where the shards of a team are. `most_bytes`: above it, the shards that were not used for the longest time are removed; None: no
    shard is.
    """

    uri: str
    team: str
    most_bytes: int | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], team: str) -> Self | None:
        """The place that the environment names; None if it names none. Raises BadInput for a place or a size that is not one."""
        uri, size = environment.get(PLACE, ""), environment.get(SIZE, "")
        if not uri:
            return None
        if (wrong := place_error(uri)) is not None:
            raise BadInput(f"{PLACE}: {wrong}", "name an absolute path or a bucket, or unset the variable")
        try:
            return cls(uri, team, parse_size_bytes(size) if size else None)
        except ValueError as error:
            raise BadInput(f"{SIZE}: {error}", "correct it, or unset the variable to remove no shard") from error


class Wanted(NamedTuple):
    """A shard to fetch or to store. `name`: a hash of all that its rows depend on, the content of its split among them. `path`: its file on
    this machine. `mark`: its name on this machine, for counts.
    """

    name: str
    path: Path
    mark: str


class ShardTier(Protocol):
    """Shared shards, for one process that builds shards. No method raises for a tier that cannot be used."""

    def fetch(self, wanted: Wanted) -> bool:
        """Put a shard to its path, complete or not at all. False: it must be built."""

    def refuse(self, wanted: Wanted, why: str) -> None:
        """Report a fetched file that is no shard: the tier replaces it by the one that is stored next."""

    def store(self, wanted: Wanted, build_s: float) -> None:
        """Offer a shard that took `build_s` seconds to build. Returns at once."""


def fetched(tier: ShardTier | None, wanted: Wanted, why_not: Callable[[Path], str]) -> bool:
    """Whether the tier has put a shard to its path. `why_not`: what is wrong with the file there, or an empty text."""
    if tier is None or not tier.fetch(wanted):
        return False
    why = why_not(wanted.path)
    if why:
        wanted.path.unlink(missing_ok=True)
        tier.refuse(wanted, why)
    return not why


@dataclass
class Counts:
    """What became of the shards of a job on one machine. Seconds are sums over processes."""

    found: int = 0
    """Read by rank 0, and already on its machine."""
    fetched: int = 0
    fetched_bytes: int = 0
    fetch_s: float = 0.0
    saved_s: float = 0.0
    """Seconds that the fetched shards took to build elsewhere, less those of fetching."""
    built: int = 0
    build_s: float = 0.0
    stored: int = 0
    stored_bytes: int = 0
    stored_by_others: int = 0
    """Built here, and stored by another process or job in the meantime."""
    not_stored: int = 0
    """The tier is full or away, or other shards wait to be stored."""
    missing: int = 0
    """Asked for, and not in the tier."""
    slow: int = 0
    failed: int = 0
    refused: int = 0
    """Damaged objects, and objects of others."""
    passed_over: int = 0
    """Not asked for, because the tier had cost too much in vain."""
    lost_s: float = 0.0
    """Seconds of asking in vain."""
    evicted: int = 0
    evicted_bytes: int = 0
    problem: str = ""
    """The first thing that went wrong."""

    def add(self, other: Counts) -> None:
        """Add the counts of another process."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, (mine or theirs) if each.name == "problem" else mine + theirs)

    def about(self, place: SharedShards) -> dict[str, Any]:
        """The figures of a report."""
        return {"place": place.uri, "team": place.team, **asdict(self), "sentence": self.sentence}

    @property
    def sentence(self) -> str:
        """What kept the tier from being used; empty if nothing did."""
        if not self.problem:
            return ""
        parts = {"refused": self.refused, "slow": self.slow, "failed": self.failed, "not stored": self.not_stored}
        told = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
        return f"shared shards were not all of use, and were built as without them ({told}): {self.problem}"


def with_counts(figures: Mapping[str, Any], other: Counts) -> dict[str, Any]:
    """The figures of a report with the counts of data workers on other machines. Their shards were found by no rank on its own machine."""
    known = Counts(**{each.name: figures[each.name] for each in fields(Counts)})
    known.found = max(0, known.found - other.fetched - other.built)
    known.add(other)
    return {**figures, **asdict(known), "sentence": known.sentence}
