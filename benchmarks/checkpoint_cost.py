"""What saves and resumes cost: Tuneyard beside transformers' own, and asynchronous beside synchronous, in one run.

`python benchmarks/checkpoint_cost.py [--rounds 3]`: writes docs/benchmarks/checkpoint_cost.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.builders.models import cpu_plan, train_request, train_task, write_model, write_text
from training_cases import write_page

from tuneyard.data import Order
from tuneyard.storage import open_store
from tuneyard.tracking.events import Checkpointed, Event, Step
from tuneyard.training import train
from tuneyard.training.arguments import training_arguments
from tuneyard.training.checkpoint.checkpoints import Checkpoints
from tuneyard.training.collate import Collator
from tuneyard.training.order import Batches

SHAPE = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4}
STEPS, EVERY = 24, 4
POSITIONS = (1_000, 10_000, 100_000)
ROWS = 111_112
"""100,000 steps of one row are 90 % of an epoch."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)  # the second core is for the writer, as a GPU's host has cores to spare
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model", **SHAPE)
        write_model(folder / "small")
        write_text(folder / "text.jsonl", 256)
        write_page(
            "checkpoint_cost", "What checkpoints cost", [*_saves(folder, rounds), "", *_bytes(folder), "", *_resumes(folder, rounds)]
        )


# --- saving


def _saves(folder: Path, rounds: int) -> list[str]:
    ways: dict[str, Callable[[], tuple[float, float, float]]] = {
        "asynchronous": lambda: _ours(folder, wait=False),
        "synchronous (the same, waited for)": lambda: _ours(folder, wait=True),
        "transformers' Trainer (save_pretrained, torch.save)": lambda: _theirs(folder),
    }
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in list(ways) if number % 2 == 0 else list(ways)[::-1]:
            found[way].append(ways[way]())
    lines = [
        f"Training time lost to a save: {_parameters(folder):.1f} million parameters, fp32, one process, ZeRO 0, local disk;",
        f"{STEPS} steps, a save every {EVERY}; median of {rounds} rounds. Share: of the time of the {EVERY} steps between two saves.",
        "",
        "| | step, ms | blocked by a save, ms | share of step time | committed after, ms |",
        "|---|---|---|---|---|",
    ]
    for way, runs in found.items():
        step, blocked, committed = (statistics.median(run[i] for run in runs) * 1e3 for i in range(3))
        lines.append(f"| {way} | {step:.0f} | {blocked:.1f} | {blocked / (EVERY * step):.2%} | {committed:.0f} |")
    ours, waited, theirs = (statistics.median(run[1] for run in runs) for runs in found.values())
    lines += [
        "",
        "Steps of transformers' run are longer because its rows are.",
        f"Blocked time, synchronous to asynchronous: **{waited / ours:.1f}x**; transformers' to ours: **{theirs / ours:.1f}x**.",
    ]
    return lines


def _parameters(folder: Path) -> float:
    return sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(folder / "model").parameters()) / 1e6


def _ours(folder: Path, *, wait: bool) -> tuple[float, float, float]:
    """Seconds of a step without a save, blocked by one, and from its step to its commit."""
    out = folder / "ours"
    shutil.rmtree(out, ignore_errors=True)
    events: list[Event] = []
    save = Checkpoints.save

    def waited(self: Checkpoints, *args: Any, **kwargs: Any) -> None:
        save(self, *args, **{**kwargs, "wait": True})

    if wait:
        Checkpoints.save = waited  # type: ignore[method-assign]
    try:
        task = train_task(folder / "model", folder / "text.jsonl", steps=STEPS, checkpoint={"everySteps": EVERY})
        train(train_request(out, task, cpu_plan(micro_batch=2, grad_accum=4)), emit=events.append)
    finally:
        Checkpoints.save = save  # type: ignore[method-assign]
    steps = [event for event in events if isinstance(event, Step)][2:]
    blocked = [step.split.checkpoint_s for step in steps if step.step % EVERY == 0 and step.step < STEPS]
    plain = [step.step_s for step in steps if step.step % EVERY]
    commits = [event.seconds for event in events if isinstance(event, Checkpointed)]
    return statistics.median(plain), statistics.median(blocked), statistics.median(commits)


class _Timed(Trainer):
    """transformers' Trainer, whose saves are timed."""

    saved_s: list[float]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        began = time.perf_counter()
        super()._save_checkpoint(model, trial)
        self.saved_s = [*getattr(self, "saved_s", []), time.perf_counter() - began]


class _Ends(TrainerCallback):
    """When steps end."""

    def __init__(self) -> None:
        self.ends: dict[int, float] = {}
        self.begins: dict[int, float] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self.begins[state.global_step + 1] = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self.ends[state.global_step] = time.perf_counter()


class _WithoutAccount(Collator):
    """What the collator counts for our ledger, a bare trainer's model would be called with."""

    def __call__(self, rows: Any) -> dict[str, Any]:
        batch = super().__call__(rows)
        return {key: value for key, value in batch.items() if key not in ("tokens", "squares")}


def _theirs(folder: Path) -> tuple[float, float, float]:
    task = train_task(folder / "model", folder / "text.jsonl", steps=STEPS)
    arguments = training_arguments(task, cpu_plan(micro_batch=2, grad_accum=4), steps=STEPS, scratch=folder / "theirs")
    arguments.save_strategy, arguments.save_steps, arguments.save_total_limit = "steps", EVERY, 3
    ends = _Ends()
    trainer = _Timed(
        model=AutoModelForCausalLM.from_pretrained(folder / "model"),
        args=arguments,
        data_collator=_WithoutAccount(1),
        train_dataset=_rows(64, length=64),
        callbacks=[ends],
    )
    trainer.train()
    plain = [ends.ends[step] - ends.begins[step] for step in range(3, STEPS)]
    saved = statistics.median(trainer.saved_s)
    return statistics.median(plain), saved, saved


def _rows(count: int, *, length: int = 16) -> Any:
    import datasets

    tokens = [[(row * 7 + place) % 300 + 2 for place in range(length)] for row in range(count)]
    return datasets.Dataset.from_dict({"input_ids": tokens, "labels": tokens})


# --- memory and bytes


def _bytes(folder: Path) -> list[str]:
    lines = [
        "Bytes written by a save, per rank, against the weights in fp32 (values and Adam's two moments: three times the trained ones), and",
        "peak host memory above what training needs (one process).",
        "",
        "| case | weights, MB | written per rank, MB | memory of the snapshot, MB |",
        "|---|---|---|---|",
    ]
    weights = _parameters(folder) * 4
    for name, task in (("full", {}), ("LoRA rank 8", {"method": {"lora": {"rank": 8}}})):
        out = folder / "bytes"
        shutil.rmtree(out, ignore_errors=True)
        resident: list[float] = []
        save = Checkpoints.save

        def measured(self: Checkpoints, *args: Any, resident: list[float] = resident, save: Any = save, **kwargs: Any) -> None:
            before = _resident_mb()
            Path("/proc/self/clear_refs").write_text("5")
            save(self, *args, **{**kwargs, "wait": True})
            resident.append(_peak_mb() - before)

        Checkpoints.save = measured  # type: ignore[method-assign]
        try:
            fields = {"steps": 8, "checkpoint": {"everySteps": 2}, **task}
            train(train_request(out, train_task(folder / "model", folder / "text.jsonl", **fields), cpu_plan()))
        finally:
            Checkpoints.save = save  # type: ignore[method-assign]
        store = open_store(str(out / "out"))
        written = [file.size_bytes for file in store.list("checkpoints") if file.path.endswith(".safetensors") and "/step-8." in file.path]
        lines.append(f"| {name} | {weights:.1f} | {sum(written) / 1e6:.1f} | {statistics.median(resident):.1f} |")
    return lines


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _peak_mb() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


# --- resuming


def _resumes(folder: Path, rounds: int) -> list[str]:
    lines = [
        f"Resume: from the call to the first batch in hand, {ROWS:,} rows, batch 1, by the steps done; median of {rounds} rounds.",
        "transformers skips with accelerate's `skip_first_batches` (a map-style data set: indices alone; a stream: every row is read).",
        "",
        "| steps done | Tuneyard, ms | transformers, map-style, ms | ratio | transformers, streamed, ms | ratio |",
        "|---|---|---|---|---|---|",
    ]
    rows = _rows(ROWS)
    for position in POSITIONS:
        ours = statistics.median(_place(rows, position) for _ in range(3 * rounds)) * 1e3
        mapped = statistics.median(_skip(rows, position) for _ in range(rounds)) * 1e3
        streamed = statistics.median(_skip(rows.to_iterable_dataset(), position) for _ in range(rounds)) * 1e3
        lines.append(f"| {position:,} | {ours:.2f} | {mapped:.1f} | {mapped / ours:.0f}x | {streamed:.0f} | {streamed / ours:.0f}x |")
    lines += [
        "",
        "The whole resume of a tiny model, from loading it to the end of the first step. Ours also looks its rows up in the cache, takes",
        "the lease, checks the checkpoint's hashes, and takes up again as many losses as there were steps:",
        "",
    ]
    lines += ["| steps done | Tuneyard, s | transformers, map-style, s | ratio |", "|---|---|---|---|"]
    for position in POSITIONS:
        ours = statistics.median(_our_resume(folder, position) for _ in range(rounds))
        theirs = statistics.median(_their_resume(folder, rows, position) for _ in range(rounds))
        lines.append(f"| {position:,} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.1f}x |")
    return lines


def _place(rows: Any, position: int) -> float:
    began = time.perf_counter()
    batches = Batches(rows_at=Order(ROWS).at_each, micro_batch=1, grad_accum=1, rank=0, workers=1, start=position, stop=ROWS)
    loader = torch.utils.data.DataLoader(rows, batch_sampler=batches, collate_fn=_WithoutAccount(1))
    next(iter(loader))
    return time.perf_counter() - began


def _skip(rows: Any, position: int) -> float:
    from accelerate import skip_first_batches

    streamed = not hasattr(rows, "__len__")
    loader = torch.utils.data.DataLoader(rows, batch_size=1, shuffle=None if streamed else True, collate_fn=_WithoutAccount(1))
    began = time.perf_counter()
    next(iter(skip_first_batches(loader, position)))
    return time.perf_counter() - began


def _our_resume(folder: Path, position: int) -> float:
    """A checkpoint is made after two steps, and its step is then said to be `position`: the cost of being there is what counts."""
    out = folder / f"resume-{position}"
    task = train_task(
        folder / "small", folder / "text.jsonl", steps=position + 2, batch={"global": 1}, checkpoint={"everySteps": 10 * ROWS}
    )
    request = train_request(out, task, cpu_plan(micro_batch=1, grad_accum=1))
    first: list[float] = []

    def emit(event: Event) -> None:
        if isinstance(event, Step):
            first.append(time.perf_counter())

    if not out.exists():
        _pretend(folder, out, position)
    kept = folder / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(out / "out", kept)
    began = time.perf_counter()
    result = train(request, emit=emit)
    assert result.resumed_from == position, result.resumed_from
    shutil.rmtree(out / "out")
    shutil.copytree(kept, out / "out")
    return first[0] - began


def _pretend(folder: Path, out: Path, position: int) -> None:
    """A real checkpoint of step 2, renamed to `position`, with as many losses."""
    import hashlib

    task = train_task(folder / "small", folder / "text.jsonl", steps=2, batch={"global": 1}, checkpoint={"everySteps": 2})
    train(train_request(out, task, cpu_plan(micro_batch=1, grad_accum=1)))
    shutil.rmtree(out / "out" / "model")
    checkpoint = out / "out" / "checkpoints" / "step-2.1"
    state = json.loads((checkpoint / "state.json").read_text())
    state["step"] = position
    state["progress"]["losses"] = [4.0] * position
    state["schedule"]["last_epoch"] = position
    (checkpoint / "state.json").write_text(json.dumps(state))
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    content = (checkpoint / "state.json").read_bytes()
    for file in manifest["files"]:
        if file["path"] == "state.json":
            file.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    manifest["extra"]["step"] = position
    body = json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n"
    (checkpoint / "manifest.json").write_bytes(body)
    for entry in (out / "out" / "checkpoints" / "log").glob("*.json"):
        values = json.loads(entry.read_text())
        if values["kind"] == "commit":
            values.update(step=position, sha256=hashlib.sha256(body).hexdigest())
            entry.write_text(json.dumps(values))


def _their_resume(folder: Path, rows: Any, position: int) -> float:
    checkpoint = folder / "theirs-small" / "checkpoint-2"
    if not checkpoint.exists():
        _their_trainer(folder, rows, 2).train()
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    (checkpoint / "trainer_state.json").write_text(json.dumps({**state, "global_step": position}))
    began = time.perf_counter()
    trainer = _their_trainer(folder, rows, position + 2)
    trainer.args.ignore_data_skip = False
    ends = _Ends()
    trainer.add_callback(ends)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    return ends.ends[position + 1] - began


def _their_trainer(folder: Path, rows: Any, steps: int) -> Trainer:
    task = train_task(folder / "small", folder / "text.jsonl", steps=steps, batch={"global": 1})
    arguments = training_arguments(task, cpu_plan(micro_batch=1, grad_accum=1), steps=steps, scratch=folder)
    arguments.output_dir = str(folder / "theirs-small")
    arguments.save_strategy, arguments.save_steps = ("steps", 2) if steps == 2 else ("no", 500)
    model = AutoModelForCausalLM.from_pretrained(folder / "small")
    return Trainer(model=model, args=arguments, data_collator=_WithoutAccount(1), train_dataset=rows)


if __name__ == "__main__":
    main()
