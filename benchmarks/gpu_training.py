"""Memory, tokens/s and MFU on NVIDIA GPUs: a 1B- and an 8B-shaped model, full, LoRA and QLoRA, flash against eager, with and without
optimizer offload.

`python benchmarks/gpu_training.py`: one GPU, random weights, packed rows of 2,048 tokens; writes docs/benchmarks/gpu_training.md.
Prints "not measured: no GPU" where there is none.
"""

from __future__ import annotations

import gc
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from training_cases import task_of, write_page

from tuneyard.api import TuneyardError
from tuneyard.catalog import local_sku
from tuneyard.planning import Plan
from tuneyard.training import TrainRequest, train

SHAPES = {
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
}
METHODS: dict[str, dict[str, Any]] = {"full": {"full": {}}, "lora": {"lora": {"rank": 16}}, "qlora": {"qlora": {"rank": 16}}}
LENGTH = 2048
STEPS = 12


@dataclass(frozen=True)
class Case:
    shape: str
    method: str
    attention: str
    offload: str = "none"

    @property
    def name(self) -> str:
        return f"{self.shape} | {self.method} | {self.attention} | {self.offload}"


CASES = (
    *(Case(shape, method, attention) for shape in SHAPES for method in METHODS for attention in ("flash", "sdpa", "eager")),
    *(Case(shape, "full", "sdpa", "cpu") for shape in SHAPES),
)


def main() -> None:
    if not torch.cuda.is_available():
        print("not measured: no GPU")
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = [f"| {case.name} | {_measure(case, Path(folder))} |" for case in CASES]
    lines = [
        f"{STEPS} steps of 4 packed rows of {LENGTH} tokens, bf16, recomputation on, one GPU; the first step is left out of the rates.",
        "",
        "| shape | method | attention | optimizer offload | tokens/s | MFU | peak memory, GB |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    write_page("gpu_training", "Training on a GPU", lines)


def _measure(case: Case, folder: Path) -> str:
    model = folder / case.shape
    if not model.exists():
        _write_model(model, SHAPES[case.shape])
    text = folder / "text.jsonl"
    text.write_text("".join(json.dumps({"text": f"{i} " * 4 * LENGTH}) + "\n" for i in range(64)))
    data = {"source": str(text), "maxLength": LENGTH, "pack": True}
    task = task_of(model, text, method=METHODS[case.method], steps=STEPS, data=data, batch={"global": 4})
    plan = Plan(
        sku=local_sku(), workers=1, zero=2 if case.offload != "none" else 0, offload_optimizer=case.offload, recompute=True,
        precision="bf16", attention=case.attention, micro_batch=2, grad_accum=2,
    )  # fmt: skip
    run = folder / case.name.replace(" | ", "-")
    request = TrainRequest(
        job="gpu", name="train", task=task, plan=plan, model_uri=str(model), output=str(run / "out"), scratch=str(run / "scratch")
    )
    try:
        result = train(request)
    except (TuneyardError, ImportError) as error:
        return f"not measured: {str(error).splitlines()[0][:120]} | |"
    finally:
        gc.collect()
        torch.cuda.empty_cache()
    return f"{result.tokens_per_s:,.0f} | {result.mfu:.1%} | {max(result.peak_memory_gb):.1f}"


def _write_model(folder: Path, shape: dict[str, int]) -> None:
    """Random weights, made in bf16 on the GPU: only their shape matters for speed."""
    from tests.builders.models import tiny_config, write_tokenizer
    from transformers import AutoModelForCausalLM

    config = tiny_config(**shape, max_position_embeddings=LENGTH, vocab_size=128_256, dtype="bfloat16")
    with torch.device("cuda"):
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    write_tokenizer(folder)


if __name__ == "__main__":
    main()
