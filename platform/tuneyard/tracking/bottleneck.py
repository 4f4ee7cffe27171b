"""The bottleneck of a run on streamed data, in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Cause = Literal["storage", "decoding", "tokenising", "packing", "network", "batches", "trainer"]

SMALL = 0.01
"""A wait for rows below this share of the time of steps is no cause."""
_OUTSIDE = ("checkpoint", "evaluation")
_NOTHING = 0.1
"""A wait for shards below this share of the time that steps waited is no cause."""
_WORK: Mapping[str, tuple[Cause, str, str]] = {
    "storage": ("storage", "reading from storage", "a nearer or faster store helps most; more data workers read more at once"),
    "decoding": ("decoding", "decoding rows", "add data workers, or keep the data as Parquet or uncompressed"),
    "tokenising": ("tokenising", "tokenising", "add data workers"),
    "packing": (
        "packing",
        "packing rows and writing shards",
        "add data workers, or give shards a faster disk (TUNEYARD_CACHE)",
    ),
}


@dataclass(frozen=True)
class Bottleneck:
    """`stall`: share of the time of steps, 0 to 1, in which rank 0 waited for rows. `cause`: trainer where that is small."""

    cause: Cause
    stall: float
    sentence: str


def stall_of(split: Mapping[str, float]) -> float:
    """Share of the time of steps that was spent waiting for data, 0 to 1. `split`: seconds by phase, as a report has them; checkpoints and
    evaluations are no part of a step."""
    seconds = {name.removesuffix("_s"): value for name, value in split.items()}
    stepping = _stepping_s(split)
    return seconds.get("data", 0.0) / stepping if stepping > 0 else 0.0


def _stepping_s(split: Mapping[str, float]) -> float:
    return sum(value for name, value in split.items() if name.removesuffix("_s") not in _OUTSIDE)


def bottleneck_of(split: Mapping[str, float], stream: Mapping[str, Any], service: Mapping[str, Any] | None = None) -> Bottleneck:
    """The largest cause. `stream` and `service`: `details.stream` and `details.data_service` of a report.

    The data workers of a service share the making of rows. They do not share fetching: each machine fetches one shard at a time. Ranks
    wait for the longer of the two. Without a service nothing is fetched.
    """
    stall = stall_of(split)
    waited = f"steps waited for rows {stall:.1%} of the time"
    work = {kind: seconds for kind, seconds in (stream.get("seconds") or {}).items() if kind in _WORK}
    making, fetching = sum(work.values()), float((service or {}).get("fetch_s") or 0.0)
    if stall >= SMALL and 0 < stream.get("waited_s", 0) < _NOTHING * stall * _stepping_s(split):  # 0: loaders of torch wait unseen
        return Bottleneck("batches", stall, f"{waited}, and not for shards, which were there: making batches of their rows takes it")
    if stall < SMALL or making + fetching <= 0:
        return Bottleneck("trainer", stall, f"{waited}: the trainer sets the speed, and more data workers would not help")
    if fetching > making / max(1, int((service or {}).get("most_workers") or 0)):
        size = float((service or {}).get("fetched_bytes") or 0)
        rate = f"{size / 1e6:,.0f} MB of shards from data workers took {fetching:,.1f} s"
        return Bottleneck("network", stall, f"{waited}, most of all for the network: {rate}; place data workers nearer to the ranks")
    kind = max(work, key=lambda name: work[name])
    cause, words, advice = _WORK[kind]
    return Bottleneck(cause, stall, f"{waited}, most of all for {words}: {work[kind] / making:.0%} of making rows; {advice}")
