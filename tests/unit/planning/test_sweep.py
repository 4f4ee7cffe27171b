"""What a setting is worth: each combination at its largest micro-batch."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import gpu, shape_from_config
from tuneyard.planning import plans, usual_network_gb_s
from tuneyard.planning.open_batch import largest
from tuneyard.planning.sweep import sweep

LLAMA_70B = shape_from_config(
    {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}
    | {"intermediate_size": 28672, "vocab_size": 32000, "max_position_embeddings": 4096}
)
LLAMA_1B = shape_from_config(
    {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
    | {"intermediate_size": 8192, "vocab_size": 32000, "max_position_embeddings": 4096}
)


def task(**fields: object) -> TrainTask:
    return TrainTask.model_validate({"model": {"name": "m"}, "data": {"source": "d", "maxLength": 4096}, "method": {"full": {}}} | fields)


def test_a_slow_network_makes_offloading_pay_and_a_fast_one_does_not() -> None:
    speeds = {}
    for network in (3.0, 10.0, None):
        cases = list(sweep(("offload", "flash"), task(), LLAMA_70B, gpu("a100-80gb"), 32, gpus_per_node=4, network_gb_s=network))
        assert [tuple(case.settings.values()) for case in cases] == [
            ("none", "eager"),
            ("none", "flash"),
            ("cpu", "eager"),
            ("cpu", "flash"),
        ]
        found = [case.plan for case in cases]
        assert all(plan is not None and plan.grad_accum == 1 for plan in found)
        assert [plan.micro_batch for plan in found if plan] == [2, 4, 4, 8]
        speeds[network] = [plan.speed.tokens_per_s for plan in found if plan and plan.speed]
    gains = {network: both / flash for network, (_, flash, _, both) in speeds.items()}
    assert gains[3.0] > gains[10.0] > 1.5
    assert gains[None] < 1


@settings(max_examples=30)
@given(
    method=st.sampled_from([{"full": {}}, {"lora": {}}]),
    length=st.sampled_from([512, 2048, 4096]),
    workers=st.sampled_from([1, 2, 8]),
    zero=st.sampled_from([1, 2, 3]),
    offload=st.sampled_from(["none", "cpu"]),
)
def test_one_row_more_than_the_largest_micro_batch_does_not_fit(
    method: dict[str, object], length: int, workers: int, zero: int, offload: str
) -> None:
    asked = task(data={"source": "d", "maxLength": length}, method=method, strategy={"zero": zero, "offload": {"optimizer": offload}})
    plan = largest(asked, LLAMA_1B, gpu("a100-80gb"), workers)
    assert plan is not None
    for rows, fitting in ((plan.micro_batch, True), (plan.micro_batch + 1, False)):
        batch = {"batch": {"global": rows * workers, "micro": rows}}
        with_batch = TrainTask.model_validate(asked.model_dump(by_alias=True, exclude_unset=True) | batch)
        found = plans(with_batch, LLAMA_1B, gpu("a100-80gb"), workers)
        assert any(each.grad_accum == 1 for each in found) is fitting


def test_a_combination_that_does_not_fit_or_cannot_work_has_its_reason() -> None:
    def check(asked: TrainTask) -> None:
        if asked.layout.zero == 0 and asked.layout.offload.optimizer == "cpu":
            raise BadInput("no ZeRO, no offloading")

    cases = list(sweep(("zero", "offload"), task(), LLAMA_70B, gpu("a100-80gb"), 8, check))
    whys = {tuple(case.settings.values()): case.why for case in cases}
    assert whys[0, "none"] == "not one row fits"
    assert whys[0, "cpu"] == "no ZeRO, no offloading"
    assert not whys[3, "cpu"]


def test_a_machine_with_fewer_gpus_has_fewer_network_cards_where_each_gpu_has_one() -> None:
    a100, t4 = gpu("a100-80gb"), gpu("t4")
    assert [usual_network_gb_s(a100, gpus) for gpus in (1, 4, 8, 16)] == [25, 100, 200, 200]
    assert usual_network_gb_s(t4, 1) == usual_network_gb_s(t4, 8) == t4.network_gb_s
