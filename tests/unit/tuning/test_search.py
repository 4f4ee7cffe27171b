"""A search by measurement against a machine made of a law, noise and drift: what wins, what is kept, and where it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.tuning import IncumbentFailed, Random, Record, Search, Space, Trial, effects

PAIRS = 3
SPACE = Space({"micro": (1, 2, 4, 8), "zero": (0, 1)})
OWN = 100.0


def law(point: Mapping[str, Any]) -> float:
    """Tokens/s; the incumbent's 100 are beaten by micro-batches of 4 and 8 alone."""
    return 40.0 * (1 + float(point["micro"])) ** 0.5 * (1 - 0.02 * point["zero"]) if point else OWN


@dataclass
class Machine:
    """Measures by `law`; a run takes ten seconds. `drift`: how fast it is by the run's number. `stops`: the run it is told to stop in."""

    law: Callable[[Mapping[str, Any]], float | None] = law
    drift: Callable[[int], float] = lambda _: 1.0
    stops: int = 0
    clock: float = 0.0
    ran: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    heard: list[Trial] = field(default_factory=list)
    kept: str = "{}"

    def measure(self, point: Mapping[str, Any], number: int, _first_s: float | None) -> Trial | None:
        self.clock += 10.0
        self.ran.append((number, dict(point)))
        if number == self.stops:
            return None
        rate = self.law(point)
        if rate is None:
            return Trial(number=number, point=dict(point), failure="OutOfMemory", message="no room", seconds=10.0)
        return Trial(number=number, point=dict(point), tokens_per_s=rate * self.drift(number), seconds=10.0)

    def keep(self, record: Record) -> None:
        self.kept = json.dumps(record.to_dict())

    def search(self, *, trials: int = 6, rounds: int = 2, seconds: float | None = None) -> Search:
        return Search(
            trials=trials,
            rounds=rounds,
            pairs=PAIRS,
            seconds=seconds,
            worth=lambda trial: trial.tokens_per_s or 0.0,
            measure=self.measure,
            heard=self.heard.append,
            keep=self.keep,
            now=lambda: self.clock,
        )


def random(seed: int = 0) -> Random:
    return Random(SPACE, np.random.default_rng(seed))


def test_the_fastest_that_was_tried_is_confirmed_in_pairs() -> None:
    machine, record = Machine(), Record()
    assert machine.search(trials=8).run(record, random)
    best = record.best()
    assert best is not None
    assert best.point == {"micro": 8, "zero": 0}
    assert (record.gain(PAIRS), record.ratios()) == (pytest.approx(0.2), [pytest.approx(1.2)] * PAIRS)
    assert [number for number, _ in machine.ran] == list(range(1, len(machine.ran) + 1))
    assert [point for _, point in machine.ran[-6:]] == [{}, best.point, best.point, {}, {}, best.point], "who is first changes"


def test_a_machine_that_drifts_does_not_choose_the_winner() -> None:
    """By raw speed the last round would win: the machine is twice as fast by then."""
    machine, record = Machine(drift=lambda number: 1.0 if number <= 5 else 2.0), Record()
    assert machine.search(trials=8).run(record, random)
    fastest = max(record.trials, key=lambda trial: trial.tokens_per_s or 0)
    best = record.best()
    assert best is not None
    assert best.point == max((trial.point for trial in record.trials), key=law)
    assert best.ratio == pytest.approx(law(best.point) / OWN)
    assert fastest.number > 5


def test_what_was_lucky_once_is_not_confirmed() -> None:
    lucky = {"left": 1}

    def once(point: Mapping[str, Any]) -> float:
        if point and lucky["left"]:
            lucky["left"] = 0
            return 300.0
        return OWN if not point else 90.0

    record = Record()
    assert Machine(law=once).search().run(record, random)
    best = record.best()
    assert best is not None
    assert (best.ratio, record.gain(PAIRS)) == (pytest.approx(3.0), 0.0)


def test_all_pairs_must_be_won() -> None:
    record = Record(pairs=[(Trial(number=1, point={}), Trial(number=2, point={"micro": 8}, ratio=ratio)) for ratio in (1.3, 0.99, 1.2)])
    assert record.gain(PAIRS) == 0.0


def test_what_fails_is_a_result_and_the_search_goes_on() -> None:
    machine, record = Machine(law=lambda point: None if point.get("micro") == 8 else law(point)), Record()
    assert machine.search(trials=8).run(record, random)
    assert {trial.failure for trial in record.trials if trial.point["micro"] == 8} == {"OutOfMemory"}
    best = record.best()
    assert best is not None
    assert best.point == {"micro": 4, "zero": 0}


def test_a_search_in_which_all_fails_ends_without_a_winner() -> None:
    record = Record()
    assert Machine(law=lambda point: None if point else OWN).search(trials=8).run(record, random)
    assert (record.best(), record.gain(PAIRS), record.pairs) == (None, 0.0, [])


def test_nothing_is_compared_with_settings_that_do_not_run() -> None:
    with pytest.raises(IncumbentFailed, match="no room"):
        Machine(law=lambda _: None).search().run(Record(), random)


def test_two_rounds_without_gain_are_enough() -> None:
    machine, record = Machine(law=lambda _: OWN), Record()
    assert machine.search(trials=8, rounds=8).run(record, random)
    assert len(record.trials) == 2


@given(seconds=st.floats(1, 500), trials=st.integers(1, 8), rounds=st.integers(1, 4))
@settings(max_examples=50)
def test_time_that_runs_out_leaves_its_share_to_the_pairs(seconds: float, trials: int, rounds: int) -> None:
    machine, record = Machine(), Record()
    assert machine.search(trials=trials, rounds=rounds, seconds=seconds).run(record, random)
    assert len(record.pairs) == PAIRS * (record.best() is not None)
    share = seconds * (trials + rounds) / (trials + rounds + 2 * PAIRS)
    assert 10.0 * (len(record.trials) + len(record.own)) <= share + 20.0


@given(stops=st.integers(1, 13), seed=st.integers(0, 5))
@settings(max_examples=40)
def test_a_search_that_was_stopped_goes_on_and_measures_nothing_twice(stops: int, seed: int) -> None:
    first, record = Machine(stops=stops), Record()
    assert not first.search().run(record, lambda: random(seed))
    known = json.loads(first.kept)
    again = Record.from_dict(known)
    assert again.numbers == stops, "also the run that was cut short has had its number"

    second = Machine()
    assert second.search().run(again, lambda: random(seed + 7))
    points = [json.dumps(trial.point, sort_keys=True) for trial in again.trials]
    assert len(points) == len(set(points)) == 6
    assert min(number for number, _ in second.ran) == stops + 1
    assert len(again.pairs) == PAIRS
    assert again.to_dict()["trials"][: len(known["trials"])] == known["trials"]


def test_everybody_who_listens_hears_each_measurement_once() -> None:
    machine, record = Machine(), Record()
    machine.search().run(record, random)
    assert [trial.number for trial in machine.heard] == [number for number, _ in machine.ran]
    assert {trial.number for trial in machine.heard if trial.ratio is None} >= {trial.number for trial in record.own}


def test_what_was_measured_on_other_machines_does_not_count() -> None:
    machine, record = Machine(), Record(place="2 x a100-80gb")
    machine.search().run(record, random)
    assert record.at("2 x a100-80gb", lambda _: True) == record
    assert record.at("2 x h100-80gb", lambda _: True) == Record(place="2 x h100-80gb", numbers=record.numbers)


def test_pairs_of_a_winner_that_is_not_legal_any_more_are_dropped() -> None:
    machine, record = Machine(), Record()
    machine.search(trials=8).run(record, random)
    kept = record.at("", lambda point: point["micro"] != 8)
    assert {trial.point["micro"] for trial in kept.trials} == {1, 2, 4}
    assert kept.pairs == []
    assert len(record.pairs) == PAIRS


def test_effects_say_what_a_value_did_over_all_trials_that_had_it() -> None:
    def trial(micro: int, zero: int, ratio: float | None) -> Trial:
        return Trial(number=1, point={"micro": micro, "zero": zero, "same": 1}, ratio=ratio, failure="" if ratio else "OutOfMemory")

    found = effects([trial(2, 0, 1.0), trial(8, 0, 4.0), trial(8, 1, 1.0), trial(16, 1, None)])
    assert [(each.setting, each.value, each.ratio, each.trials, each.failed) for each in found] == [
        ("micro", 16, None, 1, 1),
        ("micro", 2, 1.0, 1, 0),
        ("micro", 8, pytest.approx(2.0), 2, 0),
        ("zero", 0, pytest.approx(2.0), 2, 0),
        ("zero", 1, 1.0, 2, 1),
    ]
