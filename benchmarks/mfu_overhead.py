"""What measuring costs: Tuneyard's trainer against transformers' own, the same steps, in turns; and the measuring code alone.

`python benchmarks/mfu_overhead.py [--rounds 3]`: writes docs/benchmarks/mfu_overhead.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from training_cases import request_of, task_of, write_material, write_page
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback

from tuneyard.data import Order
from tuneyard.tracking.events import silent
from tuneyard.training.arguments import training_arguments
from tuneyard.training.collate import Collator
from tuneyard.training.distributed import World
from tuneyard.training.flops import flops_of
from tuneyard.training.ledger import Ledger
from tuneyard.training.order import Batches
from tuneyard.training.progress import Progress
from tuneyard.training.stop import StopRequest
from tuneyard.training.throughput import Throughput
from tuneyard.training.trainer import SteppedTrainer

STEPS = 20
WARM = 4
ROWS, LENGTH = 64, 96


class StepTimes(TrainerCallback):
    """CPU time from the end of one step to the end of the next: with one thread, the wall time of a machine that does nothing else."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.process_time())

    def median_s(self) -> float:
        return statistics.median(b - a for a, b in zip(self.ends[WARM:], self.ends[WARM + 1 :], strict=False))


class BareTrainer(Trainer):
    """transformers' Trainer, with the same batches and nothing measured."""

    batches: Batches

    def get_train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.train_dataset, batch_sampler=self.batches, collate_fn=self.data_collator)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        batches = [next(epoch_iterator) for _ in range(num_batches)]
        for batch in batches:
            batch.pop("tokens"), batch.pop("squares")
        return batches, self._get_num_items_in_batch(batches, device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model, text = write_material(Path(folder))
        task = task_of(model, text, steps=STEPS)
        setting = (Path(folder), model, task)
        bare, again, measured, alone = [], [], [], []
        for _ in range(rounds):
            # The measured run stands between two bare ones, whose difference is what this machine cannot tell apart.
            bare.append(_bare(*setting))
            step_s, own_s = _measured(*setting)
            measured.append(step_s)
            alone.append(own_s)
            again.append(_bare(*setting))
    around = [(a + b) / 2 for a, b in zip(bare, again, strict=True)]
    ratios = [m / b for m, b in zip(measured, around, strict=True)]
    control = [b / a for a, b in zip(bare, again, strict=True)]
    share = statistics.median(alone) / statistics.median(around)
    lines = [
        "Median CPU time of a step (4 x 2 rows of 96 tokens, 6 million parameters, fp32, one thread);",
        f"{rounds} rounds of three runs (bare, measured, bare), {STEPS} steps each, the first {WARM} left out.",
        "",
        "| | |",
        "|---|---|",
        f"| transformers' Trainer | {statistics.median(around) * 1e3:.1f} ms |",
        f"| Tuneyard's trainer and ledger | {statistics.median(measured) * 1e3:.1f} ms |",
        f"| their ratio, by round | {_listed(ratios)} |",
        f"| control: the second bare run to the first, by round | {_listed(control)} |",
        f"| CPU time in the measuring code itself (marks, account, rates, event) | {statistics.median(alone) * 1e3:.3f} ms per step |",
        f"| its share of a step | {share:.2%} |",
        "",
        "The share is what measuring costs; asked for: under 1 %. The ratios can show no more than the control does: two runs of the same",
        "code differ by that much on this machine.",
    ]
    write_page("mfu_overhead", "Overhead of measuring", lines)
    if share > 0.01:
        raise SystemExit(1)


def _listed(ratios: list[float]) -> str:
    return ", ".join(f"{ratio:.3f}" for ratio in ratios)


def _parts(folder: Path, model: Path, task: Any) -> dict[str, Any]:
    arguments = training_arguments(task, request_of(folder, task).plan, steps=STEPS, scratch=folder)
    generator = torch.Generator().manual_seed(0)
    rows = [{"input_ids": torch.randint(2, 380, (LENGTH,), generator=generator).tolist()} for _ in range(ROWS)]
    return {
        "model": AutoModelForCausalLM.from_pretrained(model),
        "args": arguments,
        "data_collator": Collator(pad_token_id=1),
        "train_dataset": [{**row, "labels": row["input_ids"]} for row in rows],
    }


def _batches() -> Batches:
    return Batches(rows_at=Order(ROWS).at_each, micro_batch=2, grad_accum=4, rank=0, workers=1, start=0, stop=STEPS)


def _bare(folder: Path, model: Path, task: Any) -> float:
    times = StepTimes()
    trainer = BareTrainer(**_parts(folder, model, task), callbacks=[times])
    trainer.batches = _batches()
    trainer.train()
    return times.median_s()


def _measured(folder: Path, model: Path, task: Any) -> tuple[float, float]:
    times, progress = StepTimes(), Progress()
    trainer = SteppedTrainer(**_parts(folder, model, task), callbacks=[times])
    throughput = Throughput(progress, flops_of(task, trainer.model.config), peak_flops=1e11)
    ledger = TimedLedger(
        task="t",
        steps=STEPS,
        precision="fp32",
        world=World(0, 1, 0, 1, torch.device("cpu")),
        progress=progress,
        throughput=throughput,
        emit=silent,
    )
    ledger.attach(trainer, StopRequest())
    trainer.prepare_run(_batches(), load=lambda: None, save=lambda _: None, on_lap=ledger.on_lap, on_evaluation=lambda *_: None)
    mark, spent = trainer.watch.mark, [0.0]

    def timed_mark(phase: Any) -> None:
        began = time.process_time()
        mark(phase)
        spent[0] += time.process_time() - began

    trainer.watch.mark = timed_mark  # type: ignore[method-assign]
    trainer.add_callback(ledger)
    trainer.train()
    return times.median_s(), (spent[0] + sum(ledger.spent[2 * WARM :]) * STEPS / (STEPS - WARM)) / STEPS


class TimedLedger(Ledger):
    """The ledger, and the time that each call of it takes."""

    spent: list[float]

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
        began = time.process_time()
        answer = super().on_step_end(args, state, control, **others)
        self.spent = [*getattr(self, "spent", []), time.process_time() - began]
        return answer

    def on_lap(self, lap: Any) -> None:
        began = time.process_time()
        super().on_lap(lap)
        self.spent = [*self.spent, time.process_time() - began]


if __name__ == "__main__":
    main()
