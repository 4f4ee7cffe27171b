"""A search by measurement against a machine made of a law, noise and drift: what wins, what is kept, and where it goes on."""

from __future__ import annotations

import contextlib
import json
import math
import random as random_numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api.tuned_settings import LEAST_RUNS_OF_GANG
from tuneyard.tuning import IncumbentFailed, Random, Record, Search, Shares, Space, Trial, effects, shares

PAIRS = 3
SPACE = Space({"micro": (1, 2, 4, 8), "zero": (0, 1)})
OWN = 100.0


def law(point: Mapping[str, Any]) -> float:
    """Tokens/s; the incumbent's 100 are beaten by micro-batches of 4 and 8 alone."""
    return 40.0 * (1 + float(point["micro"])) ** 0.5 * (1 - 0.02 * point["zero"]) if point else OWN


def better(point: Mapping[str, Any]) -> float:
    """All that can be tried beats the incumbent."""
    return law(point) if point else 50.0


@dataclass
class Machine:
    """Gangs that measure by `law`; a run takes ten seconds. `drift`: how fast it is by the run's number. `speeds`: how fast each gang is.
    `takes`: seconds of a run, by its number. `stops`: the run it is told to stop in. `ends`: when the time is over, also in the middle of a
    run."""

    law: Callable[[Mapping[str, Any]], float | None] = law
    drift: Callable[[int], float] = lambda _: 1.0
    speeds: tuple[float, ...] = (1.0,)
    takes: Callable[[int], float] = lambda _: 10.0
    stops: int = 0
    ends: float = math.inf
    clock: float = 0.0
    ran: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    heard: list[Trial] = field(default_factory=list)
    kept: str = "{}"
    _running: dict[int, tuple[float, Trial]] = field(default_factory=dict)
    """The end and the result of each gang's run."""

    @property
    def count(self) -> int:
        return len(self.speeds)

    def start(self, gang: int, point: Mapping[str, Any], number: int, _first_s: float | None) -> None:
        assert gang not in self._running, "a gang has one run at a time"
        self.ran.append((number, dict(point)))
        rate, seconds = self.law(point), self.takes(number)
        trial = Trial(number=number, point=dict(point), failure="OutOfMemory", message="no room", seconds=seconds)
        if rate is not None:
            trial = Trial(number=number, point=dict(point), tokens_per_s=rate * self.drift(number) * self.speeds[gang], seconds=seconds)
        self._running[gang] = self.clock + seconds, trial

    def ended(self) -> tuple[int, Trial | None]:
        gang = min(self._running, key=lambda each: self._running[each][0])
        end, trial = self._running.pop(gang)
        self.clock = max(self.clock, min(self.ends, end))
        if trial.number == self.stops:
            self.ends = self.clock  # all are told
        return gang, None if self.clock == self.ends else trial

    def keep(self, record: Record) -> None:
        self.kept = json.dumps(record.to_dict())

    def search(self, *, trials: int = 6, rounds: int = 2) -> Search:
        """With room for so many candidates beside the rounds and pairs."""
        return self.budgeted(trials + rounds + 2 * PAIRS, rounds=rounds)

    def budgeted(self, trials: int, *, rounds: int = 2, seconds: float | None = None) -> Search:
        self.ends = math.inf if seconds is None else seconds
        return Search(
            trials=trials,
            rounds=rounds,
            pairs=PAIRS,
            seconds=seconds,
            worth=lambda trial: trial.tokens_per_s or 0.0,
            gangs=self,
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
    assert machine.budgeted(30, rounds=8).run(record, random)
    assert shares(30, 8, PAIRS) == Shares(candidates=16, rounds=8, pairs=PAIRS)
    assert (len(record.own), len(record.trials)) == (2, 4)


@given(seconds=st.floats(10.5, 500), trials=st.integers(2, 30), rounds=st.integers(1, 8), gangs=st.integers(1, 4))
@settings(max_examples=100)
def test_budgets_of_runs_and_of_time_hold_pairs_included(seconds: float, trials: int, rounds: int, gangs: int) -> None:
    machine, record = Machine(speeds=(1.0,) * gangs), Record()
    assert machine.budgeted(trials, rounds=rounds, seconds=seconds).run(record, random)
    assert len(machine.ran) <= trials
    assert machine.clock <= seconds
    assert record.own, "the first run is that of the file"
    assert len(record.pairs) <= record.needed <= PAIRS


def test_time_is_left_for_the_pairs_where_half_of_it_is_enough_for_them() -> None:
    """Ten runs of ten seconds: half are candidates, and a winner among them is confirmed in the rest."""
    machine, record = Machine(), Record()
    assert machine.budgeted(100, rounds=1, seconds=141.0).run(record, lambda: random(3))
    assert record.leader() is not None
    assert (len(record.pairs), machine.clock) == (PAIRS, pytest.approx(140.0, abs=10.0))
    assert record.gain(record.needed) == pytest.approx(0.2)


def test_time_that_ends_before_the_first_run_leaves_nothing() -> None:
    machine, record = Machine(), Record()
    assert machine.budgeted(20, seconds=5.0).run(record, random)
    assert (record.own, record.trials, machine.clock) == ([], [], 5.0)
    assert (record.runs, record.out_of_time) == (0, True)


@pytest.mark.parametrize(("seconds", "runs", "out_of_time"), [(None, 20, False), (35.0, 2, True), (500.0, 20, False)])
def test_a_search_says_whether_its_time_was_over(seconds: float | None, runs: int, out_of_time: bool) -> None:
    machine, record = Machine(law=better), Record()
    assert machine.budgeted(20, seconds=seconds).run(record, random)
    assert record.out_of_time is out_of_time
    assert record.runs <= runs
    assert record.runs == len(record.own) + len(record.trials) + 2 * len(record.pairs)


@given(trials=st.integers(2, 200), rounds=st.integers(1, 20), pairs=st.integers(1, 10), gangs=st.integers(1, 9))
def test_shares_of_a_budget_add_up(trials: int, rounds: int, pairs: int, gangs: int) -> None:
    found = shares(trials, rounds, pairs, gangs)
    assert found.candidates + found.own + 2 * found.pairs == trials
    assert found.candidates >= 2 * found.own >= 2 or (found.rounds == 1 and found.candidates >= found.gangs)
    assert 2 * found.pairs <= trials / 2
    assert found.gangs == gangs or trials < LEAST_RUNS_OF_GANG * gangs, "what a JobSpec may ask for, all gangs have work for"


def test_a_small_budget_has_fewer_pairs() -> None:
    assert shares(4, 5, 3) == Shares(candidates=1, rounds=1, pairs=1)
    assert shares(3, 5, 3) == Shares(candidates=2, rounds=1, pairs=0)
    assert shares(30, 5, 3) == Shares(candidates=19, rounds=5, pairs=3)


def test_what_loses_to_the_settings_of_the_file_is_not_confirmed() -> None:
    machine, record = Machine(law=lambda point: 58.0 if point else OWN), Record()
    assert machine.search(trials=8).run(record, random)
    best = record.best()
    assert best is not None
    assert best.ratio == pytest.approx(0.58)
    assert (record.leader(), record.pairs, record.gain(PAIRS)) == (None, [], 0.0)


def test_a_lost_pair_is_enough() -> None:
    rates = iter([OWN, 150.0, OWN, 90.0, OWN, 150.0, OWN, 150.0])
    machine, record = Machine(law=lambda _: next(rates)), Record()
    assert machine.budgeted(20, rounds=1).run(record, lambda: Random(Space({"micro": (1,)}), np.random.default_rng(0)))
    assert (record.ratios(), record.gain(PAIRS)) == ([pytest.approx(0.9)], 0.0)


def fails_in(*numbers: int) -> Callable[[int], bool]:
    return lambda number: number in numbers


@pytest.mark.parametrize(("fails", "confirmed"), [((4,), True), ((7,), True), ((4, 5), False)])
def test_one_failure_of_the_settings_of_the_file_in_the_pairs_is_not_the_end(fails: tuple[int, ...], confirmed: bool) -> None:
    """Runs: the file's, two candidates, then pairs. Who fails twice in a row cannot be compared with any more: nothing is confirmed."""
    failing, machine, record = fails_in(*fails), Machine(), Record()
    machine.law = lambda point: None if not point and failing(len(machine.ran)) else law(point)
    space = Space({"micro": (4, 8), "zero": (0,)})
    assert machine.budgeted(30, rounds=1).run(record, lambda: Random(space, np.random.default_rng(0)))
    assert record.leader() is not None
    assert record.gain(PAIRS) == (pytest.approx(0.2) if confirmed else 0.0)
    assert sum(trial.tokens_per_s is None for trial in machine.heard) == len(fails)


@given(stops=st.integers(1, 13), seed=st.integers(0, 5))
@settings(max_examples=40)
def test_a_search_that_was_stopped_goes_on_and_measures_nothing_twice(stops: int, seed: int) -> None:
    first, record = Machine(law=better, stops=stops), Record()
    assert not first.search().run(record, lambda: random(seed))
    known = json.loads(first.kept)
    again = Record.from_dict(known)
    assert again.numbers == stops, "also the run that was cut short has had its number"

    second = Machine(law=better)
    assert second.search().run(again, lambda: random(seed + 7))
    points = [json.dumps(trial.point, sort_keys=True) for trial in again.trials]
    assert len(points) == len(set(points)) == 6
    assert min(number for number, _ in second.ran) == stops + 1
    assert len(again.pairs) == PAIRS
    assert again.to_dict()["trials"][: len(known["trials"])] == known["trials"]


GANGS = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=5).map(tuple)
"""Speeds of gangs on machines of any kind."""


@given(speeds=GANGS, seed=st.integers(0, 99), trials=st.integers(2, 40), rounds=st.integers(1, 5), lengths=st.randoms())
@settings(max_examples=150)
def test_gangs_divide_the_rounds_and_compare_each_run_with_their_own(
    speeds: tuple[float, ...], seed: int, trials: int, rounds: int, lengths: random_numbers.Random
) -> None:
    """Gangs are up to a hundred times as fast as others, and runs end in any order. The law alone decides all the same."""
    durations = [lengths.uniform(1.0, 100.0) for _ in range(trials + 1)]
    machine, record = Machine(speeds=speeds, takes=lambda number: durations[number]), Record()
    assert machine.budgeted(trials, rounds=rounds).run(record, lambda: random(seed))

    assert sorted(number for number, _ in machine.ran) == list(range(1, len(machine.ran) + 1))
    assert len(machine.ran) <= trials
    tried = [json.dumps(trial.point, sort_keys=True) for trial in record.trials]
    assert len(tried) == len(set(tried)), "no two gangs try the same"
    assert [trial.ratio for trial in record.trials] == [pytest.approx(law(trial.point) / OWN) for trial in record.trials]
    assert {trial.gang for trial in record.trials} <= {own.gang for own in record.own}
    assert sorted(trial.number for trial in machine.heard) == sorted(number for number, _ in machine.ran)
    best = record.best()
    assert all(own.gang == theirs.gang for own, theirs in record.pairs), "a pair is of one gang"
    if best is not None and record.leader() is not None and record.needed:
        assert len(record.pairs) == record.needed
        assert record.gain(record.needed) == pytest.approx(law(best.point) / OWN - 1)
        firsts = [own.number < theirs.number for own, theirs in record.pairs]
        assert abs(2 * sum(firsts) - len(firsts)) <= 1, "who is first changes"


class Killed(Exception):
    pass


@given(kill=st.integers(1, 60), before=GANGS, after=GANGS, seed=st.integers(0, 5))
@settings(max_examples=100)
def test_a_search_that_was_killed_goes_on_with_more_or_fewer_gangs(
    kill: int, before: tuple[float, ...], after: tuple[float, ...], seed: int
) -> None:
    """It is killed before or after any write of trials.json: what it measured then is measured again, under numbers of their own."""
    first, writes = Machine(law=better, speeds=before), iter(range(1, 1000))
    search = replace(first.search(), keep=lambda record: first.keep(record) if next(writes) < kill else dies())

    def dies() -> None:
        raise Killed

    with contextlib.suppress(Killed):
        search.run(Record(), lambda: random(seed))
    known = json.loads(first.kept)
    again = Record.from_dict(known) if known else Record()

    second = Machine(law=better, speeds=after)
    assert second.search().run(again, lambda: random(seed + 7))
    kept = [json.dumps(trial.point, sort_keys=True) for trial in again.trials]
    assert len(kept) == len(set(kept))
    assert again.to_dict()["trials"][: len(known.get("trials", []))] == known.get("trials", [])
    assert not {number for number, _ in second.ran} & set(range(1, known.get("numbers", 0) + 1))
    best = again.best()
    assert best is not None
    assert (len(again.pairs), again.gain(again.needed)) == (again.needed, pytest.approx(law(best.point) / 50 - 1))


def test_settings_that_do_not_run_on_one_gang_leave_its_part_to_the_others() -> None:
    """The file's settings fail on the second gang from the second round on. The first gang measures what is left."""
    machine, record = Machine(speeds=(1.0, 1.0)), Record()
    started = machine.start

    def start(gang: int, point: Mapping[str, Any], number: int, first_s: float | None) -> None:
        machine.law = law if gang == 0 or point or number <= 2 else lambda _: None
        started(gang, point, number, first_s)

    machine.start = start  # type: ignore[method-assign]
    assert machine.budgeted(24, rounds=4).run(record, random)
    second = {own.number for own in record.own if own.tokens_per_s is None}
    assert len(second) == 1
    assert {trial.gang for trial in record.trials if trial.number > min(second)} == {1}
    assert all(trial.ratio is not None for trial in record.trials)


def test_two_gangs_take_half_of_the_time() -> None:
    alone, two = Machine(law=better), Machine(law=better, speeds=(1.0, 1.0))
    for machine in (alone, two):
        assert machine.budgeted(16).run(Record(), random)
    assert len(alone.ran) == len(two.ran) == 16
    assert (alone.clock, two.clock) == (160.0, 90.0)


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
