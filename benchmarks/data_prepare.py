"""Tokenise and pack: `tuneyard.data.prepare` against TRL's way (`datasets.map` over apply_chat_template, then `pack_dataset`).

`python benchmarks/data_prepare.py [--samples 20000]`: same chats, tokenizer and machine in one run; writes docs/benchmarks/data_prepare.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_LENGTH = 2048
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "data_prepare.md"


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def with_tuneyard(source: Path, tokenizer: Any, cache: Path) -> Any:
    from tuneyard.api import TrainData
    from tuneyard.data import prepare

    spec = TrainData(source=str(source), pack=True, max_length=MAX_LENGTH)
    return prepare(spec, tokenizer, objective="sft", seed=0, cache_dir=cache).train


def with_trl(source: Path, tokenizer: Any, cache: Path, processes: int) -> Any:
    import datasets
    from trl import pack_dataset

    def tokenise(row: dict[str, Any]) -> dict[str, Any]:
        out = tokenizer.apply_chat_template(row["messages"], return_dict=True, return_assistant_tokens_mask=True)
        return {"input_ids": out["input_ids"], "assistant_masks": out["assistant_masks"]}

    rows = datasets.load_dataset("json", data_files=str(source), split="train", cache_dir=str(cache))
    tokens = rows.map(tokenise, remove_columns=rows.column_names, num_proc=processes)
    return pack_dataset(tokens, MAX_LENGTH, "bfd")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    import datasets
    from transformers import AutoTokenizer

    from tuneyard.data import stdlib

    datasets.disable_progress_bars()
    processes = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        stdlib.build(root / "corpus")
        lines = (root / "corpus" / "train.jsonl").read_text().splitlines()
        source = root / "chats.jsonl"
        tokenizer = AutoTokenizer.from_pretrained(root / "corpus" / "model")
        table: dict[str, list[float]] = {"tuneyard": [], "tuneyard, from the cache": [], "datasets.map + TRL": []}
        rows: dict[str, tuple[int, int]] = {}
        for turn in range(arguments.repeats):
            chats = (lines[i % len(lines)].replace("Write the body", f"{turn}.{i}: write the body", 1) for i in range(arguments.samples))
            source.write_text("\n".join(chats) + "\n")
            for name, work in (
                ("tuneyard", lambda: with_tuneyard(source, tokenizer, root / "cache")),
                ("tuneyard, from the cache", lambda: with_tuneyard(source, tokenizer, root / "cache")),
                ("datasets.map + TRL", lambda turn=turn: with_trl(source, tokenizer, root / f"trl-{turn}", processes)),
            ):
                seconds, made = timed(work)
                table[name].append(seconds)
                rows[name] = (len(made), sum(len(ids) for ids in made.with_format("numpy")["input_ids"]))
    report(table, rows, arguments.samples, processes)


def report(table: dict[str, list[float]], rows: dict[str, tuple[int, int]], samples: int, processes: int) -> None:
    theirs = sorted(table["datasets.map + TRL"])[len(table["datasets.map + TRL"]) // 2]
    lines = [
        "# Tokenise and pack",
        "",
        f"{samples:,} chats of the standard library's functions, maxLength {MAX_LENGTH}, {processes} processes, median of "
        f"{len(table['tuneyard'])} paired runs on this machine's CPU, {datetime.date.today()}.",
        f"Command: `python {' '.join(sys.argv)}`. The first way also hashes, checks and splits; TRL's packs blocks of 1,000 rows.",
        "",
        "| | seconds | tokens/s | against TRL | rows | filled |",
        "|---|---|---|---|---|---|",
    ]
    for name, seconds in table.items():
        middle = sorted(seconds)[len(seconds) // 2]
        count, tokens = rows[name]
        filled = tokens / (count * MAX_LENGTH)
        lines.append(f"| {name} | {middle:.2f} | {tokens / middle:,.0f} | {theirs / middle:.2f} x | {count:,} | {filled:.1%} |")
    text = "\n".join(lines) + "\n"
    print(text)
    DOCUMENT.parent.mkdir(parents=True, exist_ok=True)
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
