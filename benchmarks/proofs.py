"""Cost of the proofs of a run: seconds, and peak memory of the process with them and without, for architectures of the zoo and one larger
model.

`python benchmarks/proofs.py`: a fork for each run; writes docs/benchmarks/proofs.md.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.builders.models import write_model, write_text, write_tokenizer
from tests.zoo.configs import tiny_config_of
from training_cases import request_of, task_of, write_page

import tuneyard.training.entry  # noqa: F401 - loaded before the forks
from tuneyard.training import train

KINDS = (
    *(
        "llama",
        "qwen2",
        "qwen3",
        "mistral",
        "gemma2",
        "gemma3_text",
        "phi3",
        "gpt2",
        "gpt_neox",
        "opt",
        "bloom",
        "falcon",
        "olmo2",
        "cohere",
    ),
    *("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "mamba", "falcon_h1"),
)
LARGER = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4}
MERGED: dict[str, Any] = {"lora": {"rank": 8, "merge": True}}


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = write_text(folder / "text.jsonl")
        for kind in KINDS:
            AutoModelForCausalLM.from_config(tiny_config_of(kind)).save_pretrained(folder / kind)
            write_tokenizer(folder / kind)
        write_model(folder / "llama of 12 layers", "llama", **LARGER)
        for kind in (*KINDS, "llama of 12 layers"):
            rows.append(_row(folder, folder / kind, text, kind))
            print(rows[-1], flush=True)
    lines = [
        "Two steps of LoRA with merge (fp32, global batch 8, rows of up to 64 tokens, one thread), each run in a process of its own.",
        "",
        "| model | parameters | before the first step, s | after the last, s | whole run, s | peak memory, GB | without proofs, GB |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        "The whole run includes loading, two steps, saving and merging. Memory is the peak of the process, with its libraries.",
    ]
    write_page("proofs", "Cost of the proofs", lines)


def _row(folder: Path, model: Path, text: Path, kind: str) -> str:
    proven, plain = (_measured(folder / f"{kind}-{proof}", model, text, proof) for proof in ("full", "skip"))
    seconds = [f"{proven[name]:.2f}" for name in ("before", "after", "wall")]
    return f"| {kind} | {proven['parameters'] / 1e6:.2f} M | {' | '.join(seconds)} | {proven['memory']:.2f} | {plain['memory']:.2f} |"


def _measured(folder: Path, model: Path, text: Path, proof: str) -> dict[str, float]:
    folder.mkdir()
    pid = os.fork()
    if pid == 0:
        result = train(request_of(folder, task_of(model, text, method=MERGED, steps=2, proof=proof), attention="eager"))
        found = result.details["proof"]
        parameters = sum(weight.numel() for weight in AutoModelForCausalLM.from_pretrained(model).parameters())
        values = {"before": found.get("seconds_before", 0.0), "after": found.get("seconds", 0.0), "wall": result.wall_s}
        (folder / "measured.json").write_text(json.dumps({**values, "memory": result.host_memory_gb[0], "parameters": parameters}))
        os._exit(0)
    os.waitpid(pid, 0)
    measured: dict[str, float] = json.loads((folder / "measured.json").read_text())
    return measured


if __name__ == "__main__":
    main()
