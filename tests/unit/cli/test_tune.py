"""The answer of `tuneyard tune` in a sentence, and what it shows of a search that broke off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tuneyard.api.tasks import Budget
from tuneyard.cli.trial_lines import trial_line
from tuneyard.cli.tune import _show, _show_heard, verdict
from tuneyard.tracking import Tried

BUDGET = Budget(trials=12, minutes=5)


def trial(number: int, micro: int, ratio: float | None) -> dict[str, Any]:
    failure = "" if ratio is not None else "OutOfMemory"
    speed = 77_750.0 * ratio if ratio is not None else None
    return {"number": number, "point": {"batch.micro": micro}, "tokens_per_s": speed, "ratio": ratio, "failure": failure, "seconds": 12.3}


def found(*ratios: float | None, pairs: tuple[float | None, ...] = (), gain: float = 0.0, **changes: Any) -> dict[str, Any]:
    trials = [trial(2 + i, 2**i, ratio) for i, ratio in enumerate(ratios)]
    best = max((each for each in trials if each["ratio"]), key=lambda each: each["ratio"], default=None)
    own = {"number": 1, "point": {}, "tokens_per_s": 77_750.0, "ratio": None, "failure": "", "seconds": 38.0}
    return {
        "status": "succeeded",
        "objective": "tokens_per_s",
        "own": [own],
        "trials": trials,
        "pairs": [({}, {}) for _ in pairs],
        "ratios": [ratio for ratio in pairs if ratio is not None],
        "gain": gain,
        "best": best["point"] if best and gain > 0 else {},
        "tried_best": best["point"] if best else {},
        "leads": best is not None and best["ratio"] > 1,
        "effects": [],
        **changes,
    }


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (found(0.58, 0.41), "yours are the best of 3: of 2 others, the best (batch.micro 1) reached 0.58 times their speed"),
        (found(0.58, status="stopped"), "so far, yours are the best of 2"),
        (
            found(1.2, pairs=(1.1, 1.2, 1.3), gain=0.2),
            "batch.micro 1: +20.0% faster than the settings of the file (pairs: 1.100, 1.200, 1.300)",
        ),
        (
            found(1.2, pairs=(1.1, 0.9)),
            "the file stay: batch.micro 1 came first, but is not faster in all pairs (1.100, 0.900)",
        ),
        (found(1.2, pairs=(1.2,), gain=0.2), "(pairs: 1.200; the budget had room for 1 of 3)"),
        (found(1.2, pairs=(None,)), "batch.micro 1 came first, but failed when it ran again"),
        (found(1.2, status="stopped"), "batch.micro 1 is the best so far (1.20x); it is not confirmed in pairs yet"),
        (found(1.2), "is not confirmed (pairs: none), and the budget (12 trials, 5 minutes) left no room for pairs"),
        (found(None, None), "no trial ran to its end (2 tried): the settings of the file stay"),
        (found(), "nothing but the settings of the file has run"),
    ],
)
def test_the_answer_of_a_search(result: dict[str, Any], words: str) -> None:
    assert words in verdict(result, BUDGET)


def test_the_table_shows_figures_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    _show(found(1.2, None, 0.5), BUDGET)
    shown = capsys.readouterr().out
    assert "77,800" in shown
    assert "OutOfMemory" in shown
    assert "e+0" not in shown
    assert max(map(len, shown.splitlines()[:-1])) <= 100


def test_the_gang_of_a_trial_is_named_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    of_gang = Tried(task="search", number=3, of=12, settings={"batch.micro": 4}, measured=9_000.0, ratio=1.5, gang=2, seconds=3.0)
    assert trial_line(of_gang) == "trial 3/12  gang 2  batch.micro 4  9,000 tokens/s  1.50x  3 s"
    assert "gang" not in trial_line(replace(of_gang, gang=0))
    _show_heard([of_gang])
    one = found(1.2)
    _show(one, BUDGET)
    assert capsys.readouterr().out.count("gang") == 1
    _show({**one, "gangs": 2, "trials": [{**each, "gang": 2} for each in one["trials"]], "own": [{**one["own"][0], "gang": 1}]}, BUDGET)
    assert capsys.readouterr().out.startswith("settings       gang")


def test_a_search_whose_time_was_over_says_after_how_many_runs(capsys: pytest.CaptureFixture[str]) -> None:
    _show(found(0.9, runs=2, out_of_time=True), BUDGET)
    assert capsys.readouterr().out.splitlines()[-1].startswith("time was over after 2 of 12 runs")
    _show(found(0.9, runs=12, out_of_time=False), BUDGET)
    assert "time was over" not in capsys.readouterr().out


def test_a_search_that_broke_off_shows_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    _show_heard([])
    assert capsys.readouterr().out == ""
    own = Tried(task="search", number=1, of=12, measured=100.0, seconds=9.0)
    _show_heard([own, Tried(task="search", number=2, of=12, settings={"batch.micro": 4}, failure="OutOfMemory", seconds=3.0)])
    shown = capsys.readouterr().out
    assert "measured before the search ended" in shown
    assert "of the file" in shown
    assert "batch.micro 4" in shown
