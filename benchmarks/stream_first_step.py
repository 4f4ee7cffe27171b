"""Seconds from the start to the first row of a large text data set, streamed, and the memory of all processes meanwhile.

`python benchmarks/stream_first_step.py FILE [--seconds 60]`: FILE is JSONL with a column `text`. Writes
docs/benchmarks/stream_first_step.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.training_cases import write_page
from tests.models import tokenizer_of

from tuneyard.api import TrainData
from tuneyard.data import prepare


def held_gb() -> float:
    """Memory of this process and its children, without what they share with files."""
    here = psutil.Process()
    return sum(each.memory_info().rss - each.memory_info().shared for each in (here, *here.children(recursive=True))) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    tokenizer = tokenizer_of([], eos="<|end|>", chat_template=None, size=4000)
    with tempfile.TemporaryDirectory() as cache:
        before, began = held_gb(), time.monotonic()
        spec = TrainData(source=str(given.file), streaming=True, pack=True, max_length=1024)
        prepared = prepare(spec, tokenizer, objective="clm", seed=0, cache_dir=cache)
        opened = time.monotonic() - began
        assert prepared.train[prepared.order.at(0)]
        first, most, position = time.monotonic() - began, 0.0, 0
        start = looked = time.monotonic()
        tokens = 0
        while time.monotonic() - start < given.seconds:
            tokens += prepared.train[prepared.order.at(position)]["length"]
            position += 1
            if time.monotonic() - looked > 0.5:
                looked, most = time.monotonic(), max(most, held_gb())
        lines = [
            f"{given.file.stat().st_size / 1e9:.1f} GB of JSONL, rows of 1,024 tokens of about one character, workers as by default.",
            "",
            "| | |",
            "|---|---:|",
            f"| the stream is open: format, length and a sample of 4 MiB are known | {opened:.1f} s |",
            f"| the first row is there | {first:.1f} s |",
            f"| tokens/s over the next {given.seconds:g} s | {tokens / given.seconds:,.0f} |",
            f"| memory of all processes at most, beyond the libraries | {most - before:.2f} GB |",
            f"| rows of an epoch, estimated | {prepared.order.epoch_rows:,} |",
        ]
    write_page("stream_first_step", "The first step on data of any size", lines)


if __name__ == "__main__":
    main()
