"""What the planner of this tree says each case should show on a kind of GPU. Neither torch nor a GPU is needed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gpu.cases import CASES, Case

from tuneyard.catalog import gpu
from tuneyard.planning import DEFAULT, Setup, estimate_memory, estimate_speed
from tuneyard.planning.search import USABLE


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """`allocated_gb` is what `torch.cuda.max_memory_allocated` should show; `host_gb` is pinned memory of the host."""

    tokens_per_s: float
    mfu: float
    allocated_gb: float
    host_gb: float
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def predicted(case: Case, sku: str) -> Prediction:
    setup = Setup(shape=case.model_shape, gpu=gpu(sku), layout=case.planned, method=case.method_of_task)
    memory, speed = estimate_memory(setup), estimate_speed(setup, DEFAULT)
    return Prediction(
        tokens_per_s=speed.tokens_per_s,
        mfu=speed.mfu,
        allocated_gb=memory.allocated_gb,
        host_gb=memory.host_gb,
        fits=memory.device.total_gb <= USABLE * setup.gpu.memory_gb,
    )


def table_of(sku: str) -> str:
    """The predictions for a kind of GPU as a table of Markdown."""
    lines = ["| case | tokens/s | MFU | allocated, GB | host, GB | speed may be | memory may be |", "|---|---:|---:|---:|---:|---|---|"]
    for case in CASES:
        value = predicted(case, sku)
        host = f"{value.host_gb:.1f}" if value.host_gb else ""
        figures = f"{value.tokens_per_s:,.0f} | {value.mfu:.1%} | {value.allocated_gb:.1f} | {host}"
        lines.append(f"| {case.name} | {figures} | {_range(case.speed)} | {_range(case.memory)} |")
    return "\n".join(lines)


def _range(ratios: tuple[float, float]) -> str:
    return f"{ratios[0]:.2f} to {ratios[1]:.2f}"
