"""Tokens per second of preparation: `tuneyard.data.prepare` beside TRL's SFTTrainer and beside bare `datasets.map`, on one core and on two.

`python benchmarks/data_prepare.py [--samples 6000] [--repeats 3]`: same chats, tokenizer and machine; in each round all ways, one after
another, in turning order, each on chats that none of them has seen. Writes docs/benchmarks/data_prepare.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from training_cases import write_page

MAX_LENGTH = 2048
OURS, TRAINER, LEAN, BARE = "tuneyard", "TRL's SFTTrainer", "map with masks, and TRL's packing", "map, tokens alone"
_HEAD = """\
{samples:,} chats, rows of {length} tokens, loss on answers; one core, and two. Medians of {repeats} rounds. The ratio is Tuneyard's tokens
per second, divided by those of the way in the same round.

- {ours}: all of `prepare`: reads, checks, renders, tokenises, labels, hashes, holds out, packs, writes.
- {trainer}: `SFTTrainer._prepare_dataset` with `assistant_only_loss` and packing (`bfd`), reading included.
- {lean}: the shortest way to the same tokens: one `datasets.map` over `apply_chat_template` with masks, then `pack_dataset`.
- {bare}: `datasets.map` over `apply_chat_template`, without masks, labels and packing: less than what training needs.

Corpora: functions of Python's standard library (`tuneyard.data.stdlib`, own template; most answers begin with blanks that a tokenizer would
join with the line before), and mails (`tuneyard.data.bookings`) under Qwen 3's template with TRL's markers."""


def with_tuneyard(source: Path, tokenizer: Any, cache: Path) -> Any:
    from tuneyard.api import TrainData
    from tuneyard.data import prepare

    spec = TrainData(source=str(source), pack=True, max_length=MAX_LENGTH)
    return prepare(spec, tokenizer, objective="sft", seed=0, cache_dir=cache).train


def read_by_datasets(source: Path, cache: Path) -> Any:
    import datasets

    return datasets.load_dataset("json", data_files=str(source), split="train", cache_dir=str(cache))


def with_trainer(source: Path, tokenizer: Any, cache: Path, processes: int | None) -> Any:
    from trl import SFTTrainer

    trainer = SimpleNamespace(_tokenizer=tokenizer, chat_template=tokenizer.chat_template, completion_only_loss=False)
    settings = SimpleNamespace(
        dataset_num_proc=processes,
        dataset_text_field="text",
        assistant_only_loss=True,
        max_length=MAX_LENGTH,
        truncation_mode="keep_start",
        packing_strategy="bfd",
        shuffle_dataset=False,
        seed=0,
    )
    return SFTTrainer._prepare_dataset(trainer, read_by_datasets(source, cache), tokenizer, settings, True, None, "train")


def with_map(source: Path, tokenizer: Any, cache: Path, processes: int | None, *, masks: bool) -> Any:
    from trl import pack_dataset

    def tokenise(row: dict[str, Any]) -> dict[str, Any]:
        out = tokenizer.apply_chat_template(row["messages"], return_dict=True, return_assistant_tokens_mask=masks)
        return {name: out[name] for name in ("input_ids", "assistant_masks") if name in out}

    rows = read_by_datasets(source, cache)
    tokens = rows.map(tokenise, remove_columns=rows.column_names, num_proc=processes)
    return pack_dataset(tokens, MAX_LENGTH, "bfd") if masks else tokens


def corpora(root: Path) -> Iterator[tuple[str, list[str], Any]]:
    """Names, lines of chats, tokenizers."""
    from tests.builders.templates import TRL
    from transformers import AutoTokenizer

    from tuneyard.data import bookings, stdlib
    from tuneyard.data.chat import choose_template

    stdlib.build(root / "functions")
    yield (
        "functions",
        (root / "functions" / "train.jsonl").read_text().splitlines(),
        AutoTokenizer.from_pretrained(root / "functions/model"),
    )
    bookings.build(root / "mails")
    tokenizer = AutoTokenizer.from_pretrained(root / "mails" / "model")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]})
    tokenizer.chat_template = next(template.text for template in TRL if template.name == "qwen3")
    tokenizer.chat_template = choose_template(tokenizer, None).text  # TRL's trainer takes the marked twin too
    yield "mails", (root / "mails" / "train.jsonl").read_text().splitlines(), tokenizer


def token_count(rows: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.list_value_length(rows.data.column("input_ids"))).as_py())


def rounds(samples: int, repeats: int) -> list[dict[str, Any]]:
    """All rounds of both corpora on the cores that this process has."""
    import datasets

    datasets.disable_progress_bars()
    found = []
    cores = len(os.sched_getaffinity(0))
    processes = cores if cores > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        for name, lines, tokenizer in corpora(Path(folder)):
            ways: list[tuple[str, Callable[[Path, Any, Path], Any]]] = [
                (OURS, with_tuneyard),
                (TRAINER, partial(with_trainer, processes=processes)),
                (LEAN, partial(with_map, processes=processes, masks=True)),
                (BARE, partial(with_map, processes=processes, masks=False)),
            ]
            for turn in range(-1, repeats):  # the first warms up
                count = samples if turn >= 0 else 300
                source = Path(folder) / f"{name}{turn}.jsonl"
                source.write_text("".join(_fresh(lines[i % len(lines)], f"{turn}.{i}") for i in range(count)))
                shift = turn % len(ways)
                for way, work in [*ways[shift:], *ways[:shift]]:
                    start = time.perf_counter()
                    made = work(source, tokenizer, Path(folder) / f"cache-{name}-{turn}-{ways.index((way, work))}")
                    seconds = time.perf_counter() - start
                    if turn >= 0:
                        found.append({"corpus": name, "cores": cores, "round": turn, "way": way, "s": seconds, "tokens": token_count(made)})
    return found


def _fresh(line: str, mark: str) -> str:
    """A chat that no cache has seen: its first question begins with a number."""
    row = json.loads(line)
    row["messages"][0]["content"] = f"{mark}: {row['messages'][0]['content']}"
    return json.dumps(row) + "\n"


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    yield "| corpus | cores | way | tokens/s | ratio | lowest | highest |"
    yield "|---|---|---|---|---|---|---|"
    for corpus, cores in sorted({(row["corpus"], row["cores"]) for row in found}):
        of_case = [row for row in found if (row["corpus"], row["cores"]) == (corpus, cores)]
        speeds = {
            way: {row["round"]: row["tokens"] / row["s"] for row in of_case if row["way"] == way} for way in (OURS, TRAINER, LEAN, BARE)
        }
        for way, by_round in speeds.items():
            ratios = [speeds[OURS][turn] / speed for turn, speed in by_round.items()]
            figures = f"{median(by_round.values()):,.0f} | {median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f}"
            yield f"| {corpus} | {cores} | {way} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=6_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cores:
        print(json.dumps(rounds(arguments.samples, arguments.repeats)))
        return
    found: list[dict[str, Any]] = []
    for cores in (1, 2):
        some = sorted(os.sched_getaffinity(0))[:cores]
        done = subprocess.run(
            [sys.executable, __file__, "--samples", str(arguments.samples), "--repeats", str(arguments.repeats), "--cores", str(cores)],
            stdout=subprocess.PIPE,
            check=True,
            preexec_fn=lambda some=some: os.sched_setaffinity(0, some),
        )
        found += json.loads(done.stdout.splitlines()[-1])
    head = _HEAD.format(
        samples=arguments.samples, length=MAX_LENGTH, repeats=arguments.repeats, ours=OURS, trainer=TRAINER, lean=LEAN, bare=BARE
    )
    write_page("data_prepare", "Tokens per second of preparation", [*head.splitlines(), "", *table(found)])


if __name__ == "__main__":
    main()
