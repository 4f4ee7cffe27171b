"""Searchers never leave the space, never repeat themselves, and learn from what they are told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks.tuner_tabular import DeepSpeedOrder, Default
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuning.runs import row

from tuneyard.api import BadInput
from tuneyard.tuning import (
    Outlook,
    Point,
    PolicySearcher,
    PolicySettings,
    Predictor,
    PredictorExpectation,
    Random,
    Searcher,
    SearchSettings,
    Space,
    Tpe,
)

SETTINGS = {"tp": (1, 2, 4, 8), "micro_batch": (1, 2, 4), "zero_stage": (0, 1)}
QUICK = SearchSettings(policies=2, policy=PolicySettings(steps=20, batch=16))


@dataclass
class Table:
    """Expects what a law says of points; what it is told replaces that."""

    points: Sequence[Point]
    law: Callable[[Point], float]
    told: dict[int, float] = field(default_factory=dict)

    def outlook(self) -> Outlook:
        speeds = np.array([self.told.get(at, self.law(point)) for at, point in enumerate(self.points)])
        return Outlook(np.log(np.maximum(speeds, 1e-6)), np.full(len(speeds), 0.1), np.where(speeds <= 0, 1.0, 0.0))

    def learn(self, point: Point, measured: float | None) -> None:
        self.told[list(self.points).index(point)] = measured or 0.0


def law(point: Point) -> float:
    """Fastest at tp 2, the largest micro-batch, ZeRO-1."""
    return 1000.0 * float(point["micro_batch"]) / (1 + abs(point["tp"] - 2)) * (1 + 0.2 * point["zero_stage"])  # type: ignore[arg-type,operator]


def policy(space: Space, seed: int) -> Searcher:
    return PolicySearcher(space, lambda points: Table(points, law), np.random.default_rng(seed), QUICK)


MAKERS: dict[str, Callable[[Space, int], Searcher]] = {
    "policy": policy,
    "random": lambda space, seed: Random(space, np.random.default_rng(seed)),
    "tpe": lambda space, seed: Tpe(space, np.random.default_rng(seed)),
    "deepspeed": lambda space, seed: DeepSpeedOrder(
        space, np.random.default_rng(seed), saving=lambda p: float(str(p["zero_stage"])), micro_batch=lambda p: float(str(p["micro_batch"]))
    ),
    "default": lambda space, seed: Default(space, np.random.default_rng(seed), preference=lambda p: p["tp"]),
}


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=8, deadline=None)
@given(allowed=st.sets(st.integers(0, 23), min_size=1), seed=st.integers(0, 3), step=st.integers(1, 4), fails=st.booleans())
def test_only_legal_points_and_each_once(name: str, allowed: set[int], seed: int, step: int, fails: bool) -> None:
    everything = list(Space(SETTINGS).legal_keys(np.random.default_rng(0)))
    keys = {tuple(int(i) for i in everything[at]) for at in allowed}
    space = Space(SETTINGS, legal=lambda point: Space(SETTINGS).key(point) in keys)
    searcher = MAKERS[name](space, seed)
    asked: list[dict[str, Any]] = []
    while points := searcher.ask(step):
        asked += points
        for at, point in enumerate(points):
            searcher.tell(point, None if fails and at % 2 else law(point))
    assert {space.key(point) for point in asked} == keys
    assert len(asked) == len(keys)


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_seed_asks_the_same(name: str) -> None:
    def asked(seed: int) -> list[dict[str, Any]]:
        searcher = MAKERS[name](Space(SETTINGS), seed)
        found = []
        for _ in range(4):
            for point in searcher.ask(2):
                searcher.tell(point, law(point))
                found.append(point)
        return found

    assert asked(5) == asked(5)


def test_the_policy_asks_for_the_best_first() -> None:
    assert policy(Space(SETTINGS), 0).ask(1) == [{"tp": 2, "micro_batch": 4, "zero_stage": 1}]


def test_candidates_of_one_round_are_diverse() -> None:
    plain = SearchSettings(policy=PolicySettings(steps=40), likeness=0.9)
    points = PolicySearcher(Space(SETTINGS), lambda found: Table(found, law), np.random.default_rng(0), plain).ask(3)
    assert len({point["tp"] for point in points}) > 1


def test_a_point_that_was_told_unasked_is_not_asked() -> None:
    searcher = policy(Space(SETTINGS), 0)
    searcher.tell({"tp": 2, "micro_batch": 4, "zero_stage": 1}, 1.0)
    assert searcher.ask(1) != [{"tp": 2, "micro_batch": 4, "zero_stage": 1}]


def test_deepspeed_goes_by_stage_and_then_by_micro_batch() -> None:
    order = MAKERS["deepspeed"](Space(SETTINGS), 0).ask(24)
    assert [point["zero_stage"] for point in order] == [0] * 12 + [1] * 12
    assert [point["micro_batch"] for point in order[:12]] == [4] * 4 + [2] * 4 + [1] * 4


def test_a_space_of_one_point_is_asked_once() -> None:
    searcher = policy(Space({"tp": (2,), "micro_batch": (1,), "zero_stage": (0,)}), 0)
    assert len(searcher.ask(5)) == 1
    assert searcher.ask(5) == []


def test_spaces_that_cannot_work_are_refused() -> None:
    with pytest.raises(BadInput, match="nothing to tune"):
        Space({})
    with pytest.raises(BadInput, match="tp has no value"):
        Space({"tp": ()})
    with pytest.raises(BadInput, match="twice"):
        Space({"tp": (1, 1)})
    with pytest.raises(BadInput, match="no combination of tp"):
        policy(Space({"tp": (1, 2)}, legal=lambda _: False), 0)
    with pytest.raises(BadInput, match="not a point"):
        Space(SETTINGS).key({"tp": 3, "micro_batch": 1, "zero_stage": 0})


def test_a_space_too_large_to_list_is_sampled() -> None:
    space = Space({f"s{i}": tuple(range(10)) for i in range(9)}, legal=lambda point: point["s0"] != 0)
    keys = space.legal_keys(np.random.default_rng(0), most=500)
    assert 400 < len(keys) <= 500
    assert (keys[:, 0] != 0).all()


class Trials:
    """A searcher over a predictor, on settings of the 8b model."""

    def __init__(self, predictor: Predictor) -> None:
        self.searcher = PolicySearcher(
            Space({"tp": (1, 2, 4, 8), "micro_batch": (1, 2, 4), "zero_stage": (0, 1)}),
            lambda points: PredictorExpectation(predictor, points, self.row_of),
            np.random.default_rng(0),
            QUICK,
        )

    @staticmethod
    def row_of(point: Point) -> dict[str, Any]:
        tp: Any = point["tp"]
        return row("8b", **{**point, "dp": 8 // tp})


def test_failures_are_learned_from(predictor: Predictor) -> None:
    trials = Trials(predictor)
    (first,) = trials.searcher.ask(1)
    trials.searcher.tell(first, None)
    (second,) = trials.searcher.ask(1)
    assert second != first


def test_a_search_without_history_grows_its_own() -> None:
    trials = Trials(Predictor.fit(pd.DataFrame([row()])[:0]))
    for _ in range(13):
        for point in trials.searcher.ask(1):
            trials.searcher.tell(point, law(point))
    assert trials.searcher.ask(1)


def test_all_tokens_count_where_that_is_asked_for(predictor: Predictor) -> None:
    """Speed per GPU falls a little with each doubling; that of all of them nearly doubles."""
    space = Space({"gpus": (1, 2, 4, 8)})

    def asked(counted: Callable[[Point], float]) -> list[Any]:
        def row_of(point: Point) -> dict[str, Any]:
            gpus: Any = point["gpus"]
            return row("1b", **point, tp=gpus, dp=1, gpus_per_node=8)

        searcher = PolicySearcher(
            space, lambda points: PredictorExpectation(predictor, points, row_of, counted), np.random.default_rng(0), QUICK
        )
        return [point["gpus"] for point in searcher.ask(1)]

    assert asked(lambda _: 1.0)[0] < 8
    assert asked(lambda point: float(str(point["gpus"]))) == [8]
