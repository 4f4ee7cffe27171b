"""What waits to be recorded: one entry per job, whatever happens to it meanwhile. Pure: times come in as arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuneyard_operators.history.rows import Signature
from tuneyard_operators.kube import Key


@dataclass(frozen=True)
class Told:
    """A job as it was when the writer heard of it. `runs`: attempts of it are under way, so that its progress is sampled."""

    signature: Signature
    runs: bool


class Pending:
    """Jobs that are not on record as they are now. Memory is bounded by the number of JobSpecs."""

    def __init__(self, paced_s: float) -> None:
        self._paced_s = paced_s
        self._recorded: dict[Key, Signature] = {}
        self._urgent: dict[Key, float] = {}
        """Jobs with a change that is recorded at once, oldest first, and since when."""
        self._sampled: dict[Key, float] = {}
        """Running jobs whose progress has changed, and when it is due to be sampled."""
        self._written_s: dict[Key, float] = {}

    def hear(self, key: Key, told: Told | None, now_s: float) -> bool:
        """Take in a change of a job; None: it is gone. True if the job must be recorded at once."""
        if told is None:
            for each in (self._recorded, self._urgent, self._sampled, self._written_s):
                each.pop(key, None)
            return False
        if self._recorded.get(key) != told.signature:
            self._urgent.setdefault(key, now_s)
            return True
        if told.runs:
            self._sampled.setdefault(key, max(now_s, self._written_s.get(key, 0.0) + self._paced_s))
        return False

    def due(self, now_s: float, most: int) -> list[Key]:
        """The next jobs to record: changes before samples."""
        found = [key for key, _ in zip(self._urgent, range(most), strict=False)]
        if len(found) < most:
            waiting = sorted((at, key) for key, at in self._sampled.items() if at <= now_s and key not in self._urgent)
            found += [key for _, key in waiting[: most - len(found)]]
        return found

    def wrote(self, signatures: Mapping[Key, Signature], now_s: float, current: Mapping[Key, Signature]) -> Iterator[Key]:
        """Record that jobs were written with these signatures. Yields the jobs whose `current` signature is still the same."""
        for key, signature in signatures.items():
            if key not in current:
                continue  # gone meanwhile
            self._recorded[key], self._written_s[key] = signature, now_s
            self._sampled.pop(key, None)
            if current[key] == signature:
                self._urgent.pop(key, None)
                yield key

    def doubt(self, now_s: float) -> None:
        """Look at every job again: the database was away, and may have come back from a backup."""
        for key in self._recorded:
            self._urgent.setdefault(key, now_s)
        self._recorded.clear()

    def is_recorded(self, key: Key, signature: Signature) -> bool:
        return self._recorded.get(key) == signature

    def lag_s(self, now_s: float) -> float:
        """Age of the oldest change that is not on record."""
        return max(0.0, now_s - next(iter(self._urgent.values()))) if self._urgent else 0.0

    def __len__(self) -> int:
        return len(self._urgent)
