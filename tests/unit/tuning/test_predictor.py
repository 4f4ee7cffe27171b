"""What history teaches, and what is said where it teaches nothing."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau
from tests.unit.tuning.runs import grid, row

from tuneyard.api import BadInput
from tuneyard.planning import estimate_memory, estimate_speed
from tuneyard.tuning import INPUTS, Predictor, setup_of

ANSWERS = [
    "tokens_per_sec_per_gpu",
    "fail_probability",
    "peak_mem_gb",
    "tokens_per_sec_per_gpu_low",
    "tokens_per_sec_per_gpu_high",
    "sigma_log",
]


def one(**changes: object) -> pd.DataFrame:
    return pd.DataFrame([row(**changes)])  # type: ignore[arg-type]


def test_runs_that_were_not_seen_are_ranked(history: pd.DataFrame) -> None:
    unseen = history.index % 4 == 0
    fine = history[unseen & (history.status == "ok")]
    found = Predictor.fit(history[~unseen]).predict(fine)
    assert kendalltau(found.tokens_per_sec_per_gpu, fine.tokens_per_sec_per_gpu).statistic > 0.8
    assert np.median(np.abs(found.peak_mem_gb / fine.peak_mem_gb - 1)) < 0.15
    assert found.supported.all()


def test_failures_are_told_from_runs(predictor: Predictor, history: pd.DataFrame) -> None:
    fails = predictor.predict(history).fail_probability
    assert fails[history.status == "oom"].min() > fails[history.status == "ok"].median()


def test_without_history_the_planner_answers() -> None:
    wish = one(tp=2, dp=4)
    nothing = Predictor.fit(grid()[:0])
    found = nothing.predict(wish).iloc[0]
    setup = setup_of(row(tp=2, dp=4))
    assert setup is not None
    assert found.tokens_per_sec_per_gpu == pytest.approx(estimate_speed(setup).tokens_per_s_per_gpu)
    assert found.peak_mem_gb == pytest.approx(estimate_memory(setup).device.total_gb)
    assert not found.supported
    assert "planner" in found.why_not


def test_without_history_what_does_not_fit_probably_fails() -> None:
    nothing = Predictor.fit(grid()[:0])
    large, small = (nothing.predict(one(model="8b", micro_batch=rows, zero_stage=0)).fail_probability.iloc[0] for rows in (64, 1))
    assert large > 0.9 > small or large > 0.9


def test_one_model_teaches_about_another(history: pd.DataFrame) -> None:
    learned = Predictor.fit(grid("1b"))
    other = history[(history.hidden == 4096) & (history.status == "ok")]
    assert kendalltau(learned.predict(other).tokens_per_sec_per_gpu, other.tokens_per_sec_per_gpu).statistic > 0.6


def test_on_a_sku_without_runs_only_the_calibrated_roofline_is_used(predictor: Predictor, history: pd.DataFrame) -> None:
    """Runs of the history's SKU are corrected by trees; the same layouts elsewhere are ordered by physics alone."""
    fine = history[history.status == "ok"]
    known, elsewhere = predictor.predict(fine), predictor.predict(fine.assign(gpu_type="A100-80GB"))
    assert known.supported.all()
    assert not elsewhere.supported.any()
    assert set(elsewhere.why_not) == {"no run on this SKU in history: the roofline, as history has calibrated it on others"}
    assert (elsewhere.sigma_log >= 0.5).all()
    base = predictor.forecast(fine.assign(gpu_type="A100-80GB"))
    assert base.new_sku.all()
    trial = fine.assign(gpu_type="A100-80GB").iloc[[0]].assign(tokens_per_sec_per_gpu=2 * elsewhere.tokens_per_sec_per_gpu.iloc[0])
    after = predictor.updated(trial).predict(fine.assign(gpu_type="A100-80GB"))
    assert after.tokens_per_sec_per_gpu.iloc[0] > 1.5 * elsewhere.tokens_per_sec_per_gpu.iloc[0], "what a search measures there counts"


def test_similar_runs_do_not_count_beyond_the_largest_one() -> None:
    """Too few rows for trees: what like runs say ends where their number of GPUs ends."""
    few = grid().query("status == 'ok'").head(5)
    slow = few.assign(tokens_per_sec_per_gpu=few.tokens_per_sec_per_gpu / 3)
    plain, learned = Predictor.fit(few), Predictor.fit(slow)

    def ratio(wish: pd.DataFrame) -> float:
        return float(learned.predict(wish).tokens_per_sec_per_gpu.iloc[0] / plain.predict(wish).tokens_per_sec_per_gpu.iloc[0])

    assert ratio(few.iloc[[0]]) < 0.5
    assert ratio(few.iloc[[0]].assign(gpus=16, dp=2 * few.dp.iloc[0])) > ratio(few.iloc[[0]])


def test_far_from_history_there_is_no_pretence(predictor: Predictor) -> None:
    wish = {"gpu_type": "V100-16GB", "framework": "other", "precision": "fp16", "method": "qlora", "offload": "cpu", "gpus": 1, "dp": 1}
    found = predictor.predict(one(**wish)).iloc[0]
    assert not found.supported
    assert found.sigma_log == 1.0
    assert np.isfinite(found.tokens_per_sec_per_gpu)


def test_what_the_catalog_does_not_know_is_not_answered(predictor: Predictor) -> None:
    rows = pd.DataFrame([row(gpu_type="TPU v5p"), row()], index=["tpu", "gpu"])
    found = predictor.predict(rows)
    assert np.isnan(found.tokens_per_sec_per_gpu["tpu"])
    assert not found.supported["tpu"]
    assert "catalog" in found.why_not["tpu"]
    assert found.supported["gpu"]


def test_contradictory_rows_widen_the_answer(history: pd.DataFrame) -> None:
    fine = history[history.status == "ok"]
    rng = np.random.default_rng(0)
    noisy = fine.assign(tokens_per_sec_per_gpu=fine.tokens_per_sec_per_gpu * np.exp(rng.normal(0, 1, len(fine))))
    calm, unsure = Predictor.fit(fine).predict(fine), Predictor.fit(pd.concat([noisy, fine])).predict(fine)
    assert unsure.sigma_log.median() > 2 * calm.sigma_log.median()
    assert np.isfinite(unsure[ANSWERS].to_numpy()).all()


@pytest.mark.parametrize("rows", [1, 3, 12])
def test_a_few_rows_are_enough_to_answer(history: pd.DataFrame, rows: int) -> None:
    found = Predictor.fit(history[:rows]).predict(history)
    assert np.isfinite(found[ANSWERS].to_numpy()).all()


def test_failures_alone_are_history(history: pd.DataFrame) -> None:
    found = Predictor.fit(history[history.status == "oom"]).predict(history)
    assert np.isfinite(found[ANSWERS].to_numpy()).all()


def test_missing_columns_are_named(predictor: Predictor, history: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="micro_batch"):
        Predictor.fit(history.drop(columns="micro_batch"))
    with pytest.raises(BadInput, match="status"):
        Predictor.fit(history.drop(columns="status"))
    with pytest.raises(BadInput, match="tp, pp"):
        predictor.predict(history.drop(columns=["tp", "pp"]))


def test_outcomes_are_not_needed_to_predict_nor_looked_at(predictor: Predictor, history: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(predictor.predict(history[list(INPUTS)]), predictor.predict(history))


def test_new_rows_correct_predictions_around_them(predictor: Predictor) -> None:
    wish = one(model="8b", tp=2, dp=4)
    before = predictor.predict(wish).iloc[0]
    told = wish.assign(status="ok", tokens_per_sec_per_gpu=before.tokens_per_sec_per_gpu / 3)
    after = predictor.updated(told).predict(wish).iloc[0]
    assert after.tokens_per_sec_per_gpu < 0.6 * before.tokens_per_sec_per_gpu
    assert after.sigma_log < before.sigma_log


def test_a_failure_makes_failure_likelier_there(predictor: Predictor) -> None:
    wish = one(tp=2, dp=4)
    before = predictor.predict(wish).fail_probability.iloc[0]
    after = predictor.updated(wish.assign(status="oom")).predict(wish).fail_probability.iloc[0]
    assert after > before + 0.3


def test_what_padding_costs_is_learned_from_a_few_runs(predictor: Predictor) -> None:
    """A filled sequence is known from one that is padded, and what one says of the other is little."""
    padded, filled = one(packed=0.0), one(packed=1.0)
    before = predictor.predict(filled).tokens_per_sec_per_gpu.iloc[0]
    slow = predictor.predict(padded).tokens_per_sec_per_gpu.iloc[0] / 2
    after = predictor.updated(padded.assign(status="ok", tokens_per_sec_per_gpu=slow))
    assert after.predict(padded).tokens_per_sec_per_gpu.iloc[0] < 0.65 * 2 * slow
    assert after.predict(filled).tokens_per_sec_per_gpu.iloc[0] > 0.7 * before


def test_rows_that_do_not_speak_of_padding_have_none(predictor: Predictor) -> None:
    pd.testing.assert_frame_equal(predictor.predict(one()), predictor.predict(one(packed=1.0)))


def test_trees_are_grown_anew_when_history_has_grown(history: pd.DataFrame) -> None:
    grown = Predictor.fit(history[:40]).updated(history[40:])
    again = Predictor.fit(history)
    pd.testing.assert_frame_equal(grown.predict(history), again.predict(history))


def test_the_same_seed_gives_the_same_answers(predictor: Predictor, history: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(Predictor.fit(history).predict(history), predictor.predict(history))
