"""What the whole trainer costs: a task of Tuneyard beside transformers' own Trainer, on the same rows, step by step in turns.

`python benchmarks/trainer_overhead.py [--steps 120]`: writes docs/benchmarks/trainer_overhead.md.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from training_cases import request_of, task_of, write_material, write_page
from transformers import Trainer, TrainerCallback

from tuneyard.tracking.events import silent
from tuneyard.training import train
from tuneyard.training.trainer import SteppedTrainer

WARM = 10
CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "full, recomputation": {"strategy": {"recompute": True}},
    "LoRA": {"method": {"lora": {"rank": 8}}},
    "packed": {"data": {"pack": True}},
}


class Turns:
    """Two trainers that take turns, a step each. While one has its turn, the other waits."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {"tuneyard": [], "transformers": []}
        self._turn = {name: threading.Semaphore(0) for name in self.spent}
        self._began = 0.0

    def begin(self, name: str) -> None:
        self._turn[name].acquire()
        self._began = time.process_time()

    def end(self, name: str, other: str) -> None:
        self.spent[name].append(time.process_time() - self._began)
        self._turn[other].release()

    def open(self, name: str) -> None:
        self._turn[name].release()


class InTurn(TrainerCallback):
    """Ends the turn of a trainer at the end of each step. What the trainer does after a step falls into its next turn."""

    def __init__(self, turns: Turns, name: str, other: str, last: Callable[[], None] = lambda: None) -> None:
        """`last` is called after the last turn."""
        self._turns, self._name, self._other, self._last = turns, name, other, last

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        self._turns.end(self._name, self._other)
        if state.global_step < args.max_steps:
            self._turns.begin(self._name)
        else:
            self._last()


class PlainTrainer(Trainer):
    """transformers' Trainer. It reads the same micro-batches; its own collator pads rows of lists to tensors."""

    batches: Any

    def get_train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.train_dataset, batch_sampler=self.batches, collate_fn=_tensors)


def _tensors(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    widest = max(len(row["input_ids"]) for row in rows)
    names = [name for name in ("input_ids", "labels", "position_ids") if name in rows[0]]
    filled = {name: torch.full((len(rows), widest), -100 if name == "labels" else 0) for name in names}
    for at, row in enumerate(rows):
        for name in names:
            filled[name][at, : len(row[name])] = torch.from_numpy(np.asarray(row[name]))
    if "position_ids" not in filled:
        filled["attention_mask"] = torch.tensor([[int(token < len(row["input_ids"])) for token in range(widest)] for row in rows])
    else:  # the first token of a sample is not predicted from the sample before it
        filled["labels"][filled["position_ids"] == 0] = -100
    return filled


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    rows = [_row(name, fields, steps) for name, fields in CASES.items()]
    lines = [
        f"{steps} steps each (4 x 2 rows of up to 96 tokens, 6 million parameters, fp32, one thread), the first {WARM} left out.",
        "The two trainers take turns after each step, in one process. Each counts the processor time from one step to the next: batches,",
        "forward and backward pass, optimizer, and Tuneyard's accounts of phases, tokens, FLOPs and losses. `ratio` is the median",
        "over pairs of neighbouring steps. The last column is the largest difference between the losses of a step: both do the",
        "same work.",
        "",
        "| task | transformers, ms a step | Tuneyard, ms a step | ratio (aim 1.02) | half of the pairs lie in | losses differ by |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    write_page("trainer_overhead", "Overhead of the trainer", lines)


def _row(name: str, fields: dict[str, Any], steps: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        model, text = write_material(Path(folder))
        task = task_of(model, text, steps=steps, **{k: v for k, v in fields.items() if k != "data"})
        if "data" in fields:
            task = task_of(model, text, steps=steps, data={"source": str(text), "maxLength": 96, **fields["data"]})
        turns, plain, result = _in_turns(Path(folder), task, recompute="strategy" in fields)
    mine, theirs = turns.spent["tuneyard"][WARM:], turns.spent["transformers"][WARM:]
    ratios = sorted(a / b for a, b in zip(mine, theirs, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
    apart = max(abs(a - b) for a, b in zip(result.losses, plain, strict=True))
    row = (
        f"| {name} | {1e3 * statistics.median(theirs):.1f} | {1e3 * statistics.median(mine):.1f} | {statistics.median(ratios):.3f} "
        f"| {low:.3f} to {high:.3f} | {apart:.1e} |"
    )
    print(row, flush=True)
    return row


def _in_turns(folder: Path, task: Any, *, recompute: bool) -> tuple[Turns, list[float], Any]:
    turns, losses = Turns(), []
    prepare_run = SteppedTrainer.prepare_run

    def prepare_both(trainer: SteppedTrainer, batches: Any, *args: Any, **kwargs: Any) -> None:
        prepare_run(trainer, batches, *args, **kwargs)
        arguments = copy.deepcopy(trainer.args)
        arguments.logging_steps, arguments.logging_strategy = 1, "steps"
        plain = PlainTrainer(
            model=copy.deepcopy(trainer.model),
            args=arguments,
            train_dataset=_ListRows(trainer.train_dataset),
            callbacks=[InTurn(turns, "transformers", "tuneyard")],
        )
        plain.batches = batches

        def train_plain() -> None:
            torch.set_num_threads(1)
            turns.begin("transformers")
            plain.train()
            losses.extend(entry["loss"] for entry in plain.state.log_history if "loss" in entry)

        thread = threading.Thread(target=train_plain)
        # Both use the state of accelerate, of which a process has one; the run resets it at its end.
        trainer.add_callback(InTurn(turns, "tuneyard", "transformers", last=thread.join))
        thread.start()

    request = request_of(folder, task, recompute=recompute)
    with patch.object(SteppedTrainer, "prepare_run", prepare_both):
        result = train(request, emit=silent)
    return turns, losses, result


class _ListRows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The prepared rows, one at a time, as transformers reads them."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return dict(self._rows[at])


if __name__ == "__main__":
    main()
