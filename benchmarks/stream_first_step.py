"""Seconds from the start to the first row of large text data sets, streamed, and the memory of all processes meanwhile: today and then.

`python benchmarks/stream_first_step.py` makes data sets of 14 GB (Python's sources as texts of 4 KiB, each with a number of its own),
measures each in a process of its own, and writes docs/benchmarks/stream_first_step.md. `--make FOLDER` makes them to stay; SOURCES are
measured in their place. `--whole FILE`: one that is prepared whole. `--before CHECKOUT`: an older tree of this project beside; what takes
it longer than 45 s, or more than 8 GB, is ended.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

_MOST_S, _MOST_GB = 45.0, 8.0
_TEXT_BYTES = 4096
_LOOK_S = 0.2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", type=Path, nargs="*")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--whole", type=Path)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        make(given.make)
    elif given.one:
        print(json.dumps(measured(given.sources[0], given.seconds, streaming=given.whole is None)))
    elif given.sources:
        report(given.sources, given.seconds, given.before, given.whole)
    else:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))
            sources = [Path(folder) / name for name in ("texts.jsonl", "texts.jsonl.gz", "texts.jsonl.zst", "texts.csv", "parts")]
            report(sources, given.seconds, given.before, Path(folder) / "small.jsonl")


def report(sources: list[Path], seconds: float, before: Path | None, whole: Path | None) -> None:
    from benchmarks.training_cases import write_page

    lines = [
        "Rows of 1,024 tokens of about one character, workers as by default. Memory: of all processes at most, beyond the libraries.",
        "",
        f"| data | | stream open | first row | tokens/s over the next {seconds:g} s | memory | way to the end of the file, for each GB |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for source in sources:
        lines.append(_line(source, "today", _measure(source, seconds, ROOT)))
        if before is not None and not source.name.endswith(".jsonl"):
            lines.append(_line(source, "then", _measure(source, seconds, before)))
    if whole is not None:
        lines.append(_line(whole, "prepared whole", _measure(whole, seconds, ROOT, whole=True)))
    write_page("stream_first_step", "The first step on data of any size", lines)


def _measure(source: Path, seconds: float, checkout: Path, *, whole: bool = False) -> dict[str, Any]:
    command = [sys.executable, __file__, str(source), "--one", "--seconds", str(seconds), *(["--whole", "."] if whole else [])]
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "platform"), "TUNEYARD_BENCHMARK_LIMITS": "" if whole else "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _line(source: Path, when: str, found: dict[str, Any]) -> str:
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    size = sum(file.stat().st_size for file in files) / 1e9
    name = f"{len(files)} files {''.join(files[0].suffixes)}" if len(files) > 1 else f"one {''.join(source.suffixes)}"
    if "first_s" not in found:
        ended = f"none after {found['ended_s']:.0f} s: ended"
        return f"| {name}, {size:.2f} GB | {when} | | {ended} | | {found['memory_gb']:.2f} GB and growing | |"
    first = f"{found['opened_s']:.1f} s | {found['first_s']:.1f} s | {found['tokens_per_s']:,.0f}"
    way = f"{found['way_s_per_gb']:.1f} s" if found.get("way_s_per_gb") else ""
    return f"| {name}, {size:.2f} GB | {when} | {first} | {found['memory_gb']:.2f} GB | {way} |"


def measured(source: Path, seconds: float, *, streaming: bool) -> dict[str, Any]:
    from tests.builders.models import tokenizer_of

    from tuneyard.api import TrainData
    from tuneyard.data import prepare

    tokenizer = tokenizer_of([], eos="<|end|>", chat_template=None, size=4000)
    with tempfile.TemporaryDirectory() as cache:
        memory, began = _Memory(limited=bool(os.environ.get("TUNEYARD_BENCHMARK_LIMITS"))), time.monotonic()
        spec = TrainData(source=str(source), streaming=streaming, pack=True, max_length=1024)
        prepared = prepare(spec, tokenizer, objective="clm", seed=0, cache_dir=cache)
        opened = time.monotonic() - began
        assert prepared.train[prepared.order.at(0)]
        first = time.monotonic() - began
        memory.limited = False
        position = tokens = 0
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            tokens += int(prepared.train[prepared.order.at(position)]["length"])
            position += 1
        taken = time.monotonic() - start
        found = {"opened_s": opened, "first_s": first, "tokens_per_s": tokens / taken, "memory_gb": memory.most - memory.before}
        return found | ({"way_s_per_gb": way_s_per_gb(prepared.train.stream)} if streaming and source.is_file() else {})


def way_s_per_gb(stream: Any) -> float | None:
    """Seconds of one process from the front of a file to its last piece, for each GB (decompressed) in between."""
    from tuneyard.data.stream.reading import SplitData

    last = [split for split in stream.splits if split.size_bytes][-1]
    if not last.pieces[0].end or getattr(stream.windows, "sequences", None) is None:
        return None
    began = time.monotonic()
    assert SplitData(stream.recipe.files, last).read_bytes >= 0
    return (time.monotonic() - began) / (last.pieces[0].start / 1e9)


class _Memory:
    """Watches this process and its children, and ends them above a limit of time or memory while it is `limited`."""

    def __init__(self, *, limited: bool) -> None:
        self.limited = limited
        self.before = self.most = held_gb()
        self._began = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            self.most = max(self.most, held_gb())
            passed = time.monotonic() - self._began
            if self.limited and (passed > _MOST_S or self.most - self.before > _MOST_GB):
                print(json.dumps({"ended_s": passed, "memory_gb": self.most - self.before}), flush=True)
                os._exit(0)  # data workers end with their parent


def held_gb() -> float:
    """Memory of this process and its children, without what they share with files."""
    here, total = psutil.Process(), 0
    for each in (here, *here.children(recursive=True)):
        try:
            about = each.memory_info()
        except psutil.NoSuchProcess:
            continue
        total += about.rss - about.shared
    return total / 1e9


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "texts.jsonl").open("wb") as out:
        for line in _lines(10_000_000_000):
            out.write(line)
    with (folder / "small.jsonl").open("wb") as out:
        out.writelines(_lines(100_000_000))
    with (
        gzip.open(folder / "texts.jsonl.gz", "wb", compresslevel=6) as packed,
        pa.CompressedOutputStream(str(folder / "texts.jsonl.zst"), "zstd") as other,
    ):
        for line in _lines(2_000_000_000):
            packed.write(line)
            other.write(line)
    with (folder / "texts.csv").open("w", newline="") as table:
        writer = csv.DictWriter(table, ["n", "text"])
        writer.writeheader()
        writer.writerows(json.loads(line) for line in _lines(2_000_000_000))
    (folder / "parts").mkdir(exist_ok=True)
    lines = _lines(2_000_000_000)
    for number in range(30):
        with gzip.open(folder / "parts" / f"{number:02}.jsonl.gz", "wb", compresslevel=6) as packed:
            packed.writelines(_up_to(lines, 2_000_000_000 // 30))


def _lines(size_bytes: int) -> Iterator[bytes]:
    texts, number = _texts(), 0
    while True:
        for text in texts:
            line = json.dumps({"n": number, "text": f"{number} {text}"}).encode() + b"\n"
            number += 1
            size_bytes -= len(line)
            yield line
            if size_bytes <= 0:
                return


def _up_to(lines: Iterator[bytes], size_bytes: int) -> Iterator[bytes]:
    for line in lines:
        yield line
        size_bytes -= len(line)
        if size_bytes <= 0:
            return


def _texts() -> list[str]:
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        text = path.read_text(errors="replace")
        found.extend(text[start : start + _TEXT_BYTES] for start in range(0, len(text), _TEXT_BYTES))
    return found


if __name__ == "__main__":
    main()
