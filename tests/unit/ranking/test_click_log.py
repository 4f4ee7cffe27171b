"""The log of clicks with known causes: the same from the same seed, and as the effects say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tuneyard.api import load_jobspec
from tuneyard.ranking import Effects, RankMetrics, batch_of, generated_clicks
from tuneyard.ranking.click_log import config_of

JOBSPECS = Path(__file__).parents[3] / "jobspecs"


def rows_of(rows: int, seed: int = 1, **fields: object) -> pa.Table:
    return pa.Table.from_batches(generated_clicks(rows, seed, batch=5_000, **fields))  # type: ignore[arg-type]


def entropy_of_truth(table: pa.Table) -> float:
    metrics = RankMetrics()
    probability = table["probability"].to_numpy()
    metrics.update(np.log(probability / (1 - probability)), table["clicked"].to_numpy().astype(np.float64))
    return metrics.figures().normalised_entropy


def test_the_same_seed_makes_the_same_log_and_another_one_another() -> None:
    assert rows_of(10_000).equals(rows_of(10_000))
    assert rows_of(10_000).slice(5_000).equals(rows_of(5_000, first_row=5_000))
    assert not rows_of(5_000).equals(rows_of(5_000, seed=2))


def test_its_columns_are_what_its_config_reads() -> None:
    batch = batch_of(rows_of(5_000), config_of(layers=()))

    assert batch["labels"].shape == (5_000, 1)
    assert 0.1 < float(batch["labels"].mean()) < 0.5


def test_the_example_has_a_table_row_for_each_of_its_ids() -> None:
    [ranker] = [task.rank for task in load_jobspec(JOBSPECS / "ranker.yaml").spec.tasks if task.rank is not None]

    assert {each.name: (each.rows, each.length) for each in ranker.features.sparse} == {
        each.name: (each.rows, each.length) for each in config_of(layers=()).sparse
    }


def test_effects_have_the_standard_deviations_that_are_named() -> None:
    for name in ("first", "second", "third", "sequence", "noise"):
        effects = Effects(**{"first": 0, "second": 0, "third": 0, "sequence": 0, "noise": 0, name: 0.7})
        probability = rows_of(20_000, effects=effects)["probability"].to_numpy()
        assert np.log(probability / (1 - probability)).std() == pytest.approx(0.7, rel=0.05), name


def test_without_effects_nothing_can_be_known_and_with_them_much() -> None:
    none = Effects(first=0, second=0, third=0, sequence=0, noise=0)

    assert entropy_of_truth(rows_of(20_000, effects=none)) > 0.99
    assert entropy_of_truth(rows_of(20_000)) < 0.85
