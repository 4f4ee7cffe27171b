"""Analytic FLOPs against torch's FlopCounterMode and DeepSpeed's flops profiler: prints a table, and writes docs/benchmarks/flops.md.

python benchmarks/flops.py [--out docs/benchmarks/flops.md]
"""

from __future__ import annotations

import argparse
import datetime
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from deepspeed.profiling.flops_profiler import FlopsProfiler
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from tuneyard.api import Method
from tuneyard.catalog import forward_flops, shape_from_config, train_flops

ROWS, SEQ_LEN, RANK = 2, 64, 8
DIMENSIONS = {
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 704,
    "vocab_size": 2048,
    "pad_token_id": 0,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": DIMENSIONS,
    "mixtral": {**DIMENSIONS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {"n_embd": 256, "n_head": 8, "n_layer": 3, "n_positions": 256, "vocab_size": 2048, "bos_token_id": 0, "eos_token_id": 0},
    "qwen2": DIMENSIONS,
    "qwen3": {**DIMENSIONS, "head_dim": 32},
    "gemma2": {**DIMENSIONS, "head_dim": 32},
    "gpt_neox": {**DIMENSIONS, "bos_token_id": 0, "eos_token_id": 0},
}
METHODS = ("full", "lora", "dora")


@dataclass(frozen=True)
class Comparison:
    """FLOPs of one forward and backward pass, and of its forward pass alone, as computed here and as counted."""

    model: str
    method: str
    recompute: bool
    analytic_model: float
    analytic: float
    counted: float
    analytic_forward: float
    deepspeed_forward: float

    @property
    def error(self) -> float:
        """Relative difference from FlopCounterMode of what is executed."""
        return self.analytic / self.counted - 1

    @property
    def forward_error(self) -> float:
        """Relative difference from DeepSpeed's profiler, forward."""
        return self.analytic_forward / self.deepspeed_forward - 1


def cases() -> list[tuple[str, str, bool]]:
    """Model, method and recomputation of each comparison. DoRA for two: it differs from LoRA in one term."""
    return [(m, how, again) for m in MODELS for how in METHODS for again in (False, True) if how != "dora" or m in ("llama", "gpt2")]


def compare(name: str, method: str, recompute: bool) -> Comparison:
    """Builds the model, runs one step of it under both counters, and computes the same from its shape.

    Eager attention and eager experts: the counters see neither into the fused attention of a CPU nor into grouped matmuls there.
    """
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **MODELS[name])
    experts = {"experts_implementation": "eager"} if name == "mixtral" else {}
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", **experts)
    if method != "full":
        model = get_peft_model(model, LoraConfig(r=RANK, target_modules="all-linear", use_dora=method == "dora", task_type="CAUSAL_LM"))
    model.train()
    tokens = torch.randint(1, 2048, (ROWS, SEQ_LEN))
    forward = _deepspeed_forward(model, tokens)
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens, labels=tokens).loss.backward()
    shape = shape_from_config(config.to_dict())
    chosen = Method.model_validate({method: {} if method == "full" else {"rank": RANK}})
    ours = train_flops(shape, tokens=ROWS * SEQ_LEN, seq_len=SEQ_LEN, method=chosen, recompute=recompute)
    ours_forward = forward_flops(
        shape, prompt_lengths=[SEQ_LEN] * ROWS, output_lengths=[0] * ROWS, adapter=chosen.adapter, prompt_logits=True
    )
    return Comparison(name, method, recompute, ours.model, ours.hardware, counter.get_total_flops(), ours_forward, forward)


def _deepspeed_forward(model: Any, tokens: torch.Tensor) -> float:
    """Twice the multiply-adds that the profiler sees. Its own FLOPs add elementwise work, which MFU does not count."""
    profiler = FlopsProfiler(model)
    profiler.start_profile()
    with torch.no_grad():
        model(input_ids=tokens, use_cache=False)
    multiply_adds = profiler.get_total_macs()
    profiler.end_profile()
    return 2.0 * multiply_adds


def table(found: list[Comparison]) -> str:
    lines = [
        "| model | method | recompute | model GFLOPs | hardware GFLOPs | FlopCounterMode | error | forward GFLOPs | DeepSpeed | error |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for c in found:
        giga = [value / 1e9 for value in (c.analytic_model, c.analytic, c.counted, c.analytic_forward, c.deepspeed_forward)]
        model, hardware, counted, forward, deepspeed = (f"{value:.3f}" for value in giga)
        recompute = "yes" if c.recompute else "no"
        cells = [c.model, c.method, recompute, model, hardware, counted, f"{c.error:+.2%}", forward, deepspeed, f"{c.forward_error:+.2%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


PAGE = """# Analytic FLOPs against two counters

`python benchmarks/flops.py`, {date}, {machine}: torch {torch}, transformers {transformers}, PEFT {peft}, DeepSpeed {deepspeed}.

One forward and backward pass over {rows} rows of {seq_len} tokens; hidden 256, 3 layers, rank {rank} on all-linear. *Hardware* is what is
executed, recomputation included, and is compared with FlopCounterMode. *Model* is what the maths needs, by which MFU is computed.
*Forward* is the forward pass alone, compared with twice the multiply-adds that DeepSpeed's profiler sees.
Conventions, and why the columns differ: [MFU](../mfu.md).

{table}

Largest error against FlopCounterMode: {worst:.2%}; against DeepSpeed: {worst_forward:.2%} without the cases below.

- DeepSpeed's profiler counts forward passes only, so recomputation does not show in its column.
- LoRA on Mixtral's fused experts: PEFT folds the adapters into whole weight matrices in each pass. FlopCounterMode and *hardware* hold
  that; *model* and *forward* count the two thin matmuls per token that the maths needs.
- DoRA: PEFT computes the norm of whole weight matrices in each pass; *hardware* holds it, *model* and *forward* do not.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/flops.md"))
    found = [compare(*case) for case in cases()]
    # Where PEFT computes with whole weight matrices, DeepSpeed counts that, and the forward column does not.
    alike = [c for c in found if c.method != "dora" and (c.model, c.method) != ("mixtral", "lora")]
    page = PAGE.format(
        date=datetime.datetime.now(tz=datetime.UTC).date(),
        machine=f"{platform.machine()} CPU",
        **{package: version(package) for package in ("torch", "transformers", "peft", "deepspeed")},
        rows=ROWS,
        seq_len=SEQ_LEN,
        rank=RANK,
        table=table(found),
        worst=max(abs(c.error) for c in found),
        worst_forward=max(abs(c.forward_error) for c in alike),
    )
    parser.parse_args().out.write_text(page, encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
