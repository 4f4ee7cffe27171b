"""What DeepSpeed pins for an offload is what the planner counts: the blocks of real runs, recorded where a GPU run pins them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, train_request, train_task, write_model, write_text

from tuneyard.catalog import gpu, shape_from_folder
from tuneyard.planning import Layout, Setup, estimate_memory
from tuneyard.training import train


@pytest.mark.parametrize(
    "layout",
    [{"zero": 2}, {"zero": 2, "micro_batch": 8, "grad_accum": 1}, {"zero": 3}, {"zero": 3, "offload_parameters": "cpu"}],
    ids=["2", "2 at once", "3", "3 with parameters"],
)
def test_pinned_blocks_are_those_of_the_plan(layout: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    blocks: list[int] = []

    def pin(_: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001 - DeepSpeed's signature
        blocks.append(tensor.numel() * tensor.element_size())
        return tensor

    monkeypatch.setattr(CPU_Accelerator, "pin_memory", pin)
    model, text = write_model(tmp_path / "model", hidden_size=96, intermediate_size=200), write_text(tmp_path / "text.jsonl")
    plan = cpu_plan(offload_optimizer="cpu", **layout)
    train(train_request(tmp_path, train_task(model, text, steps=2), plan))

    pinned = sum(1 << (size - 1).bit_length() for size in blocks if size)
    shape = shape_from_folder(model)
    known = Layout(workers=1, zero=plan.zero, precision="fp32", attention="sdpa", micro_batch=plan.micro_batch, seq_len=64)
    known = replace(known, grad_accum=plan.grad_accum, offload_optimizer="cpu", offload_parameters=plan.offload_parameters)
    task = train_task(model, text)
    planned = estimate_memory(Setup.of(task, shape, gpu("h100-80gb"), known)).host_gb * 1e9
    not_pinned = shape.parameters * (8 if plan.zero == 2 else 12)  # both means; with ZeRO 3 the masters too
    assert pinned == pytest.approx(planned - not_pinned, rel=0.05)
