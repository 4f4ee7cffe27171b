"""What one data worker makes on one core, by format and files; and the wait of a trainer, predicted from it and measured.

`python benchmarks/data_worker_rate.py [--repeats 3]`: real shards of Python's standard library, built by the code of data workers. Writes
docs/benchmarks/data_worker_rate.md. `planning.data_rates` has these figures as constants.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil
from benchmarks.training_cases import write_page

KINDS = ("storage", "decoding", "tokenising", "packing")
MAX_LENGTH = 2048
VOCABULARY = 32_000
CORPUS_BYTES = 8 << 20
WINDOW = 2
CASES = ((0.5, 0), (0.5, 1), (1.0, 0), (1.5, 1), (1.5, 2), (3.0, 1))
"""Tokens/s that the trainer takes, in rates of one process, and data workers."""
_HEAD = """\
About {mib} MiB of Python's standard library by source (copies, in which each text has a number of its own), a tokenizer of {vocabulary:,}
tokens trained on it, packed rows of {length:,} tokens. One process on one core, from the page cache; tokens and bytes are per CPU second,
since the machine did other work meanwhile. Medians of {repeats} rounds, and the shares of the kinds of work. GB: memory of the process
beyond what a forked worker shares with its rank."""
_WAIT_HEAD = """
## The wait of a trainer, predicted and measured

A trainer takes tokens of the text in JSONL at a fixed rate while it does not wait, and computes nothing. Predicted: by
`planning.stall_share`, from what one process made in wall time in the same case. Measured: share of one epoch's time in which the trainer
waited for rows. It makes rows itself while it waits. Windows have {window} splits here, so that the ramp of an epoch's first windows, in
which workers need twice the rate, is short.
"""


@dataclass(frozen=True)
class Measured:
    tokens: int
    source_bytes: int
    seconds: dict[str, float]
    cpu_s: float
    memory_gb: float

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def speed(self) -> float:
        """Tokens per CPU second: on a machine with other work, what a core of its own would make."""
        return self.tokens / self.cpu_s


def sources(root: Path) -> tuple[dict[tuple[str, str], Path], Any]:
    """Files of about CORPUS_BYTES by format and kind, and a tokenizer of usual size."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer

    from tuneyard.data import stdlib
    from tuneyard.data.small_model import write_model

    stdlib.build(root)
    texts, chats = ((root / name).read_text().splitlines() for name in ("text.jsonl", "train.jsonl"))
    write_model(root / "usual", replace(stdlib.SHAPE, vocabulary=VOCABULARY), [json.loads(line)["text"] for line in texts])
    text, chat = root / "corpus.jsonl", root / "chats.jsonl"
    text.write_text("".join(_copies(texts, lambda row, mark: {**row, "text": f"# {mark}\n{row['text']}"})))
    chat.write_text("".join(_copies(chats, _marked)))
    parquet, gz = root / "corpus.parquet", root / "gz"
    rows = pa.table({"text": [json.loads(line)["text"] for line in text.read_text().splitlines()]})
    pq.write_table(rows, parquet, row_group_size=64)
    gz.mkdir()
    lines = text.read_bytes().splitlines(keepends=True)
    for number, start in enumerate(range(0, len(lines), 64)):
        (gz / f"{number:03}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[start : start + 64])))
    files = {("chat", "jsonl"): chat, ("text", "jsonl"): text, ("text", "parquet"): parquet, ("text", "jsonl.gz"): gz}
    return files, AutoTokenizer.from_pretrained(root / "usual")


def _copies(lines: list[str], mark: Any) -> Iterator[str]:
    written, copy = 0, 0
    while written < CORPUS_BYTES:
        for number, line in enumerate(lines):
            made = json.dumps(mark(json.loads(line), f"{copy}.{number}")) + "\n"
            written += len(made)
            yield made
        copy += 1


def _marked(row: dict[str, Any], mark: str) -> dict[str, Any]:
    row["messages"][0]["content"] = f"{mark}: {row['messages'][0]['content']}"
    return row


def opened(source: Path, format: str, tokenizer: Any, cache: Path, *, workers: int = 0, max_length: int = MAX_LENGTH) -> Any:
    from tuneyard.api import TrainData
    from tuneyard.data import prepare

    spec = TrainData(source=str(source), streaming=True, pack=True, max_length=max_length, workers=workers)
    return prepare(spec, tokenizer, objective="sft" if format == "chat" else "clm", seed=0, cache_dir=cache)


def built(source: Path, format: str, tokenizer: Any, cache: Path) -> Measured:
    """All shards of a source, by a process of its own on one core."""
    reading, writing = os.pipe()
    stream = opened(source, format, tokenizer, cache).train.stream
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        before, most, began = _own_gb(), 0.0, time.process_time()
        tokens, read, seconds = 0, 0, dict.fromkeys(KINDS, 0.0)
        for split in stream.splits:
            facts = stream.shard(split).facts
            tokens, read = tokens + facts.tokens, read + facts.source_bytes
            seconds = {kind: seconds[kind] + facts.seconds.get(kind, 0.0) for kind in KINDS}
            most = max(most, _own_gb() - before)
        os.write(writing, json.dumps([tokens, read, seconds, time.process_time() - began, most]).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        found = Measured(*json.load(answer))
    os.waitpid(pid, 0)
    return found


def _own_gb() -> float:
    return float(psutil.Process().memory_full_info().uss) / 1e9


@dataclass(frozen=True)
class Wait:
    """`stall`: share of the time of an epoch. `rate`: tokens per second of wall time that one process made meanwhile."""

    stall: float
    rate: float


def waited(source: Path, tokenizer: Any, cache: Path, demand: float, workers: int, number: int) -> Wait:
    """The wait of a trainer over one epoch. It computes nothing, and takes `demand` tokens a second while it does not wait.

    `number`: rows of each case have another length, so that none finds shards of one before.
    """
    prepared = opened(source, "text", tokenizer, cache, workers=workers, max_length=MAX_LENGTH - number)
    rows = prepared.train
    before = rows.tally.waited_s
    began, tokens, position = time.monotonic(), 0, 0
    while rows._window(position)[0].epoch == 0:
        tokens += rows[position]["length"]
        position += 1
        ahead = tokens / demand - (time.monotonic() - began - (rows.tally.waited_s - before))
        if ahead > 0.02:
            time.sleep(ahead)
    stall = (rows.tally.waited_s - before) / (time.monotonic() - began)
    return Wait(stall, rows.tally.facts.tokens / sum(rows.tally.facts.seconds.values()))


def rate_lines(found: dict[tuple[str, str], list[Measured]]) -> Iterator[str]:
    yield "| format | files | tokens/s | lowest | highest | MB/s | bytes a token | storage | decoding | tokenising | packing | GB |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for (format, files), rounds in found.items():
        speeds = [each.speed for each in rounds]
        one = sorted(rounds, key=lambda each: each.speed)[len(rounds) // 2]
        shares = " | ".join(f"{one.seconds[kind] / one.total_s:.0%}" for kind in KINDS)
        speed = f"{median(speeds):,.0f} | {min(speeds):,.0f} | {max(speeds):,.0f}"
        read = f"{one.source_bytes / one.cpu_s / 1e6:.1f} | {one.source_bytes / one.tokens:.1f}"
        yield f"| {format} | {files} | {speed} | {read} | {shares} | {max(each.memory_gb for each in rounds):.2f} |"


def wait_lines(source: Path, tokenizer: Any, root: Path, rate: float) -> Iterator[str]:
    from tuneyard.planning import stall_share

    yield "| tokens/s taken | data workers | tokens/s that one process made | predicted wait | measured wait |"
    yield "|---:|---:|---:|---:|---:|"
    for number, (times, workers) in enumerate(CASES):
        demand = times * rate
        found = waited(source, tokenizer, root / f"wait-{number}", demand, workers, number)
        predicted = stall_share(demand, found.rate, workers, 1)
        line = f"| {demand:,.0f} | {workers} | {found.rate:,.0f} | {predicted:.0%} | {found.stall:.0%} |"
        print(line, file=sys.stderr)
        yield line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    from tuneyard.data.stream import windows

    windows.WINDOW, windows._FIRST_SPLITS = WINDOW, 1
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        files, tokenizer = sources(root / "sources")
        found: dict[tuple[str, str], list[Measured]] = {key: [] for key in files}
        for turn in range(repeats):
            for key, path in files.items():
                found[key].append(built(path, key[0], tokenizer, root / f"{turn}-{'-'.join(key)}"))
                print(turn, key, f"{found[key][-1].speed:,.0f}", file=sys.stderr)
        head = _HEAD.format(mib=CORPUS_BYTES >> 20, vocabulary=VOCABULARY, length=MAX_LENGTH, repeats=repeats)
        waits = wait_lines(files["text", "jsonl"], tokenizer, root, median(each.tokens / each.total_s for each in found["text", "jsonl"]))
        lines = [*head.splitlines(), "", *rate_lines(found), *_WAIT_HEAD.format(window=WINDOW).splitlines(), "", *waits]
    write_page("data_worker_rate", "What one data worker makes, and the wait that follows", lines)


if __name__ == "__main__":
    main()
