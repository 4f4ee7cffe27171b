"""The plan of a ranker: its layout, and its parameters and memory by its description alone."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.rankers import rank_task
from torch.nn.functional import binary_cross_entropy_with_logits

from tuneyard.api import BadInput, RankTask
from tuneyard.catalog import gpu
from tuneyard.planning import Plan, RankerShape, plan_of_ranker, vector_bytes
from tuneyard.ranking import RankerConfig, batch_of, config_of_task, generated_clicks
from tuneyard.ranking.config import ENSEMBLES, INTERACTIONS

MODULES = st.lists(st.lists(st.sampled_from(INTERACTIONS), min_size=1, max_size=3), min_size=1, max_size=3)


def plan_of(workers: int = 2, sku: str = "cpu", **fields: Any) -> Plan:
    return plan_of_ranker(rank_task(**{"batch": {"global": 1024}, **fields}), gpu(sku), workers)


@settings(deadline=None, max_examples=25)
@given(MODULES, st.sampled_from(ENSEMBLES), st.sampled_from([4, 7, 16, 24]), st.integers(1, 9), st.lists(st.integers(1, 40), max_size=2))
def test_parameters_are_those_of_the_ranker(layers: list[list[str]], ensemble: str, width: int, outputs: int, hidden: list[int]) -> None:
    model = {"layers": layers, "ensemble": ensemble, "width": width, "outputs": outputs, "hidden": hidden}
    task = rank_task(model=model, moreLabels=["bought"])
    shape = RankerShape.of(task)
    with torch.device("meta"):
        ranker = config_of_task(task).build()
    assert sum(parameter.numel() for parameter in ranker.parameters()) == shape.parameters + shape.table_elements


def live_bytes(task: RankTask, rows: int) -> int:
    """The most that torch has allocated in a forward and a backward pass of the dense part, gradients included."""
    config = config_of_task(task)
    ranker = config.build(GivenVectors(config))
    ranker.recompute = task.as_training().layout.recompute is True
    batch = batch_of(next(iter(generated_clicks(rows, seed=1, batch=rows))), config)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        binary_cross_entropy_with_logits(ranker(batch), batch["labels"]).backward()
    made = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate(event.nbytes() for event in sorted(made, key=lambda event: event.start_ns())))


class GivenVectors(torch.nn.Module):  # type: ignore[misc]
    """Tables that hold nothing: all embeddings are zeros."""

    def __init__(self, config: RankerConfig) -> None:
        super().__init__()
        self.config = config

    def begin(self, batch: Any) -> Any:
        rows, width = len(batch["labels"]), self.config.width
        shapes = [(rows, each.length, width) if each.length else (rows, width) for each in self.config.sparse]
        return lambda: [torch.zeros(shape, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("layers", [*([[name]] for name in INTERACTIONS), [["dlrm", "linear"], ["attention", "convolution", "dcn"]]])
def test_activations_are_those_that_torch_holds_at_its_fullest(layers: list[list[str]], recompute: bool) -> None:
    compare_activations(recompute, layers=layers)


@pytest.mark.parametrize("ensemble", ENSEMBLES[1:])
def test_activations_of_sums_are_those_that_torch_holds_at_its_fullest(ensemble: str) -> None:
    for layers in ([["linear", "dcn"]], [["dlrm", "attention", "convolution"]], [["experts", "dlrm"], ["dcn", "linear"]]):
        compare_activations(False, layers=layers, ensemble=ensemble)


def test_a_sum_gives_the_next_layer_fewer_embeddings_and_takes_fewer_products() -> None:
    layers = [["dlrm", "dcn"], ["dlrm", "dcn"]]
    plain, added = (RankerShape.of(rank_task(model={"layers": layers, "ensemble": each})) for each in ("concatenation", "sum"))
    assert added.parameters < plain.parameters
    assert sum(part.flops for part in added.parts) < sum(part.flops for part in plain.parts)
    assert added.ensembles[1].inputs == plain.ensembles[1].inputs / 2


def compare_activations(recompute: bool, **model: Any) -> None:
    task = rank_task(model={"width": 32, "outputs": 8, "hidden": [64], **model}, strategy={"recompute": recompute})
    fullest = max(RankerShape.of(task).moments(recompute=recompute), key=lambda moment: moment.elements)
    planned = 4 * (256 * fullest.elements + fullest.gradients)
    assert planned == pytest.approx(live_bytes(task, rows=256), rel=0.25)


def test_a_smaller_micro_batch_and_more_ranks_take_less_memory_and_recompute_more_time() -> None:
    whole, half, again = plan_of(), plan_of(batch={"global": 1024, "micro": 256}), plan_of(strategy={"recompute": True})
    assert half.memory.activations_gb < whole.memory.activations_gb
    assert again.memory.activations_gb < whole.memory.activations_gb
    assert again.speed is not None
    assert whole.speed is not None
    assert again.speed.step_s > whole.speed.step_s
    alone, shared = (plan_of(count, strategy={"zero": 2}).memory for count in (1, 4))
    assert shared.optimizer_gb < alone.optimizer_gb


def test_speed_has_terms_of_tables_that_grow_with_ids_and_an_exchange_between_ranks() -> None:
    long = {"sparse": [{"name": "history", "rows": 1000, "length": 500}]}
    short = {"sparse": [{"name": "history", "rows": 1000, "length": 5}]}
    slow, fast, alone = plan_of(features=long).speed, plan_of(features=short).speed, plan_of(1, features=long).speed
    assert slow is not None
    assert fast is not None
    assert alone is not None
    assert slow.terms.tables_s == pytest.approx(100 * fast.terms.tables_s)
    assert slow.terms.table_exchange_s > fast.terms.table_exchange_s
    assert alone.terms.table_exchange_s == alone.terms.data_parallel_s == 0
    assert slow.tokens_per_s == pytest.approx(1024 / slow.step_s)


def test_embeddings_in_fewer_bits_take_less_time_between_hosts_and_cost_one_worker_nothing() -> None:
    def exchange_s(exchange: str, workers: int = 16, width: int = 64) -> float:
        speed = plan_of(workers, "h100-80gb", tables={"exchange": exchange}, model={"width": width}).speed
        assert speed is not None
        return speed.terms.table_exchange_s

    assert exchange_s("int8") < exchange_s("fp16") < exchange_s("fp32")
    assert exchange_s("int8", workers=1) == 0
    assert [vector_bytes(64, each) for each in ("fp32", "fp16", "int8")] == [256, 132, 68]


def test_a_plan_goes_through_json() -> None:
    plan = plan_of(sku="h100-80gb", workers=16)
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_auto_is_data_parallel_with_one_micro_batch() -> None:
    plan = plan_of()
    assert (plan.zero, plan.micro_batch, plan.grad_accum, plan.precision) == (0, 512, 1, "fp32")
    assert plan_of(sku="h100-80gb").precision == "bf16"
    assert plan_of(strategy={"offload": {"optimizer": "cpu"}}).zero == 2
    assert plan_of(strategy={"shardWithin": "host"}).zero == 3


def test_tables_are_shared_by_the_ranks_and_halved_by_fp16() -> None:
    features = {"sparse": [{"name": "item", "rows": 10_000_000}]}
    whole, shared = (plan_of(count, features=features, model={"width": 64}).memory for count in (1, 4))
    assert whole.weights_gb == pytest.approx(4 * shared.weights_gb, rel=0.01)
    half = plan_of(1, features=features, model={"width": 64}, tables={"rows": "fp16"}).memory
    assert half.weights_gb == pytest.approx(whole.weights_gb / 2, rel=0.02)
    assert plan_of(1, sku="h100-80gb", features=features, tables={"offload": "cpu"}).memory.weights_gb < 0.01


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"strategy": {"tensorParallel": 2}}, "not with sequenceParallel, contextParallel, tensorParallel"),
        ({"batch": {"global": 1023}}, "does not divide over 2 replicas"),
        ({"strategy": {"precision": "fp16"}, "sku": "h100-80gb"}, "not trained in fp16"),
        ({"strategy": {"shardWithin": "host", "zero": 1}}, "by ZeRO-3"),
    ],
)
def test_layouts_that_rankers_are_not_trained_in_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        plan_of(**fields)
