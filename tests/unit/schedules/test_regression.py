"""Verdicts: limits, the last good run, and differences that are noise."""

from __future__ import annotations

import math
import random

import pytest
from tests.builders.schedules import Nights, at_hour, figure, nightly

from tuneyard.api import Phase
from tuneyard.api.schedule_parts import Limit
from tuneyard.api.schedule_status import RunFigure, ScheduledRun
from tuneyard.metrics import FIGURES
from tuneyard.metrics.aggregates import share_interval
from tuneyard.schedules import figures_of
from tuneyard.schedules.regression import judge


def directed(name: str, limit: dict[str, object]) -> dict[str, Limit]:
    return {name: Limit.model_validate(limit).directed(FIGURES.get(name))}


def watching(**limits: dict[str, object]) -> Nights:
    return Nights(nightly(regression=limits))


def sampled(truth: float, rows: int, seed: int) -> RunFigure:
    """exact_match of a run over `rows` rows that are right with probability `truth`."""
    draw = random.Random(seed)
    right = sum(draw.random() < truth for _ in range(rows))
    interval = share_interval({"rows": rows, "total": right})
    assert interval is not None
    return figure(right / rows).model_copy(update={"low": interval[0], "high": interval[1]})


def test_twenty_equal_runs_raise_no_alarm() -> None:
    nights = watching(exact_match={"worseBy": "0%"})
    assert [nights.night(day, sampled(0.7, 400, day)) for day in range(20)] == ["good"] * 20
    assert nights.news == []


def test_noise_alone_raises_an_alarm_about_as_rarely_as_promised() -> None:
    limits = directed("exact_match", {"worseBy": "0%"})
    runs = [sampled(0.7, 100, seed) for seed in range(1500)]
    baselines = [ScheduledRun(name="a", due="2026-11-23T02:00:00Z", figures=[run]) for run in runs]
    alarms = sum(judge(limits, [runs[index + 1]], baselines[index]).verdict == "regressed" for index in range(len(runs) - 1))
    assert alarms <= 3, "0.7 of 1,499 are expected"


def test_a_planted_drop_is_found_the_night_it_appears() -> None:
    nights = watching(exact_match={"worseBy": "1%"})
    verdicts = [nights.night(day, sampled(0.7 if day < 12 else 0.55, 1000, day)) for day in range(14)]
    assert verdicts == ["good"] * 12 + ["regressed"] * 2
    assert nights.news == ["Regressed", "Regressed"]
    assert nights.condition("Regressed") == "True"


def test_a_run_is_compared_with_the_last_good_one() -> None:
    nights = watching(perplexity={"worseBy": "2%"})
    values = [10.0, 10.1, 12.0, 11.9, 10.2]
    assert [nights.night(day, figure(value, name="perplexity")) for day, value in enumerate(values)] == [
        "good",
        "good",
        "regressed",
        "regressed",
        "good",
    ]
    runs = nights.status.runs
    assert [run.compared_with for run in runs[1:]] == [runs[0].name, runs[1].name, runs[1].name, runs[1].name]
    assert "17.8% worse than 10.1" in runs[3].message
    assert nights.news == ["Regressed", "Regressed", "Recovered"]


@pytest.mark.parametrize(
    ("limit", "name", "value", "verdict"),
    [
        ({"below": 0.7}, "exact_match", 0.69, "regressed"),
        ({"below": 0.7}, "exact_match", 0.7, "good"),
        ({"above": 20.0}, "perplexity", 20.5, "regressed"),
        ({"worseByAbsolute": 0.05}, "exact_match", 0.74, "regressed"),
        ({"worseByAbsolute": 0.05}, "exact_match", 0.76, "good"),
        ({"worseBy": "2%"}, "exact_match", 0.9, "good"),
        ({"worseBy": "2%"}, "perplexity", 0.9, "regressed"),
        ({"worseBy": "2%", "better": "lower"}, "mine", 0.9, "regressed"),
        ({"worseBy": "2%", "better": "higher"}, "mine", 0.9, "good"),
    ],
)
def test_limits(limit: dict[str, object], name: str, value: float, verdict: str) -> None:
    nights = watching()
    nights.night(0, figure(0.8, name=name))
    found = judge(directed(name, limit), [figure(value, name=name)], nights.status.runs[0])
    assert found.verdict == verdict


def test_from_zero_any_loss_is_a_regression() -> None:
    nights = watching()
    nights.night(0, figure(0.0, name="perplexity"))
    limit = directed("perplexity", {"worseBy": "2%"})
    assert judge(limit, [figure(0.1, name="perplexity")], nights.status.runs[0]).verdict == "regressed"


def test_a_missing_figure_is_unmeasured_and_nobodys_baseline() -> None:
    nights = watching(rouge_l={"worseBy": "2%"})
    assert nights.night(0, figure(0.5)) == "unmeasured"
    assert (nights.condition("Regressed"), nights.news) == ("Unknown", [])
    assert nights.night(1, figure(0.5, name="rouge_l")) == "good"
    assert nights.status.runs[1].compared_with == ""


def test_failed_and_cancelled_runs_change_no_condition() -> None:
    nights = watching(exact_match={"worseBy": "2%"})
    nights.night(0, figure(0.8))
    assert nights.night(1, phase=Phase.FAILED) == "failed"
    assert nights.night(2, phase=Phase.CANCELLED) == "cancelled"
    assert (nights.condition("Regressed"), nights.news) == ("False", ["RunFailed"])
    assert nights.night(3, figure(0.5)) == "regressed"
    assert nights.status.runs[3].compared_with == nights.status.runs[0].name


def test_a_run_of_a_past_date_is_compared_with_the_date_before_it() -> None:
    nights = watching(exact_match={"worseByAbsolute": 0.1})
    nights.night(0, figure(0.5))
    nights.night(2, figure(0.9))
    nights.goal = nightly(regression={"exact_match": {"worseByAbsolute": 0.1}}, backfill={"from": "2026-11-24", "to": "2026-11-24"})
    (start,) = nights.look(at_hour(24 * 2 + 4)).start
    nights.end(start.name, Phase.SUCCEEDED, figure(0.55))
    nights.look(at_hour(24 * 2 + 5))
    run = nights.status.runs[-1]
    assert (run.verdict, run.compared_with) == ("good", nights.status.runs[0].name)
    assert nights.condition("Regressed") == "False"


def test_figures_without_a_number_are_left_out() -> None:
    numbers = {
        "exact_match": 0.5,
        "exact_match.low": 0.4,
        "exact_match.high": math.nan,
        "rows": 5,
        "mine": 3,
        "rouge_l": None,
        "bleu": True,
    }
    (second, first) = figures_of({"judge": numbers}, ["mine"])
    assert (first.name, first.low, first.high) == ("exact_match", 0.4, None)
    assert (second.name, second.value) == ("mine", 3.0)


def test_an_own_metric_is_watched_in_the_direction_of_its_name() -> None:
    score = {"model": {"name": "m"}, "data": {"source": "rows.jsonl"}, "ownMetrics": ["mine:rate:lower", "mine:polite"]}
    goal = nightly(
        regression={name: {"worseBy": "2%"} for name in ("rate", "polite")},
        template={"spec": {"tasks": [{"name": "judge", "score": score}]}},
    )
    assert {name: limit.better for name, limit in goal.limits.items()} == {"rate": "lower", "polite": "higher"}
    nights = Nights(goal)
    nights.night(0, figure(0.8, name="rate"), figure(0.8, name="polite"))
    nights.night(1, figure(0.7, name="rate"), figure(0.9, name="polite"))
    nights.night(2, figure(0.9, name="rate"), figure(0.9, name="polite"))
    assert nights.verdicts == ["good", "good", "regressed"]


def over_the_same_rows(before: float, worse: int, better: int, rows: int = 1000) -> RunFigure:
    """exact_match of a run in which these numbers of rows have turned wrong, and right, since a run with the value `before`."""
    change = (better - worse) / rows
    half = 1.96 * math.sqrt((better + worse) / rows - change**2) / math.sqrt(rows)
    changes = {"change": change, "change_low": change - half, "change_high": change + half, "change_rows": rows}
    return figure(before + change, 0.028).model_copy(update=changes)


def test_a_drop_of_three_points_is_seen_over_the_same_rows_alone() -> None:
    limits = {"exact_match": Limit.model_validate({"worseBy": "2%", "better": "higher"})}
    baseline = ScheduledRun(name="a", due="2026-11-23T02:00:00Z", figures=[figure(0.7, 0.028)])
    now = over_the_same_rows(0.7, worse=45, better=15)
    found = judge(limits, [now], baseline, is_paired=True)
    assert (found.verdict, found.is_paired) == ("regressed", True)
    assert "over the same 1,000 rows" in found.message
    assert judge(limits, [now], baseline).verdict == "good", "as of other rows, the difference is noise"
    assert judge(limits, [over_the_same_rows(0.7, worse=60, better=35)], baseline, is_paired=True).verdict == "good", "noise of the rows"


def test_changes_against_another_run_are_not_used() -> None:
    nights = watching(exact_match={"worseBy": "1%"})
    nights.night(0, figure(0.70, 0.03))
    for day, against, verdict in ((1, "somebody-else", "good"), (2, "", "good"), (3, "last", "regressed")):
        (start,) = nights.look(at_hour(24 * day + 2)).start
        last = nights.status.runs[-2].name if against == "last" else against
        nights.end(start.name, Phase.SUCCEEDED, over_the_same_rows(0.7, worse=45, better=15), against=last)
        nights.look(at_hour(24 * day + 3))
        run = nights.status.runs[-1]
        assert (run.verdict, run.rows_compared_with) == (verdict, last if against == "last" else "")
        before = nights.status.runs[-2].name
        why = {"last": "", "": f"the output of {before} was not known", "somebody-else": "the run read the rows of somebody-else"}[against]
        assert run.rows_not_compared.startswith(why) if why else run.rows_not_compared == ""


def test_an_accepted_run_is_the_new_measure() -> None:
    nights = watching(exact_match={"worseBy": "2%"})
    assert [nights.night(day, figure(value)) for day, value in enumerate((0.8, 0.7))] == ["good", "regressed"]
    worse = nights.status.runs[-1].name
    nights.goal = nights.goal.model_copy(update={"accept": worse})
    for _ in range(2):
        nights.look(at_hour(28))
    assert (nights.verdicts, nights.condition("Regressed")) == (["good", "accepted"], "False")
    assert nights.news == ["Regressed", "Accepted"]
    assert [nights.night(day, figure(value)) for day, value in ((2, 0.7), (3, 0.6))] == ["good", "regressed"]
    assert nights.status.runs[2].compared_with == worse
    assert nights.news == ["Regressed", "Accepted", "Regressed"], "a run after an accepted one has not recovered"


def test_a_regression_before_a_good_run_is_not_accepted() -> None:
    """Later runs are compared with the good one: the words of `accept` would not be true."""
    nights = watching(exact_match={"worseBy": "2%"})
    assert [nights.night(day, figure(value)) for day, value in enumerate((0.8, 0.7, 0.8))] == ["good", "regressed", "good"]
    nights.goal = nights.goal.model_copy(update={"accept": nights.status.runs[1].name})
    nights.look(at_hour(60))
    assert nights.verdicts == ["good", "regressed", "good"]


def test_a_good_run_is_not_accepted() -> None:
    nights = watching(exact_match={"worseBy": "2%"})
    nights.night(0, figure(0.8))
    nights.goal = nights.goal.model_copy(update={"accept": nights.status.runs[0].name})
    nights.look(at_hour(4))
    assert nights.verdicts == ["good"]


def test_figures_carry_their_change() -> None:
    numbers = {"exact_match": 0.5, "exact_match.change": -0.1, "exact_match.change.low": -0.2, "exact_match.change.high": 0.0}
    (found,) = figures_of({"judge": {**numbers, "exact_match.change.rows": 40}}, ())
    assert (found.change, found.change_low, found.change_high, found.change_rows) == (-0.1, -0.2, 0.0, 40)
    (found,) = figures_of({"judge": {**numbers, "exact_match.change.low": math.nan}}, ())
    assert found.change is None
