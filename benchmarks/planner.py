"""The planner: time of a search, the memory of Llama-2-70B on 32 A100, and predicted speed beside 1,668 published runs.

`python benchmarks/planner.py`: writes docs/benchmarks/planner.md. The runs are those of benchmarks/data/training_runs.csv.gz that say
enough (benchmarks/planner_rows.py); which of them the constants were fitted on is in tuneyard.planning.calibration.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.stats import kendalltau, spearmanr

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.planner_rows import Run, runs  # noqa: E402 -- found by the line above
from benchmarks.training_cases import write_page  # noqa: E402

from tuneyard.api import TrainTask  # noqa: E402
from tuneyard.catalog import gpu, shape_from_config  # noqa: E402
from tuneyard.planning import (  # noqa: E402
    DEFAULT,
    Calibration,
    Layout,
    Plan,
    Setup,
    best,
    calibrated,
    estimate_memory,
    estimate_speed,
    plans,
)
from tuneyard.planning.search import USABLE  # noqa: E402
from tuneyard.planning.sweep import sweep  # noqa: E402

SKUS = ("a100-80gb", "h100-80gb", "h200-141gb", "b200-180gb")
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LLAMA_405B = shape_from_config(
    {"model_type": "llama", "hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8}
    | {"intermediate_size": 53248, "vocab_size": 128256}
)
LLAMA_70B = shape_from_config(
    {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}
    | {"intermediate_size": 28672, "vocab_size": 32000, "max_position_embeddings": 4096}
)
LLAMA_7B = shape_from_config(
    {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32}
    | {"intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096}
)
FITTED_ON = {"llama-1B", "llama-3B", "mpt-125m", "mpt-350m", "mpt-760m", "mpt-1b", "mpt-3b", "mpt-7b"}


def main() -> None:
    known = runs()
    write_page("planner", "The planner", [*_search_lines(), *_memory_lines(), *_network_lines(), *_speed_lines(known)])


def _search_lines() -> Iterator[str]:
    task = TrainTask.model_validate({"model": {"name": "m"}, "data": {"source": "d", "maxLength": 8192}, "batch": {"global": 512}})
    times, found = [], list[Plan]()
    for _ in range(5):
        started = time.process_time()
        found = [plan for sku in SKUS for count in COUNTS for plan in _plans(task, sku, count)]
        times.append(time.process_time() - started)
    yield from (
        "## Time of a search",
        "",
        "Full fine-tuning of Llama-3.1-405B, rows of 8,192 tokens, 512 of them a step, on 4 SKUs x 10 numbers of GPUs (1 to 512), tensor",
        "parallelism 1 to 8, pipelines of 1 to 16 stages, ZeRO 0 to 3, with and without recomputation. Aim: under 1 s of CPU time.",
        "",
        f"**{times[0]:.2f} s** for the first, {min(times):.2f} to {max(times):.2f} s over {len(times)} searches; {len(found)} plans fit.",
        "",
        "| SKU | GPUs | plans | best: ZeRO | tensor x pipeline | micro-batch x accumulation | memory, GB | tokens/s/GPU | MFU |",
        "|---|---:|---:|---:|---|---|---:|---:|---:|",
    )
    for sku in SKUS:
        for count in (128, 512):
            here = [plan for plan in found if (plan.sku, plan.workers) == (sku, count)]
            if here:
                yield _best_row(sku, count, here)
    yield ""


def _plans(task: TrainTask, sku: str, count: int) -> list[Plan]:
    return plans(
        task,
        LLAMA_405B,
        gpu(sku),
        count,
        flash_available=True,
        liger_available=True,
        tensor_parallel=(1, 2, 4, 8),
        pipeline_parallel=(1, 2, 4, 8, 16),
    )


def _best_row(sku: str, count: int, here: Sequence[Plan]) -> str:
    plan = best(here)
    assert plan.speed is not None
    recompute = ", recompute" if plan.recompute else ""
    return (
        f"| {sku} | {count} | {len(here)} | {plan.zero}{recompute} | {plan.tensor_parallel} x {plan.pipeline_parallel} | "
        f"{plan.micro_batch} x {plan.grad_accum} | {plan.memory.total_gb:.0f} | {plan.speed.tokens_per_s_per_gpu:.0f} | "
        f"{100 * plan.speed.mfu:.0f}% |"
    )


def _memory_lines() -> Iterator[str]:
    yield from (
        "## Llama-2-70B on 32 A100-80GB",
        "",
        "Full fine-tuning in bf16 under ZeRO-3, 4 GPUs in a machine. Published (Uber, *Open Source and In-House: How Uber Optimizes LLM",
        "Training*, 2024; neither sequence length nor recomputation is named): offloading the optimizer takes at least 34 % less GPU",
        "memory, flash attention half, and the micro-batch can be 2 to 7 times as large.",
        "",
        "| tokens | attention | optimizer | GB at micro-batch 1 | largest micro-batch | tokens/s/GPU there |",
        "|---:|---|---|---:|---:|---:|",
    )
    for length in (2048, 4096):
        for attention, place in _CASES:
            case = _case(length, attention, place)
            largest = _largest(case)
            speed = estimate_speed(_at(case, largest)).tokens_per_s_per_gpu if largest else 0.0
            yield (
                f"| {length} | {attention} | {'on the host' if place == 'cpu' else 'on the GPU'} | {_total(case, 1):.1f} | "
                f"{largest} | {speed:.0f} |"
            )
    yield from ("", "All with recomputation: without it, not one row fits. What that comes to:", "", "| | 2,048 | 4,096 | published |")
    yield "|---|---:|---:|---|"
    rows: tuple[tuple[str, Callable[[int], str], str], ...] = (
        ("offload, micro-batch 1", lambda n: _less(n, 1, ("flash", "none"), ("flash", "cpu")), "at least 34 % less"),
        ("offload, largest micro-batch without it", lambda n: _less(n, None, ("flash", "none"), ("flash", "cpu")), ""),
        (
            "flash, largest micro-batch without it, optimizer on the GPU",
            lambda n: _less(n, None, ("eager", "none"), ("flash", "none")),
            "half",
        ),
        ("the same, optimizer on the host", lambda n: _less(n, None, ("eager", "cpu"), ("flash", "cpu")), ""),
        ("the same, activations alone", _activations_less, ""),
        ("largest micro-batch, flash", lambda n: _times(n, ("eager", "none"), ("flash", "none")), "2 to 7 times"),
        ("largest micro-batch, offload", lambda n: _times(n, ("flash", "none"), ("flash", "cpu")), ""),
        ("largest micro-batch, both", lambda n: _times(n, ("eager", "none"), ("flash", "cpu")), ""),
    )
    for words, of, published in rows:
        yield f"| {words} | {of(2048)} | {of(4096)} | {published} |"
    yield from (
        "",
        "Offload: the states, 12 bytes a parameter, are 26 GB of each GPU whatever the batch, so that their share depends on how full the",
        "GPU is otherwise; at the largest batch that it holds with them, the share is just above the published bound. Flash: what it saves",
        "is the quadratic part, under recomputation the scores of one layer. That is 31 % of the activations at 2,048 tokens, 47 % at",
        "4,096, and a smaller share of the whole, in which weights and states stay. Half of the whole would need longer rows, or the",
        "scores of several layers. The largest micro-batches of the two together grow as published; flash alone gives less at 2,048.",
        "",
    )


_NETWORKS = ((None, "default"), (25.0, "25"), (10.0, "10"), (3.0, "3"))
_HOSTS = (
    ("70B", LLAMA_70B, "a100-80gb", 32, 4),
    ("70B", LLAMA_70B, "h100-80gb", 32, 8),
    ("7B", LLAMA_7B, "a100-80gb", 8, 4),
    ("7B", LLAMA_7B, "h100-80gb", 8, 8),
)


def _network_lines() -> Iterator[str]:
    yield from (
        "## Offloading and flash attention by network",
        "",
        "Full fine-tuning of Llama-2 in bf16 under ZeRO-3, rows of 4,096 tokens, each combination at its largest micro-batch",
        "without accumulation, as `tuneyard plan --sweep offload,flash` shows it. GB/s are those of a machine; the default is a",
        "network card for each GPU (25 GB/s for an A100, 50 GB/s for an H100). The machines are the source's: 4 A100 or 8 H100.",
        "",
        "| model | GPUs | GB/s | plain: MFU | flash | offload | both | both, times plain | both, times flash |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    )
    for name, shape, sku, workers, per_node in _HOSTS:
        for network, words in _NETWORKS:
            fields = {"model": {"name": "m"}, "data": {"source": "d", "maxLength": 4096}, "method": {"full": {}}, "strategy": {"zero": 3}}
            task = TrainTask.model_validate(fields)
            cases = list(sweep(("offload", "flash"), task, shape, gpu(sku), workers, gpus_per_node=per_node, network_gb_s=network))
            plain, flash, offload, both = (case.plan.speed for case in cases if case.plan is not None and case.plan.speed is not None)
            shares = " | ".join(f"{100 * each.mfu:.0f}%" for each in (plain, flash, offload, both))
            times = (both.tokens_per_s / each.tokens_per_s for each in (plain, flash))
            yield f"| {name} | {workers} {sku} | {words} | {shares} | {' | '.join(f'{each:.2f}' for each in times)} |"
    yield from (
        "",
        "Published for 70B on 32 A100 (the source above): with the optimizer on the host, the batch is 3 to 4 times as large, and",
        "the throughput 2 to 3 times. Batches agree: 4 times from plain to both. The throughput depends on the network. At 10 and 3",
        "GB/s, the rates that the source saw used, it is 3.3 and 3.7 times that of plain, and 1.7 and 1.9 times that of flash",
        "attention alone. With a card for each GPU no step waits for the network, and offloading costs 2 to 9 % beside flash",
        "attention. 7B gains nothing from offloading on one machine: its states are a small part of eight GPUs.",
        "",
    )


_Attention = Literal["eager", "flash"]
_Place = Literal["none", "cpu"]
_CASES: tuple[tuple[_Attention, _Place], ...] = (("eager", "none"), ("eager", "cpu"), ("flash", "none"), ("flash", "cpu"))


def _case(length: int, attention: _Attention, place: _Place) -> Setup:
    layout = Layout(
        workers=32,
        zero=3,
        precision="bf16",
        attention=attention,
        micro_batch=1,
        seq_len=length,
        recompute=True,
        offload_optimizer=place,
    )
    return Setup(shape=LLAMA_70B, gpu=gpu("a100-80gb"), layout=layout, gpus_per_node=4)


def _at(case: Setup, micro: int) -> Setup:
    return replace(case, layout=replace(case.layout, micro_batch=micro))


def _total(case: Setup, micro: int) -> float:
    return estimate_memory(_at(case, micro)).device.total_gb


def _largest(case: Setup) -> int:
    micro = 0
    while _total(case, micro + 1) <= USABLE * case.gpu.memory_gb:
        micro += 1
    return micro


def _less(length: int, micro: int | None, without: tuple[_Attention, _Place], with_: tuple[_Attention, _Place]) -> str:
    before, after = _case(length, *without), _case(length, *with_)
    rows = micro or _largest(before)
    return f"{100 * (1 - _total(after, rows) / _total(before, rows)):.0f} % less"


def _activations_less(length: int) -> str:
    before, after = _case(length, "eager", "cpu"), _case(length, "flash", "cpu")
    rows = _largest(before)
    held = [estimate_memory(_at(case, rows)).device.activations_gb for case in (before, after)]
    return f"{100 * (1 - held[1] / held[0]):.0f} % less"


def _times(length: int, without: tuple[_Attention, _Place], with_: tuple[_Attention, _Place]) -> str:
    return f"{_largest(_case(length, *with_)) / _largest(_case(length, *without)):.1f} times"


def _speed_lines(known: Sequence[Run]) -> Iterator[str]:
    yield from (
        "## Speed beside published runs",
        "",
        "Tokens per second and GPU, predicted without having seen any history. Aim: Kendall 0.75 on nanotron's runs, as an analytic model.",
        "The few constants were fitted on 220 of nanotron's runs with 1B and 3B and on llm-foundry's up to 7B; what was chosen by eye",
        "beside other sources, `planning.calibration` says: the network's share, and the figures of Megatron-LM's engine.",
        "Rank correlations are within a source; errors are of |predicted / measured - 1|; bias is the median of predicted / measured.",
        "",
        "| source | what | rows | Kendall | Spearman | median error | p90 | bias |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    )
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in known:
        held_out = "models in the fit" if run.model in FITTED_ON else "not in the fit"
        groups.setdefault((run.source, held_out), []).append(run)
    for (source, what), group in sorted(groups.items()):
        yield _accuracy(source, what, group)
    nanotron = [run for run in known if run.source == "hf-ultrascale-playbook"]
    yield _accuracy("hf-ultrascale-playbook", "**all**", nanotron)
    for label, low, high in (("8 to 16 GPUs", 8, 16), ("32 to 128 GPUs", 32, 128), ("256 and 512 GPUs", 256, 512)):
        yield _accuracy("hf-ultrascale-playbook", label, [run for run in nanotron if low <= run.setup.layout.workers <= high])
    small, large = ([run for run in nanotron if (run.model == "llama-8B") == unseen] for unseen in (False, True))
    learned = calibrated([(run.setup, run.tokens_per_s_per_gpu) for run in small])
    yield _accuracy("hf-ultrascale-playbook", "8B, after `calibrated` on 1B and 3B", large, learned)
    stalled = [run for run in nanotron if 1.0 < _micro_batch_s(run) < 2.2 and run.setup.layout.micro_batch <= 16]
    many = [run for run in nanotron if run.setup.layout.workers >= 256]
    yield from (
        "",
        f"Where it is wrong: {len(stalled)} of nanotron's {len(nanotron)} runs took 1.0 to 2.2 s for every micro-batch of up to 16 rows,",
        f"whatever its size ({sum(run in stalled for run in many)} of the {len(many)} on 256 and 512 GPUs, few on 8 and 16), often 10 to",
        "50 times what the same layout took on more or fewer machines. Nothing in a row tells which; a slow machine in the partition would",
        "look like that. The planner does not expect it.",
        "",
        "Not here: rows in FP8 (all dense ones of megatron-bridge, MLPerf's on NVIDIA), which this project does not train in; litgpt's,",
        "which name neither model dimensions nor tokens/s; mixtures of experts and GPTQ of fms-acceleration.",
    )


def _accuracy(source: str, what: str, group: Iterable[Run], calibration: Calibration = DEFAULT) -> str:
    pairs = np.array([(estimate_speed(r.setup, calibration).tokens_per_s_per_gpu, r.tokens_per_s_per_gpu) for r in group])
    ratio = pairs[:, 0] / pairs[:, 1]
    error = np.abs(ratio - 1)
    return (
        f"| {source} | {what} | {len(pairs)} | {kendalltau(*pairs.T).statistic:.3f} | {spearmanr(*pairs.T).statistic:.3f} | "
        f"{100 * np.median(error):.0f}% | {100 * np.quantile(error, 0.9):.0f}% | {np.median(ratio):.2f} |"
    )


def _micro_batch_s(run: Run) -> float:
    layout = run.setup.layout
    rows = layout.micro_batch * layout.data_parallel
    return rows * layout.seq_len / (run.tokens_per_s_per_gpu * layout.workers)


if __name__ == "__main__":
    main()
