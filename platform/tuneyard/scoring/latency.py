"""A mergeable histogram of latencies, with percentiles to 1 %.

Each bucket is 2 % wider than the one before (DDSketch, Masson et al. 2019, with relative accuracy 0.01), so a run of any length needs some
hundred counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_ACCURACY = 0.01
_LOG_GROWTH = math.log((1 + _ACCURACY) / (1 - _ACCURACY))
_SHORTEST_S = 1e-6


@dataclass
class Latencies:
    """Counts by bucket; bucket i holds (growth^(i-1), growth^i] seconds."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        bucket = math.ceil(math.log(max(seconds, _SHORTEST_S)) / _LOG_GROWTH)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def add_all(self, other: Latencies) -> None:
        """Add the counts of another histogram."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def percentile(self, share: float) -> float:
        """The latency in seconds within which `share` (0..1) of all rows were done, to 1 %; 0.0 without rows."""
        rank = share * (sum(self.counts.values()) - 1)
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen > rank:
                return 2 * math.exp(bucket * _LOG_GROWTH) / (1 + math.exp(_LOG_GROWTH))
        return 0.0

    def to_dict(self) -> dict[str, int]:
        return {str(bucket): count for bucket, count in self.counts.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, int]) -> Latencies:
        return cls({int(bucket): count for bucket, count in values.items()})
