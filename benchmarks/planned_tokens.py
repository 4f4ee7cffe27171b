"""Tokens that `tuneyard plan` expects of a data set, beside the tokens that its preparation makes.

`python benchmarks/planned_tokens.py [--rows 2000]`: writes docs/benchmarks/planned_tokens.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.unit.data.test_data_probe import KINDS, QWEN3, prepared_tokens
from training_cases import write_page

from tuneyard.api import TrainTask
from tuneyard.data import prepare
from tuneyard.data.counting import count_data
from tuneyard.data.probe import ROWS, probe

CASES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "chats": (("plain",), {}),
    "chats with a system turn": (("system",), {}),
    "chats with tools and calls": (("tools",), {}),
    "chats with reasoning": (("reasoning",), {}),
    "chats of several turns": (("turns",), {}),
    "all of these in turns": (("plain", "system", "tools", "reasoning", "turns"), {}),
    "pairs": (("pairs",), {}),
    "pairs as chats": (("pairs",), {"chat": True}),
    "pairs in a template": (("pairs",), {"template": "alpaca"}),
    "texts": (("texts",), {}),
    "preferences as chats": (("preferences",), {"chat": True}),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2000)
    count = parser.parse_args().rows
    tokenizer = QWEN3.tokenizer()
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(Path(folder) / "model")
        rows = [_row(name, kinds, data, count, tokenizer, Path(folder)) for name, (kinds, data) in CASES.items()]
    lines = [
        f"Each data set has {count:,} rows with lengths drawn from a Pareto distribution, under Qwen3's chat template. `plan` counts the",
        f"characters of all rows, and takes tokens from a look at {ROWS} rows that are rendered and tokenised as in training.",
        "*By characters* is the plan without that look: characters per token of the texts alone, as on a machine without `[train]`.",
        "",
        "| rows | prepared tokens | planned, off by | by characters, off by |",
        "|---|---|---|---|",
        *rows,
        "",
        "Aim: 5 %. `tests/unit/data/test_data_probe.py` holds it for random mixtures of these rows.",
    ]
    write_page("planned_tokens", "Planned and prepared tokens", lines)


def _row(name: str, kinds: tuple[str, ...], data: dict[str, Any], count: int, tokenizer: Any, folder: Path) -> str:
    lengths = np.minimum(np.random.default_rng(1).pareto(2.0, count), 10)
    path = folder / f"{name.replace(' ', '-')}.jsonl"
    path.write_text("".join(json.dumps(KINDS[kinds[n % len(kinds)]](n, 1 + int(40 * lengths[n]))) + "\n" for n in range(count)))
    objective: Any = {"preferences": "dpo", "texts": "clm"}.get(kinds[0], "sft")
    spec = {"model": {"name": "m"}, "objective": objective, "data": {"source": str(path), "maxLength": 4096, **data}}
    task = TrainTask.model_validate(spec)
    made = prepared_tokens(prepare(task.data, tokenizer, objective=objective, seed=0, cache_dir=folder / "cache"))
    looked = count_data(task, probed=probe(task.data, tokenizer, objective=objective))
    characters = count_data(task, tokenizer=folder / "model" / "tokenizer.json")
    off = [sum(each.tokens(each.characters_per_token.likely)) / made - 1 for each in (looked, characters)]
    return f"| {name} | {made:,.0f} | {off[0]:+.1%} | {off[1]:+.1%} |"


if __name__ == "__main__":
    main()
