"""The time of a step: its terms, what makes it shorter, and what it is held against."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.planning.setups import LLAMA_8B, LLAMA_70B, setup

from tuneyard.api import BadInput
from tuneyard.catalog import Gpu, gpu, train_flops
from tuneyard.planning import DEFAULT, Calibration, Efficiency, Setup, calibrated, estimate_memory, estimate_speed
from tuneyard.planning.links import Links

LAPTOP = Gpu(
    sku="cpu",
    name="a laptop",
    memory_gb=16.0,
    peak_flops={"fp32": 1e11, "bf16": 1e10},
    memory_bandwidth_gb_s=20.0,
    link_gb_s=0.0,
    pcie_gb_s=0.0,
    vendor="cpu",
    architecture="",
    source="made up",
)


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    workers = draw(st.sampled_from([1, 2, 4, 8, 16, 64, 512]))
    tensor = draw(st.sampled_from([degree for degree in (1, 2, 4, 8) if workers % degree == 0]))
    pipeline = draw(st.sampled_from([degree for degree in (1, 2, 4) if workers % (tensor * degree) == 0]))
    zero = draw(st.sampled_from([0, 1] if pipeline > 1 else [0, 1, 2, 3]))
    return setup(
        draw(st.sampled_from(["a100-80gb", "h100-80gb", "l40s-48gb", "b200-180gb"])),
        method=draw(st.sampled_from(["full", "lora", "qlora", "dora"])),
        objective=draw(st.sampled_from(["sft", "dpo"])),
        network_gb_s=draw(st.sampled_from([None, 3.0, 10.0])),
        workers=workers,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        zero=zero,
        attention=draw(st.sampled_from(["flash", "sdpa", "eager"])),
        micro_batch=draw(st.sampled_from([1, 2, 8])),
        grad_accum=draw(st.sampled_from([1, 4, 32])),
        seq_len=draw(st.sampled_from([128, 2048])),
        recompute=draw(st.booleans()),
        liger=draw(st.booleans()),
        offload_optimizer=draw(st.sampled_from(["none", "cpu", "nvme"])) if zero == 3 else "none",
        offload_parameters=draw(st.sampled_from(["none", "cpu"])) if zero == 3 else "none",
        engine=draw(st.sampled_from(["deepspeed", "fsdp", "megatron", "nanotron"])),
    )


@settings(deadline=None, max_examples=150)
@given(setups())
def test_terms_are_never_negative_and_add_up_to_the_step(given_: Setup) -> None:
    speed = estimate_speed(given_)
    assert all(term >= -1e-9 for term in vars(speed.terms).values())
    assert sum(vars(speed.terms).values()) == pytest.approx(speed.step_s)
    layout = given_.layout
    rows = layout.micro_batch * layout.grad_accum * layout.data_parallel * (2 if given_.objective == "dpo" else 1)
    assert speed.tokens_per_s * speed.step_s == pytest.approx(rows * layout.seq_len)
    assert speed.tokens_per_s_per_gpu * layout.workers == pytest.approx(speed.tokens_per_s)
    assert 0 < speed.mfu < 1


@settings(deadline=None, max_examples=100)
@given(setups(), st.sampled_from(["memory_bandwidth_gb_s", "link_gb_s", "pcie_gb_s"]))
def test_a_device_with_more_bandwidth_is_never_slower(given_: Setup, name: str) -> None:
    faster = replace(given_, gpu=replace(given_.gpu, **{name: 2 * getattr(given_.gpu, name)}))
    assert estimate_speed(faster).step_s <= estimate_speed(given_).step_s * (1 + 1e-9)


@settings(deadline=None, max_examples=100)
@given(setups())
def test_a_faster_network_is_never_slower(given_: Setup) -> None:
    times = [estimate_speed(replace(given_, network_gb_s=rate)).step_s for rate in (3.0, 10.0, 50.0, 400.0)]
    assert times == sorted(times, reverse=True)


@settings(deadline=None, max_examples=50)
@given(st.sampled_from([2, 4, 8]), st.sampled_from([1, 2, 4, 16]), st.sampled_from(["deepspeed", "megatron"]))
def test_more_micro_batches_shrink_the_share_of_the_bubble(stages: int, accum: int, engine: str) -> None:
    few, many = (estimate_speed(setup(pipeline_parallel=stages, grad_accum=count, engine=engine)).terms for count in (accum, 2 * accum))
    assert many.pipeline_s / many.total_s < few.pipeline_s / few.total_s


def test_the_bubble_of_equal_stages_is_that_of_the_literature() -> None:
    # Narayanan et al. 2021, 2.2.1: (p - 1) / m of the time of the micro-batches, where nothing is sent and the head is small.
    links = replace(gpu("h100-80gb"), link_gb_s=1e9)
    quiet = replace(DEFAULT.of(gpu("h100-80gb")), link_latency_s=0.0)
    found = estimate_speed(
        setup(links, shape=LLAMA_70B, pipeline_parallel=8, workers=8, grad_accum=16), Calibration(skus={"h100-80gb": quiet})
    ).terms
    busy = found.total_s - found.pipeline_s - found.optimizer_s - found.data_parallel_s
    assert found.pipeline_s == pytest.approx(busy * 7 / 16, rel=1e-3)


def test_matmuls_and_attention_at_full_efficiency_are_the_catalogs_flops_over_the_peak() -> None:
    perfect = Efficiency(matmul=1.0, matmul_tokens=0.0, matmul_width=0.0, attention=1.0)
    given_ = setup(workers=1, zero=0, grad_accum=1, recompute=True)
    terms = estimate_speed(given_, Calibration(default=perfect)).terms
    flops = train_flops(given_.shape, tokens=4096, seq_len=2048, recompute=True, attention="flash", causal=True)
    assert terms.matmul_s + terms.attention_s == pytest.approx(flops.hardware / 989.4e12, rel=1e-6)


def test_a_ring_is_latency_and_bandwidth() -> None:
    links = Links.of(setup(workers=16, network_gb_s=50.0), Efficiency(link=1.0, network=1.0, link_latency_s=1e-5, network_latency_s=1e-4))
    # Inside: 450 GB/s a direction. 7/8 of 8 GB, and seven steps.
    assert links.ring_s(8e9, 8) == pytest.approx(7 / 450 + 7e-5)
    # Across: both machines together send 50 GB/s each, through all eight cards.
    assert links.ring_s(8e9, 16) == pytest.approx(7.5 / 50 + 15e-4)
    # One rank in each machine of eight groups: an eighth of the network.
    assert links.ring_s(8e9, 2, stride=8) == pytest.approx(4 / (50 / 8) + 1e-4)
    assert links.ring_s(8e9, 1) == 0.0


def test_tensor_parallelism_beyond_a_machine_pays_for_the_network() -> None:
    inside = estimate_speed(setup(workers=16, tensor_parallel=8, network_gb_s=10.0))
    across = estimate_speed(setup(workers=16, tensor_parallel=16, network_gb_s=10.0, grad_accum=8))
    assert across.terms.tensor_parallel_s > 10 * inside.terms.tensor_parallel_s


def test_offloading_the_optimizer_moves_its_step_to_the_cpu() -> None:
    kept, moved = (estimate_speed(setup(zero=2, offload_optimizer=place)).terms for place in ("none", "cpu"))
    assert kept.cpu_optimizer_s == kept.offload_s == 0.0
    assert moved.optimizer_s == 0.0
    # 8.03 billion parameters over one machine's CPU at 3.9 billion a second.
    assert moved.cpu_optimizer_s == pytest.approx(8.03 / 3.9, rel=0.01)
    assert estimate_speed(setup(zero=3, offload_optimizer="nvme")).step_s > estimate_speed(setup(zero=3, offload_optimizer="cpu")).step_s


def test_the_cpu_optimizer_is_as_fast_as_the_memory_of_its_host() -> None:
    alone = setup(workers=1, zero=2, offload_optimizer="cpu")
    assumed, measured = (estimate_speed(alone, replace(DEFAULT, host_bandwidth_gb_s=rate)).terms.cpu_optimizer_s for rate in (None, 80.0))
    assert assumed == pytest.approx(8.03 * 28 / 50, rel=0.01)
    assert measured == pytest.approx(8.03 * 28 / 80, rel=0.01)


def test_small_batches_of_a_small_layer_wait_for_python() -> None:
    assert estimate_speed(setup("b200", micro_batch=1, seq_len=64)).terms.launch_s > 0
    assert estimate_speed(setup("b200", micro_batch=16)).terms.launch_s == 0


def test_ranks_on_cpu_share_the_machine() -> None:
    alone, shared = (
        estimate_speed(setup(LAPTOP, workers=count, zero=0, precision="fp32", attention="sdpa", grad_accum=8 // count)) for count in (1, 2)
    )
    assert shared.tokens_per_s == pytest.approx(alone.tokens_per_s, rel=0.3)
    assert shared.tokens_per_s <= alone.tokens_per_s


def test_a_precision_that_the_device_lacks_is_refused() -> None:
    with pytest.raises(BadInput, match="no peak for bf16"):
        estimate_speed(setup("v100-16gb"))


def test_history_corrects_the_efficiencies_of_its_sku_only() -> None:
    truth = Calibration(skus={"h100-80gb": replace(DEFAULT.of(gpu("h100-80gb")), matmul=0.35, memory=0.5)})
    rows = [
        (case, estimate_speed(case, truth).tokens_per_s_per_gpu)
        for case in (setup(micro_batch=micro, seq_len=length) for micro in (1, 2, 4, 8) for length in (512, 2048, 8192))
    ]
    learned = calibrated(rows)
    unseen = setup(zero=3, recompute=True, micro_batch=4, seq_len=4096)
    assert estimate_speed(unseen, learned).step_s == pytest.approx(estimate_speed(unseen, truth).step_s, rel=0.05)
    assert learned.of(gpu("a100-80gb")) == DEFAULT.of(gpu("a100-80gb"))
    # A wrong row (ten times too fast) among them hardly matters.
    wrong = calibrated([*rows, (rows[0][0], 10 * rows[0][1])])
    assert estimate_speed(unseen, wrong).step_s == pytest.approx(estimate_speed(unseen, truth).step_s, rel=0.1)


def test_no_history_changes_nothing_and_an_impossible_one_is_refused() -> None:
    assert calibrated([]).skus == DEFAULT.skus
    with pytest.raises(BadInput, match=r"0\.0 tokens/s"):
        calibrated([(setup(), 0.0)])


def test_a_mask_costs_the_whole_square_of_a_row_on_a_gpu() -> None:
    """Rows of one sample each need no mask in a micro-batch of one. Packed rows, and several padded rows, get one."""
    flash, alone, several = (
        setup(attention=attention, micro_batch=micro, seq_len=8192) for attention, micro in (("flash", 1), ("sdpa", 1), ("sdpa", 2))
    )
    packed = replace(alone, packed=True)
    times = [estimate_speed(each).terms.attention_s for each in (flash, alone, packed)]
    assert times[1] == times[0]
    assert times[2] == pytest.approx(2 * times[0], rel=0.01)
    assert estimate_speed(several).terms.attention_s == pytest.approx(2 * times[2], rel=0.01)
    kept = [estimate_memory(each).device.activations_gb for each in (alone, packed)]
    assert kept[1] - kept[0] == pytest.approx(LLAMA_8B.layers * 8192**2 * 2 / 1e9, rel=0.01)
