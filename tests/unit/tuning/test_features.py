"""Features are finite, mean what they say, and do not depend on what else is in the table."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuning.runs import row

from tuneyard.tuning import FEATURES, describe
from tuneyard.tuning.roofline import FACTORS, Roofline, terms
from tuneyard.tuning.rows import clean

LAYOUTS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["1b", "8b"]),
        "tp": st.sampled_from([1, 2, 8, 16]),
        "pp": st.sampled_from([1, 2, 8]),
        "dp": st.sampled_from([1, 2, 64]),
        "micro_batch": st.sampled_from([1, 4, 32]),
        "zero_stage": st.sampled_from([0, 1, 2, 3]),
        "method": st.sampled_from(["full", "lora", "qlora"]),
        "gpu_type": st.sampled_from(["A100-80GB", "H100-80GB", "NVIDIA L40S", "V100-32GB"]),
        "activation_checkpointing": st.sampled_from(["True", "False", None]),
    }
)


def feature(name: str, **changes: Any) -> float:
    return float(describe(pd.DataFrame([row(**changes)])).features[name].iloc[0])


@settings(max_examples=25, deadline=None)
@given(LAYOUTS)
def test_features_and_terms_of_any_layout_are_finite(layout: dict[str, Any]) -> None:
    described = describe(pd.DataFrame([row(**{**layout, "gpus": layout["tp"] * layout["pp"] * layout["dp"]})]))
    assert described.usable.all()
    assert np.isfinite(described.features.to_numpy()).all()
    assert (described.terms.to_numpy() >= 0).all()
    assert Roofline.prior().seconds(described.terms)[0] > 0


def test_names_are_unique_and_have_units_and_meanings() -> None:
    assert len({f.name for f in FEATURES}) == len(FEATURES)
    assert all(f.unit and f.meaning for f in FEATURES)


def test_the_bubble_is_narayanans() -> None:
    assert feature("bubble", pp=4, dp=2, grad_accum=8, gpus=8) == pytest.approx(3 / 11)


def test_crossing_machines_is_seen() -> None:
    assert feature("tp_machines", tp=16, dp=1, gpus=16) == 2
    assert feature("dp_crosses", tp=8, dp=2, gpus=16) == 1
    assert feature("dp_crosses", tp=4, dp=2, gpus=8) == 0


def test_a_row_is_described_alike_alone_and_in_company() -> None:
    rows = pd.DataFrame([row(), row("8b", tp=2, dp=4), row(gpu_type="A100-80GB")])
    together = describe(rows).features
    for at in range(len(rows)):
        pd.testing.assert_series_equal(describe(rows.iloc[[at]]).features.iloc[0], together.iloc[at])


def test_what_cannot_be_used_is_said() -> None:
    rows = pd.DataFrame([row(), row(gpu_type="TPU v4"), row(seq_len=None)])
    assert describe(rows).usable.tolist() == [True, False, False]


def test_factors_are_found_again_from_rows_that_follow_them() -> None:
    layouts = [row(m, tp=tp, dp=8 // tp, micro_batch=b) for m in ("1b", "8b") for tp in (1, 2, 4, 8) for b in (1, 2, 4, 8)]
    found = terms(clean(pd.DataFrame(layouts)))
    truth = Roofline(Roofline.prior().log_factors + np.where(np.array(list(FACTORS)) == "matmul", 0.7, 0.0))
    seconds = truth.seconds(found)
    fitted = Roofline.prior().fitted(found, np.log(seconds))
    assert np.abs(np.log(fitted.seconds(found) / seconds)).max() < 0.05


def test_without_rows_factors_stay() -> None:
    found = terms(clean(pd.DataFrame([row()])))
    assert Roofline.prior().fitted(found[:0], np.zeros(0)) is not None
    np.testing.assert_array_equal(Roofline.prior().fitted(found[:0], np.zeros(0)).log_factors, Roofline.prior().log_factors)
