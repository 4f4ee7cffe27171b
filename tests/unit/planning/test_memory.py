"""Memory per rank by the dtypes that the libraries keep, and how it moves with each setting."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import TrainTask
from tuneyard.catalog import gpu, shape_from_config, trainable_parameters
from tuneyard.planning import LIBRARIES_GB, Layout, Memory, Setup, estimate_memory
from tuneyard.planning.activations import CHUNK_ELEMENTS, loss_bytes
from tuneyard.planning.states import states_of

SHAPE = shape_from_config(
    {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
    | {"intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True}
)
BASE = Layout(workers=4, zero=0, precision="bf16", attention="flash", micro_batch=1, seq_len=2048)


def task(method: str = "full", **fields: Any) -> TrainTask:
    return TrainTask.model_validate({"model": {"name": "m"}, "data": {"source": "d"}, "method": {method: {}}, **fields})


def memory(layout: Layout, method: str = "full", **fields: Any) -> Memory:
    return estimate_memory(Setup.of(task(method, **fields), SHAPE, gpu("h100"), layout)).device


def states_gb(found: Memory) -> float:
    return found.weights_gb + found.gradients_gb + found.optimizer_gb


SHORT = replace(BASE, seq_len=16)
"""So few tokens that a step is fullest in the optimizer."""


def test_plain_adamw_keeps_sixteen_bytes_per_parameter() -> None:
    assert states_gb(memory(SHORT)) == pytest.approx(16 * SHAPE.parameters / 1e9)


@pytest.mark.parametrize(("zero", "per_parameter"), [(1, 2 + 2 + 12 / 4), (2, 2 + (2 + 12) / 4), (3, (2 + 2 + 12) / 4)])
def test_zero_shards_states_then_gradients_then_weights(zero: Any, per_parameter: float) -> None:
    assert states_gb(memory(replace(SHORT, zero=zero))) == pytest.approx(per_parameter * SHAPE.parameters / 1e9)


def test_lora_keeps_gradients_and_states_of_the_adapter_only() -> None:
    trained = trainable_parameters(SHAPE, task("lora").method)
    found = states_of(Setup.of(task("lora"), SHAPE, gpu("h100"), SHORT), last_stage=True)
    assert found.gradients == pytest.approx(4 * trained)
    assert found.optimizer == pytest.approx(8 * trained)
    assert found.weights == pytest.approx(2 * SHAPE.parameters + 4 * trained)


@pytest.mark.parametrize(("zero", "per_parameter"), [(0, 4), (1, 2), (2, 2), (3, 2 / 4)])
def test_the_reference_of_pairs_is_kept_like_the_weights(zero: Any, per_parameter: float) -> None:
    layout = replace(SHORT, zero=zero)
    reference = memory(layout, objective="dpo").weights_gb - memory(layout).weights_gb
    assert reference == pytest.approx(per_parameter * SHAPE.parameters / 1e9)
    assert memory(layout, "lora", objective="dpo").weights_gb == memory(layout, "lora").weights_gb


def test_pairs_keep_their_logits_and_the_gradient_of_these() -> None:
    """No fp32 copies; Liger's fused loss does not compute the loss of pairs."""
    for layout in (replace(BASE, zero=2), replace(BASE, zero=2, liger=True)):
        setup = Setup.of(task(objective="dpo"), SHAPE, gpu("h100"), layout)
        of_logits = 2 * BASE.seq_len * (3 * SHAPE.hidden * 2 + SHAPE.vocab * (2 + 2))
        assert loss_bytes(setup) == pytest.approx(of_logits + 3 * 4 * CHUNK_ELEMENTS)


@pytest.mark.parametrize(("sku", "copies"), [("h100", 0), ("cpu", 1)])
def test_the_fused_optimizer_of_gpus_makes_no_copy(sku: str, copies: int) -> None:
    found = states_of(Setup.of(task(), SHAPE, gpu(sku), SHORT), last_stage=True)
    assert found.step == pytest.approx(copies * 4 * SHAPE.parameters)


@pytest.mark.parametrize(("zero", "buckets"), [(1, 2), (2, 2), (3, 1)])
def test_deepspeed_makes_its_buckets_whole_however_little_is_trained(zero: Any, buckets: int) -> None:
    """50 million elements in 16 bits: an adapter's few gradients do not make them smaller."""
    layout = replace(SHORT, zero=zero, workers=1)
    small, large = (memory(layout, "lora"), memory(layout))
    states = states_of(Setup.of(task(), SHAPE, gpu("h100"), layout), last_stage=True)
    assert large.other_gb == pytest.approx(buckets * 0.1 + 1.0, abs=0.01)
    assert large.optimizer_step_gb == pytest.approx(states.step / 1e9)
    assert large.activations_gb == 0, "the optimizer step is the fullest moment"
    assert small.other_gb == pytest.approx(buckets * 0.1 + 1.0, abs=0.01)


def test_at_the_loss_there_are_no_gradients_yet_unless_they_accumulate() -> None:
    long = replace(BASE, seq_len=16384)
    assert memory(long).gradients_gb == 0
    assert memory(replace(long, grad_accum=2)).gradients_gb > 0


def test_fully_sharded_sixteen_bit_training_takes_ten_bytes_per_parameter() -> None:
    """Weights, gradients, two moments, and what torch's AdamW makes in a step: fms-acceleration measured 72.43 GB of a 7.24e9 model."""
    layout = replace(SHORT, engine="fsdp", mixed_precision=False)
    found = estimate_memory(Setup.of(task(), SHAPE, gpu("h100"), replace(layout, workers=1)))
    assert found.allocated_gb == pytest.approx(10 * SHAPE.parameters / 1e9)
    found = estimate_memory(Setup.of(task(), SHAPE, gpu("h100"), replace(layout, zero=3, workers=2)))
    assert found.allocated_gb == pytest.approx(10 * SHAPE.parameters / 2 / 1e9)


@pytest.mark.parametrize("degree", ["tensor_parallel", "pipeline_parallel"])
def test_model_parallelism_splits_what_zero_does_not(degree: str) -> None:
    parts: dict[str, Any] = {degree: 2}
    whole, split = memory(replace(BASE, engine="megatron")), memory(replace(BASE, engine="megatron", **parts))
    assert split.weights_gb < 0.7 * whole.weights_gb
    assert split.activations_gb <= whole.activations_gb


def test_qlora_keeps_the_layers_in_about_half_a_byte_per_parameter() -> None:
    trained = trainable_parameters(SHAPE, task("qlora").method)
    embedding = SHAPE.embedding_parameters + SHAPE.other_parameters
    layers = SHAPE.parameters - embedding
    per_parameter = (memory(BASE, "qlora").weights_gb * 1e9 - 2 * embedding - 4 * trained) / layers
    assert per_parameter == pytest.approx(0.5 + 1 / 64 + 4 / (64 * 256))


@pytest.mark.parametrize("change", [{"recompute": True}, {"liger": True}, {"seq_len": 1024}])
def test_what_saves_activations_saves_nothing_else(change: dict[str, Any]) -> None:
    before, after = memory(BASE), memory(replace(BASE, **change))
    assert after.activations_gb < before.activations_gb
    assert (after.weights_gb, after.optimizer_gb) == (before.weights_gb, before.optimizer_gb)


def test_eager_attention_grows_with_the_square_of_the_row() -> None:
    rows = [memory(replace(BASE, attention="eager", seq_len=length)).activations_gb for length in (8192, 16384)]
    assert rows[1] > 3 * rows[0]


def test_offloading_moves_states_to_the_host() -> None:
    offloaded = estimate_memory(Setup.of(task(), SHAPE, gpu("h100"), replace(BASE, zero=2, offload_optimizer="cpu")))
    assert offloaded.device.optimizer_gb == 0
    assert offloaded.host_gb > 18 * SHAPE.parameters / 4 / 1e9


@pytest.mark.parametrize(
    ("sizes", "host_gb"),
    [((16, 2048, 32, 8192), 34.0), ((28, 3072, 24, 8192), 72.8), ((32, 4096, 32, 14336), 151.2)],
    ids=["1B", "3B", "8B"],
)
def test_host_memory_of_an_offloaded_optimizer_is_in_pinned_blocks(sizes: tuple[int, ...], host_gb: float) -> None:
    """Llama 3 shapes with a head of their own: at 16 bytes a parameter they would take 24.0, 57.7 and 128.5 GB."""
    named = dict(zip(("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"), sizes, strict=True))
    shape = shape_from_config({"model_type": "llama", "num_key_value_heads": 8, "vocab_size": 128256, **named})
    layouts = [replace(BASE, workers=1, zero=2, offload_optimizer="cpu", grad_accum=count) for count in (1, 2)]
    once, accumulated = (estimate_memory(Setup.of(task(), shape, gpu("h100"), layout)).host_gb for layout in layouts)
    assert once == pytest.approx(host_gb, abs=0.1)
    assert 2 * shape.parameters / 1e9 <= accumulated - once < 3 * shape.parameters / 1e9


@settings(deadline=None)
@given(method=st.sampled_from(["full", "lora", "dora"]), workers=st.integers(1, 64), recompute=st.booleans())
def test_more_workers_never_need_more_memory_per_rank_under_zero_3(method: str, workers: int, recompute: bool) -> None:
    layout = replace(BASE, zero=3, recompute=recompute)
    fewer, more = (memory(replace(layout, workers=count), method).total_gb for count in (workers, workers + 1))
    assert more <= fewer


def test_libraries_are_a_term_of_their_own_on_cpu_and_are_not_on_the_device_of_a_gpu() -> None:
    machine = replace(gpu("h100"), sku="cpu", vendor="cpu", architecture="", memory_gb=64.0)
    setup = Setup.of(task(), SHAPE, machine, replace(BASE, precision="fp32", attention="sdpa"))
    usual, measured = estimate_memory(setup), estimate_memory(setup, libraries_gb=0.75)
    assert (usual.device.libraries_gb, measured.device.libraries_gb) == (LIBRARIES_GB, 0.75)
    assert measured.device.total_gb - usual.device.total_gb == pytest.approx(0.75 - LIBRARIES_GB)
    assert replace(measured.device, libraries_gb=LIBRARIES_GB) == usual.device
    on_gpu = Setup.of(task(), SHAPE, gpu("h100"), BASE)
    assert estimate_memory(on_gpu, libraries_gb=0.75) == estimate_memory(on_gpu)
