"""Why is it slow: one sentence from what a report holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.tracking import bottleneck_of

STREAM = {"seconds": {"storage": 1.0, "decoding": 2.0, "tokenising": 6.0, "packing": 1.0}}


def split(stall: float) -> dict[str, float]:
    return {"data": stall * 100, "forward": (1 - stall) * 60, "backward": (1 - stall) * 40, "checkpoint": 500.0, "evaluation": 300.0}


def test_no_wait_is_the_trainers_speed() -> None:
    found = bottleneck_of(split(0.004), STREAM)
    assert (found.cause, found.stall) == ("trainer", pytest.approx(0.004))
    assert found.sentence == "steps waited for rows 0.4% of the time: the trainer sets the speed, and more data workers would not help"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("storage", "reading from storage: 93% of making rows; a nearer or faster store helps most; more data workers read more at once"),
        ("decoding", "decoding rows: 94% of making rows; add data workers, or keep the data as Parquet or uncompressed"),
        ("tokenising", "tokenising: 97% of making rows; add data workers"),
        ("packing", "packing rows and writing shards: 93% of making rows; add data workers, or give shards a faster disk (TUNEYARD_CACHE)"),
    ],
)
def test_the_work_that_took_longest_is_named_with_what_helps(kind: str, words: str) -> None:
    seconds = STREAM["seconds"]
    found = bottleneck_of(split(0.3), {"seconds": seconds | {kind: seconds[kind] + 120.0}})
    assert found.cause == kind
    assert found.sentence == f"steps waited for rows 30.0% of the time, most of all for {words}"


@pytest.mark.parametrize(("fetch_s", "cause"), [(2.0, "tokenising"), (3.0, "network")])
def test_fetching_shards_is_compared_with_making_them_on_all_workers(fetch_s: float, cause: str) -> None:
    """Ten seconds of work on four workers take two and a half."""
    service = {"most_workers": 4, "fetch_s": fetch_s, "fetched_bytes": 300_000_000}
    found = bottleneck_of(split(0.3), STREAM, service)
    assert found.cause == cause
    if cause == "network":
        assert "300 MB of shards from data workers took 3.0 s" in found.sentence


def test_shards_that_were_there_are_no_cause() -> None:
    """Seconds of making come with shards that an earlier run has made."""
    found = bottleneck_of(split(0.3), STREAM | {"waited_s": 0.02})
    assert (found.cause, found.sentence.partition(", ")[2]) == (
        "batches",
        "and not for shards, which were there: making batches of their rows takes it",
    )
    assert bottleneck_of(split(0.3), STREAM | {"waited_s": 20.0}).cause == "tokenising"
    assert bottleneck_of(split(0.3), STREAM | {"waited_s": 0.0}).cause == "tokenising"


@given(
    st.dictionaries(st.sampled_from(["data_s", "forward_s", "backward", "optimizer", "checkpoint", "other"]), st.floats(0, 1e6)),
    st.dictionaries(st.sampled_from([*STREAM["seconds"], "of a later version"]), st.floats(0, 1e6)),
    st.none() | st.fixed_dictionaries({}, optional={"most_workers": st.integers(0, 9), "fetch_s": st.floats(0, 1e6)}),
)
def test_every_report_has_an_answer(split: dict[str, float], seconds: dict[str, float], service: dict[str, Any] | None) -> None:
    found = bottleneck_of(split, {"seconds": seconds}, service)
    assert 0 <= found.stall <= 1
    assert found.sentence.startswith("steps waited for rows ")
