"""Analytic FLOPs within 2 % of what torch's FlopCounterMode and DeepSpeed's flops profiler see of the real models.

`python benchmarks/flops.py` prints the same comparison for more models and methods.
"""

import pytest
from benchmarks.flops import compare
from tests.zoo.proofs import proven_once

CASES = [(model, method, again) for model in ("llama", "mixtral", "gpt2") for method in ("full", "lora") for again in (False, True)]


@pytest.mark.parametrize(("model", "method", "recompute"), [*CASES, ("llama", "dora", True), ("gemma2", "lora", True)])
@proven_once
def test_flops_are_within_two_percent_of_the_counters(model: str, method: str, recompute: bool) -> None:
    assert_close(model, method, recompute)


@pytest.mark.long
@pytest.mark.parametrize(("method", "recompute"), [(method, again) for method in ("full", "lora") for again in (False, True)])
def test_flops_of_qwen_2_are_within_two_percent_of_the_counters(method: str, recompute: bool) -> None:
    """The short test has Llama, whose layers differ in biases alone."""
    assert_close("qwen2", method, recompute)


def assert_close(model: str, method: str, recompute: bool) -> None:
    found = compare(model, method, recompute)
    assert found.error == pytest.approx(0, abs=0.02)
    # What PEFT computes with whole weight matrices is executed, but not needed by the maths.
    whole_weights = method == "dora" or (model, method) == ("mixtral", "lora")
    if not whole_weights:
        assert found.forward_error == pytest.approx(0, abs=0.02)
    if not recompute and not whole_weights:
        assert found.analytic_model == pytest.approx(found.counted, rel=0.02)
    if recompute:
        assert found.analytic_model < found.analytic
