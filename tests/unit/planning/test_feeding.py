"""Data workers that a plan needs, and how long its ranks wait with fewer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import TrainData
from tuneyard.planning import DataRate, Feed, Machines, feed_of, past_rates, stall_share, usual_rate, workers_needed

RATES = st.floats(1.0, 1e9)
WORKERS = st.integers(0, 256)
HELPERS = st.integers(1, 16)
RATE = DataRate(tokens_per_s=100.0, how="by hand")
TWO_OF_EIGHT = Machines(count=2, ranks_of_each=8)


def feed(tokens_per_s: float, machines: Machines = TWO_OF_EIGHT, **data: Any) -> Feed:
    return feed_of(TrainData.model_validate({"source": "d.jsonl", **data}), tokens_per_s, RATE, machines)


@given(RATES, RATES, WORKERS, HELPERS)
def test_more_workers_never_make_the_ranks_wait_longer(demand: float, rate: float, workers: int, helpers: int) -> None:
    assert 0 <= stall_share(demand, rate, workers + 1, helpers) <= stall_share(demand, rate, workers, helpers) < 1


@given(RATES, st.floats(1.0, 100.0), RATES, WORKERS, HELPERS)
def test_ranks_that_take_more_wait_longer(demand: float, times: float, rate: float, workers: int, helpers: int) -> None:
    assert stall_share(times * demand, rate, workers, helpers) >= stall_share(demand, rate, workers, helpers)


@given(RATES, RATES, HELPERS)
def test_those_that_are_needed_suffice_and_half_of_them_do_not(demand: float, rate: float, helpers: int) -> None:
    needed = workers_needed(demand, rate)
    assert stall_share(demand, rate, needed, helpers) == 0
    if needed > 3:
        assert stall_share(demand, rate, needed // 2, helpers) > 0


@given(RATES, RATES, WORKERS, HELPERS)
def test_what_is_made_is_what_is_taken(demand: float, rate: float, workers: int, helpers: int) -> None:
    """In a second, workers make tokens all the time and helpers while they wait: together as many as the ranks take in the rest."""
    stall = stall_share(demand, rate, workers, helpers)
    taken = (1 - stall) * demand
    if stall > 0:
        assert workers * rate + stall * helpers * rate == pytest.approx(taken, rel=1e-6)
    else:
        too_little_to_count = 1e-6 * (workers + helpers) * rate
        assert workers * rate + too_little_to_count >= taken * (1 - 1e-6)


def test_a_rank_without_workers_makes_all_rows_between_its_steps() -> None:
    assert stall_share(100.0, 100.0, 0, 1) == pytest.approx(0.5)
    assert stall_share(300.0, 100.0, 0, 1) == pytest.approx(0.75)


def test_beside_the_ranks_every_machine_makes_all_rows_and_a_service_makes_them_once() -> None:
    beside, away = feed(1000.0), feed(1000.0, service={"maxWorkers": 4, "cpus": 2, "memoryGb": 3})
    assert (beside.where, beside.needed.workers, beside.needed.cores) == ("beside", 12, 24)
    assert (away.where, away.needed.workers, away.needed.cores, away.needed.memory_gb) == ("away", 12, 24, 36)
    assert away.asked.stall == pytest.approx(0.6), "four workers make 400 of 1,000, and the ranks leave rows to them"


def test_what_to_set_follows_from_where_there_are_cores() -> None:
    assert feed(200.0).advice == "", "auto has 8 workers"
    assert feed(200.0, workers=1).advice == "set data.workers: 3"
    assert feed(200.0, Machines(count=1, ranks_of_each=1, spare_cores=1)).advice == "set data.service: {maxWorkers: 3}"
    assert feed(5000.0).advice == "set data.service: {maxWorkers: 60}"
    assert feed(200.0, service={"maxWorkers": 1}).advice == "set data.service: {maxWorkers: 3}"


def test_workers_without_cores_of_their_own_make_nothing_more() -> None:
    one_core = Machines(count=1, ranks_of_each=1, spare_cores=1)
    assert feed(300.0, one_core, workers=8).asked.stall == feed(300.0, one_core, workers=1).asked.stall > 0


def test_the_wait_of_an_epoch_is_what_its_share_makes_of_the_steps() -> None:
    found = feed(300.0, Machines(count=1, ranks_of_each=1), workers=0)
    assert found.asked.stall == pytest.approx(0.75)
    assert found.wait_s(100.0) == pytest.approx(300.0), "100 s of steps become 400"


def past(tokens: int, seconds: float, format: str = "text") -> dict[str, Any]:
    stream = {"tokens": tokens, "seconds": {"storage": seconds / 4, "tokenising": 3 * seconds / 4}}
    return {"result": {"details": {"stream": stream, "data": {"format": format}}}}


def test_own_runs_say_what_a_worker_makes_of_a_format() -> None:
    found = past_rates([past(10_000_000, 100), past(30_000_000, 100), past(20_000_000, 100), past(5_000_000, 100, "chat")])
    assert (found["text"].tokens_per_s, found["chat"].tokens_per_s) == (200_000, 50_000)
    assert found["text"].how == "by 3 runs of your history"


@pytest.mark.parametrize("attempt", [{}, {"result": None}, {"result": {"details": {}}}, past(10, 1), past(10_000_000, 0)])
def test_a_run_that_made_few_rows_says_nothing(attempt: dict[str, Any]) -> None:
    assert past_rates([attempt]) == {}


def test_a_source_that_was_not_measured_is_taken_for_the_slowest_of_its_format() -> None:
    assert usual_rate("text", "csv.bz2").tokens_per_s == min(
        usual_rate("text", kind).tokens_per_s for kind in ("jsonl", "parquet", "jsonl.gz")
    )
    assert usual_rate("preference", "jsonl") == usual_rate("chat", "jsonl")
