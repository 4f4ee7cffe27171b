"""`tuneyard verify` over ten models: trained, moved to another folder, compared, and trained again on one rank and on two.

`python benchmarks/verified_models.py`; writes docs/benchmarks/verified_models.md.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.builders.models import write_chats, write_tokenizer
from tests.zoo.configs import tiny_config_of
from training_cases import write_page

from tuneyard.training import command

MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama", {"full": {}}),
    ("llama", {"lora": {"rank": 4, "merge": True}}),
    ("qwen2", {"dora": {"rank": 4}}),
    ("gpt2", {"full": {}}),
    ("gemma3_text", {"lora": {"rank": 4}}),
    ("phi3", {"full": {}}),
    ("opt", {"lora": {"rank": 4}}),
    ("mixtral", {"full": {}}),
    ("qwen3_moe", {"lora": {"rank": 4}}),
    ("llama", {"qlora": {"rank": 4}}),
)


def main() -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = []
    with tempfile.TemporaryDirectory() as name:
        chats = write_chats(Path(name) / "chats.jsonl")
        for number, (kind, method) in enumerate(MODELS):
            rows.append(_row(Path(name), chats, number, kind, method))
            print(rows[-1], flush=True)
    lines = [
        "Each model is trained for 12 steps with a checkpoint every 4, and its run is moved to another folder. The seconds are processor",
        "seconds of the command and its ranks. Each process loads libraries for 5 to 8 of them.",
        "",
        "| model | method | compared, s | replay on 1 rank, s | result | replay on 2 ranks, s | result |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    write_page("verified_models", "Verified models", lines)


def _row(folder: Path, chats: Path, number: int, kind: str, method: dict[str, Any]) -> str:
    base, home = folder / kind, folder / str(number)
    if not base.exists():
        AutoModelForCausalLM.from_config(tiny_config_of(kind)).save_pretrained(base)
        write_tokenizer(base)
    home.mkdir()
    task = {
        "model": {"name": str(base)},
        "data": {"source": str(chats), "maxLength": 64},
        "method": method,
        "optimizer": {"learningRate": 1e-2},
        "batch": {"global": 8},
        "checkpoint": {"everySteps": 4},
        "steps": 12,
    }
    body = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "j"}}
    (home / "job.yaml").write_text(yaml.safe_dump({**body, "spec": {"tasks": [{"name": "train", "train": task}]}}))
    assert command.main([str(home / "job.yaml"), "--task", "train", "--out", str(home / "out")]) == 0
    moved = folder / f"moved-{number}"
    shutil.move(home / "out", moved)
    model = str(moved / "train" / "model")
    plain_s, _ = _verified(model)
    one_s, one = _verified(model, "--replay", "1", "--seed", "1")
    two_s, two = _verified(model, "--replay", "1", "--seed", "1", "--workers", "2")
    return f"| {kind} | {next(iter(method))} | {plain_s:.0f} | {one_s:.0f} | {one} | {two_s:.0f} | {two} |"


def _verified(model: str, *options: str) -> tuple[float, str]:
    """Processor seconds of the command and its ranks, and what the replay found. Fails if anything differs."""
    began = _processor_s()
    made = subprocess.run(
        [str(Path(sys.executable).parent / "tuneyard"), "verify", model, *options, "-o", "json"], capture_output=True, text=True
    )
    found = json.loads(made.stdout)
    assert made.returncode == 0, found
    return _processor_s() - began, next((each["words"] for each in found if each["about"] == "replay"), "")


def _processor_s() -> float:
    """Of all processes that this one has started and that have ended, with theirs."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


if __name__ == "__main__":
    main()
