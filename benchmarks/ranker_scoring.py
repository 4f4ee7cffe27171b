"""Rows/s of a table that a ranker scores, beside a plain loop: `ParquetFile.iter_batches`, `batch_of`, the ranker, `ParquetWriter`.

`python benchmarks/ranker_scoring.py`; results in docs/benchmarks/ranker_scoring.md.

Both run in this process on one core, in turns, after a first turn that does not count. Ours is the work of one worker as the pool asks for
it: it reads ranges of rows by number, scores, judges (all rows, one slice column, windows), encodes and commits parts with their sums, and
adds these up. The plain loop writes the same columns to one file, and judges nothing. CPU seconds of all threads count: other work on the
machine does not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tuneyard.api import ScoreTask
from tuneyard.ranking import EnsembleLayer, RankerConfig, batch_of, generated_clicks, load, save
from tuneyard.ranking.click_log import config_of
from tuneyard.scoring import Measured, ScoreRequest, work_of

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "ranker_scoring.md"
BATCH, GROUP_ROWS = 4096, 50_000
ENSEMBLE = EnsembleLayer(("dlrm", "dcn", "linear"), outputs=4)
RANKERS = {
    "two layers of three modules": config_of(width=16, layers=(ENSEMBLE, ENSEMBLE)),
    "no layer: embeddings and a network": config_of(width=8, layers=(), hidden=(16,)),
}
MEASURED = Measured(wall_s=1.0, load_s=0.0, generation_s=1.0, deaths=0, stopped=False, settings=None)


@dataclass(frozen=True)
class Turn:
    cpu_s: float
    wall_s: float


def timed(act: Callable[[], None]) -> Turn:
    cpu, wall = time.process_time(), time.perf_counter()
    act()
    return Turn(time.process_time() - cpu, time.perf_counter() - wall)


def plain(folder: Path, config: RankerConfig) -> Turn:
    ranker = load(folder / "model")
    columns = [*config.dense, *(feature.name for feature in config.sparse), "user"]

    def loop() -> None:
        writer = None
        at = 0
        with torch.inference_mode():
            for batch in pq.ParquetFile(folder / "clicks.parquet").iter_batches(BATCH, columns=list(dict.fromkeys(columns))):
                probabilities = ranker(batch_of(batch, config, labels=False)).sigmoid()[:, 0].numpy()
                rows = pa.RecordBatch.from_pydict(
                    {"row": range_of(at, batch.num_rows), "user": batch.column("user"), "probability_clicked": probabilities}
                )
                writer = writer or pq.ParquetWriter(folder / "plain.parquet", rows.schema, compression="zstd")
                writer.write_batch(rows)
                at += batch.num_rows
        assert writer is not None
        writer.close()

    return timed(loop)


def range_of(first: int, count: int) -> pa.Array:
    return pa.array(torch.arange(first, first + count).numpy())


def ours(folder: Path, *, judged: bool = True) -> Turn:
    shutil.rmtree(folder / "out", ignore_errors=True)
    ranking = {"slices": ["device"], "windows": {"every": 20_000}} if judged else {}
    data = {"source": str(folder / "clicks.parquet"), "keep": ["user"]}
    task = ScoreTask.model_validate({"model": {"name": str(folder / "model")}, "data": data, "ranking": ranking})
    places = {"output": str(folder / "out"), "scratch": str(folder / "scratch")}
    work = work_of(ScoreRequest(job="bench", name="score", task=task, model_uri=str(folder / "model"), **places))
    worker = work.worker(work.order)
    worker.load()

    def score() -> None:
        for part in work.missing:
            work.take(worker.score(part).sums)
        work.finish(MEASURED)

    return timed(score)


def compare(name: str, config: RankerConfig, folder: Path, rows: int, pairs: int) -> str:
    torch.manual_seed(1)
    save(config.build(), folder / "model")
    plain(folder, config), ours(folder)
    turns: dict[str, list[Turn]] = {"plain": [], "ours": []}
    for number in range(pairs):
        for way in ("plain", "ours") if number % 2 else ("ours", "plain"):
            turns[way].append(plain(folder, config) if way == "plain" else ours(folder))
        print(f"{name}: plain {turns['plain'][-1].cpu_s:.2f} s, ours {turns['ours'][-1].cpu_s:.2f} s of CPU", file=sys.stderr)
    ratios = [one.cpu_s / other.cpu_s for one, other in zip(turns["plain"], turns["ours"], strict=True)]
    rates = {way: rows / statistics.median(turn.cpu_s for turn in each) for way, each in turns.items()}
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"| {name} | {rates['plain']:,.0f} | {rates['ours']:,.0f} | {spread} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--pairs", type=int, default=7)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        log = pa.Table.from_batches(list(generated_clicks(options.rows, seed=4)))
        pq.write_table(log, folder / "clicks.parquet", row_group_size=GROUP_ROWS)
        lines = [compare(name, config, folder, options.rows, options.pairs) for name, config in RANKERS.items()]
    page = [
        "# Scoring by rankers",
        "",
        f"`python benchmarks/ranker_scoring.py`, {time.strftime('%Y-%m-%d')}, one core, no GPU.",
        f"{options.rows:,} rows of the log of clicks (11 features), row groups of {GROUP_ROWS:,} rows, batches of {BATCH:,}.",
        f"Rows per CPU second, median of {options.pairs} turns; ratio with its range.",
        "",
        "| ranker | plain loop | score task | ratio |",
        "|---|---:|---:|---:|",
        *lines,
        "",
        "The plain loop is `ParquetFile.iter_batches`, `batch_of`, the ranker and `ParquetWriter`; it judges nothing. The score task is",
        "the work of one worker and its driver: the same, with rows by number, committed parts, and figures of all rows, of a slice",
        "column and of windows.",
        "",
    ]
    PAGE.write_text("\n".join(page))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
