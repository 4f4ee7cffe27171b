"""Memory of a rank against the plan, for each mesh of data-parallel and tensor-parallel ranks and each ZeRO stage, on cpu.

`python benchmarks/mesh_memory.py`: fp32, full training, each layout in fresh forks; writes docs/benchmarks/mesh_memory.md.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.training_cases import task_of, write_material, write_page
from tests.builders.models import cpu_plan, train_request
from tests.ranks.groups import results_in_ranks

from tuneyard.catalog import ModelShape, gpu, shape_from_config
from tuneyard.planning import Layout, Setup, estimate_memory
from tuneyard.planning.tensor import rank_parameters

SHAPE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 4, "num_attention_heads": 12, "num_key_value_heads": 4}
MESHES = ((1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1))
"""(data-parallel replicas, tensor-parallel ranks of each)"""
GLOBAL_BATCH, TOKENS, STEPS = 4, 64, 2


@dataclass(frozen=True)
class Row:
    """Sizes in 1e9 bytes, of the fullest rank; `libraries_gb` is what it held before it loaded the model."""

    data: int
    tensor: int
    zero: int
    measured_gb: float
    libraries_gb: float
    planned_gb: float
    loss: float

    def text(self) -> str:
        model, plan = self.measured_gb - self.libraries_gb, self.planned_gb - self.libraries_gb
        return (
            f"| {self.data} x {self.tensor} | {self.zero} | {self.measured_gb:.2f} | {self.planned_gb:.2f} | "
            f"{self.planned_gb / self.measured_gb - 1:+.0%} | {model:.2f} | {plan:.2f} | {plan / model - 1:+.0%} | {self.loss:.4f} |"
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, text = write_material(folder, SHAPE)
        shape = shape_from_config(json.loads((model / "config.json").read_text()))
        rows: list[Row] = []
        for data, tensor in MESHES:
            for zero in (0, 1, 2):
                rows.append(row_of(folder / f"{data}-{tensor}-{zero}", model, text, shape, data, tensor, zero))
                print(rows[-1].text(), flush=True)
                write(rows, shape)


def write(rows: list[Row], shape: ModelShape) -> None:
    """The page with what has been measured, after each row."""
    errors = sorted(abs(row.planned_gb / row.measured_gb - 1) for row in rows)
    lines = [
        "Peak resident memory of the fullest rank, as reports have it (`peak_memory_gb`), beside `planning.estimate_memory`. A Llama shape "
        f"of {shape.parameters / 1e6:.0f} million parameters in fp32 ({shape.parameters * 4 / 1e9:.2f} GB), full training with AdamW, rows "
        f"of {TOKENS} tokens, global batch {GLOBAL_BATCH}, micro-batch 1, {STEPS} steps.",
        "",
        f"A rank of 2 holds {rank_parameters(shape, 2) / shape.parameters:.1%} of the parameters, one of 4 "
        f"{rank_parameters(shape, 4) / shape.parameters:.1%}. Libraries: what the rank held before it loaded the model, as measured in it.",
        "",
        "| data x tensor | ZeRO | measured, GB | planned, GB | | without libraries: measured | planned | | loss at the end |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
        *(row.text() for row in rows),
        "",
        f"Median difference {errors[len(errors) // 2]:.0%}, largest {errors[-1]:.0%}. {os.cpu_count()} cores, no GPU.",
    ]
    write_page("mesh_memory", "Memory per rank against the plan, for each mesh", lines)


def row_of(folder: Path, model: Path, text: Path, shape: ModelShape, data: int, tensor: int, zero: int) -> Row:
    workers, accum = data * tensor, GLOBAL_BATCH // data
    task = task_of(model, text, steps=STEPS, data={"source": str(text), "maxLength": TOKENS})
    plan = cpu_plan(workers=workers, zero=zero, tensor_parallel=tensor, micro_batch=1, grad_accum=accum)
    (result,) = results_in_ranks([train_request(folder, task, plan)], workers=workers)
    libraries = max(result.libraries_gb)
    layout = Layout(
        workers=workers,
        zero=zero,  # type: ignore[arg-type]
        precision="fp32",
        attention="sdpa",
        micro_batch=1,
        seq_len=TOKENS,
        grad_accum=accum,
        tensor_parallel=tensor,
    )
    estimate = estimate_memory(Setup.of(task, shape, gpu("cpu"), layout), libraries)
    measured = max(result.peak_memory_gb)
    return Row(data, tensor, zero, measured, libraries, estimate.device.total_gb, result.losses[-1])


if __name__ == "__main__":
    main()
