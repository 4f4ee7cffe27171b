"""Training on preference pairs beside TRL's DPOTrainer, in turns in one process: the time of a step. Losses: trl_losses_of_pairs.py.

`python benchmarks/preference_peer.py [--rounds 3]`: writes docs/benchmarks/preference_peer.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
from peft import LoraConfig, get_peft_model
from training_cases import ROOT, request_of, task_of, write_page
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback, set_seed
from trl import DPOConfig, DPOTrainer

sys.path.insert(0, str(ROOT))

from tests.builders.models import sentences, write_model

from tuneyard.tracking.events import Event, Step
from tuneyard.training import train

STEPS, WARM = 6, 2
MICRO, ACCUMULATED, LENGTH, RATE, RANK = 2, 2, 512, 1e-4, 16
SHAPE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 3, "vocab_size": 8192, "max_position_embeddings": 1024}
METHODS: dict[str, dict[str, Any]] = {"full": {"full": {}}, "lora": {"lora": {"rank": RANK}}}


@dataclass(frozen=True)
class Case:
    """`prompt`, `answer`: sentences of each."""

    name: str
    prompt: int
    answer: int


CASES = (Case("long prompts, short answers", 12, 2), Case("short prompts, long answers", 2, 12))


@dataclass(frozen=True)
class Run:
    """CPU seconds of a step (median), and the losses."""

    step_s: float
    losses: list[float]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model", tie_word_embeddings=False, **SHAPE)
        speed = [_speed(Path(folder), model, case, method, rounds) for case in CASES for method in METHODS]
    write_page("preference_peer", "Preference pairs beside TRL", [*_about(rounds), *speed, *_ABOUT_TIME])


def _about(rounds: int) -> list[str]:
    return [
        f"A random Llama of 6 million parameters (3 layers, hidden width 256, 8,192 tokens), {ACCUMULATED} micro-batches of {MICRO} pairs",
        f"in a step, fp32, one thread, one process. {rounds} rounds of three runs (TRL, Tuneyard, TRL), {STEPS} steps each, the first",
        f"{WARM} left out. The ratio is TRL's median CPU time of a step (the mean of its two runs) over Tuneyard's: above 1, Tuneyard is",
        "faster. The control is TRL's first run over its second, which shows what this machine cannot tell apart.",
        "",
        "| rows | method | TRL | Tuneyard | ratio, median | least to most | control |",
        "|---|---|---|---|---|---|---|",
    ]


_ABOUT_TIME = [
    "",
    "Where the time goes, by TRL's source (1.16): on a CPU it scores all tokens, and takes entropies, mean logits and the best token",
    "from their logits. On GPUs it scores the tokens with loss alone, so the difference is smaller there; no GPU was at hand. Tuneyard",
    "computes the logits from the first answer of a micro-batch on.",
]


def _rows(case: Case) -> list[dict[str, str]]:
    texts = iter(sentences(STEPS * MICRO * ACCUMULATED * (case.prompt + 2 * case.answer)))

    def said(count: int) -> str:
        return " ".join(next(texts) for _ in range(count))

    return [
        {"prompt": said(case.prompt), "chosen": f" {said(case.answer)}", "rejected": f" {said(case.answer)}"}
        for _ in range(STEPS * MICRO * ACCUMULATED)
    ]


def _speed(folder: Path, model: Path, case: Case, method: str, rounds: int) -> str:
    theirs, ours, controls, ratios = [], [], [], []
    for _ in range(rounds):
        first, mine, second = _trl(folder, model, case, method), _tuneyard(folder, model, case, method), _trl(folder, model, case, method)
        theirs.append((first.step_s + second.step_s) / 2)
        ours.append(mine.step_s)
        ratios.append(theirs[-1] / mine.step_s)
        controls.append(first.step_s / second.step_s)
    return (
        f"| {case.name} | {method} | {statistics.median(theirs) * 1e3:.0f} ms | {statistics.median(ours) * 1e3:.0f} ms "
        f"| {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} | {min(controls):.2f} to {max(controls):.2f} |"
    )


class _Times(TrainerCallback):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.process_time())


def _median_s(ends: list[float]) -> float:
    return statistics.median(b - a for a, b in zip(ends[WARM - 1 :], ends[WARM:], strict=False))


def _tuneyard(folder: Path, model: Path, case: Case, method: str) -> Run:
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in _rows(case)))
    task = task_of(
        model,
        source,
        objective="dpo",
        method=METHODS[method],
        data={"source": str(source), "maxLength": LENGTH, "shuffle": False, "showSample": False},
        optimizer={"learningRate": RATE, "schedule": "constant", "warmup": 0},
        batch={"global": MICRO * ACCUMULATED},
        steps=STEPS,
    )
    ends: list[float] = []

    def emit(event: Event) -> None:
        if isinstance(event, Step):
            ends.append(time.process_time())

    with tempfile.TemporaryDirectory(dir=folder) as out:
        result = train(request_of(Path(out), task, micro_batch=MICRO, grad_accum=ACCUMULATED), emit=emit)
    gc.collect()
    return Run(_median_s(ends), result.losses)


def _trl(folder: Path, model: Path, case: Case, method: str) -> Run:
    times = _Times()
    start = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if method == "lora":
        set_seed(42)
        start = get_peft_model(start, LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
    arguments = DPOConfig(
        str(folder / "trl"),
        per_device_train_batch_size=MICRO,
        gradient_accumulation_steps=ACCUMULATED,
        max_steps=STEPS,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_length=LENGTH,
        logging_steps=1,
        train_sampling_strategy="sequential",
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    rows = datasets.Dataset.from_list(_rows(case))
    trainer = DPOTrainer(
        start, args=arguments, train_dataset=rows, processing_class=AutoTokenizer.from_pretrained(model), callbacks=[times]
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    gc.collect()
    return Run(_median_s(times.ends), losses)


if __name__ == "__main__":
    main()
