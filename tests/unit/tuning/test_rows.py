"""Rows of history: what follows from what, and which are the planner's setups."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.tuning.runs import row

from tuneyard.api import BadInput
from tuneyard.planning import estimate_speed
from tuneyard.tuning import INPUTS, setup_of
from tuneyard.tuning.rows import clean, failed


def cleaned(**changes: Any) -> pd.Series:
    return clean(pd.DataFrame([row(**changes)])).iloc[0]


def test_a_row_is_a_setup_of_the_planner() -> None:
    setup = setup_of(row(tp=2, dp=4, micro_batch=2))
    assert setup is not None
    assert (setup.gpu.sku, setup.shape.hidden, setup.shape.layers) == ("h100-80gb", 2048, 16)
    assert (setup.layout.tensor_parallel, setup.layout.data_parallel, setup.layout.zero) == (2, 4, 1)
    assert setup.layout.engine == "megatron"
    assert estimate_speed(setup).tokens_per_s_per_gpu > 0


@pytest.mark.parametrize("changes", [{"gpu_type": "TPU v5p"}, {"hidden": None}, {"seq_len": None}, {"dp": 3}, {"heads": 7}])
def test_no_setup_of_what_is_not_said_or_cannot_be(changes: dict[str, Any]) -> None:
    assert setup_of(row(**changes)) is None


def test_a_method_decides_what_is_trained() -> None:
    qlora = setup_of(row(method="qlora", lora_rank=8))
    assert qlora is not None
    assert qlora.method.qlora is not None
    assert qlora.method.qlora.rank == 8


def test_what_is_left_out_follows_from_the_rest() -> None:
    assert cleaned(dp=None, tp=2).dp == 4
    assert cleaned(grad_accum=None, micro_batch=2).grad_accum == 4
    assert cleaned(micro_batch=None, grad_accum=4).micro_batch == 2
    assert cleaned(zero_stage=None, sharding="fsdp full_shard").zero == 3
    assert cleaned(hidden=None, layers=None, params_b=7.0).hidden == pytest.approx(4210, rel=0.01)


def test_missing_columns_are_named() -> None:
    rows = pd.DataFrame([row()]).drop(columns=["tp", "gpu_type"])
    with pytest.raises(BadInput, match="gpu_type, tp"):
        clean(rows[[c for c in INPUTS if c in rows]])


def test_a_status_is_a_failure_a_success_or_no_verdict() -> None:
    rows = pd.DataFrame({"status": ["ok", "oom", "failed (crashed)", "hang", "unsupported", None]})
    np.testing.assert_equal(failed(rows), [0, 1, 1, 1, np.nan, np.nan])
