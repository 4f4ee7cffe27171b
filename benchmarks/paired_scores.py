"""Comparisons of two models on the same rows: error rates on synthetic models, and time and memory for millions of rows.

python benchmarks/paired_scores.py [--seeds 500] [--out docs/benchmarks/paired_scores.md]

Error rates: two models with known differences answer `rows` rows, once per seed; a comparison is what a report has, with 500 draws. Size:
two outputs of score tasks are written in parts of 65,536 rows, and compared in a process of its own, whose peak memory is read at its end.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pyarrow as pa

from tuneyard.metrics import METRICS
from tuneyard.scoring.paired import compare
from tuneyard.scoring.paired.resampling import Resampled
from tuneyard.scoring.paired.row_sums import Numbers, RowSums
from tuneyard.scoring.paired.units import Units, units_of
from tuneyard.scoring.parts import encoded, part_path
from tuneyard.scoring.plan import FORMAT
from tuneyard.storage import open_store

ROWS_PER_PART = 65_536
DRAWS = 500
"""A quarter of a report's, for the time that thousands of comparisons take."""
MEANS = ("exact_match", "rouge_l", "perplexity")
Answers = Callable[[np.random.Generator, int, float], tuple[Numbers, Numbers]]


def shares(generator: np.random.Generator, rows: int, added: float) -> tuple[Numbers, Numbers]:
    """Right or wrong, mostly in the same rows; right in half of them, and in `added` more."""
    hard = generator.random(rows)
    noise = [0.2 * generator.standard_normal(rows) for _ in range(2)]
    return (hard + noise[0] < 0.5 + added).astype(float), (hard + noise[1] < 0.5).astype(float)


def rare(generator: np.random.Generator, rows: int, added: float) -> tuple[Numbers, Numbers]:
    """The same answer in all but 1 of 100 rows: few rows differ."""
    against = (generator.random(rows) < 0.5).astype(float)
    task = np.where(generator.random(rows) < 0.01, (generator.random(rows) < 0.5 + added).astype(float), against)
    return task, against


def skewed(generator: np.random.Generator, rows: int, added: float) -> tuple[Numbers, Numbers]:
    """Values with a long tail, such as a loss."""
    common = generator.exponential(1.0, rows)
    one, other = (common * generator.lognormal(0.0, 0.5, rows) for _ in range(2))
    return one + added, other


MODELS: dict[str, Answers] = {"right or wrong": shares, "1 % of answers differ": rare, "long tail": skewed}
CASES = [
    (name, rows, added) for name in MODELS for rows in (50, 200, 2000) for added in (0.0, 0.05) if not (name.startswith("1 %") and added)
]


@dataclass(frozen=True)
class Rates:
    """Shares of seeds."""

    real: float
    by_interval: float
    covered: float


def rates(answers: Answers, rows: int, added: float, seeds: int) -> Rates:
    """How often a difference is called real, how often the interval alone would call it so, and how often it holds the truth."""
    truth = float(np.mean(np.subtract(*answers(np.random.default_rng(10**6), 4_000_000, added)))) if added else 0.0
    real = by_interval = covered = 0
    for seed in range(seeds):
        task, against = answers(np.random.default_rng(seed), rows, added)
        units = Units(rows, higher_is_better=True)
        units.add(units_of(0, rows, rows), _sums(task), _sums(against))
        judged = Resampled.of(units.drawn(), draws=DRAWS, seed=seed).judge(METRICS["rouge_l"].figures[0].value)
        assert judged.interval is not None
        real += bool(judged.real)
        by_interval += not judged.interval[0] <= 0 <= judged.interval[1]
        covered += judged.interval[0] <= truth <= judged.interval[1]
    return Rates(real / seeds, by_interval / seeds, covered / seeds)


def _sums(values: Numbers) -> RowSums:
    return RowSums(("rows", "total"), np.column_stack([np.ones(len(values)), values]), values)


def write_output(folder: Path, rows: int, metrics: tuple[str, ...], seed: int, share: float) -> None:
    """The output of a score task with these metrics; all answers have the same text."""
    store = open_store(str(folder))
    bleu = METRICS["bleu"].row_sums
    settings = {"rows": rows, "metrics": metrics, "generation": {}, "data": {"prompt": "prompt"}}
    store.create("plan.json", json.dumps({"version": FORMAT, "rowsPerPart": ROWS_PER_PART, "settings": settings}).encode())
    for part, first in enumerate(range(0, rows, ROWS_PER_PART)):
        count = min(ROWS_PER_PART, rows - first)
        generator = np.random.default_rng([seed, part])
        numbers = np.arange(first, first + count)
        right = (generator.random(count) < share).astype(float)
        counts = generator.integers(0, 20, (len(bleu), count)).astype(float)
        counts[0] = 1
        columns = {
            "row": numbers,
            "row_hash": numbers * 2654435761 % 2**61,
            "output": pa.array(["an answer of some words"] * count),
            "error": pa.nulls(count, pa.string()),
            "nll": generator.exponential(20.0, count),
            "reference_tokens": generator.integers(1, 40, count),
            "exact_match": right,
            "rouge_l": np.clip(right * 0.5 + generator.random(count) / 2, 0, 1),
        }
        if "bleu" in metrics:
            columns["bleu_sums"] = pa.StructArray.from_arrays([pa.array(each) for each in counts], names=list(bleu))
        store.create(part_path(part), encoded(pa.table(columns), {}))


def measure(folder: Path) -> None:
    """Compare the two outputs below `folder`; print seconds, and peak memory in GB with that of the libraries."""
    before = _peak_gb()
    began = time.process_time()
    compare(str(folder / "tuned"), str(folder / "base"), names=("tuned", "base"))
    print(json.dumps({"cpu_s": time.process_time() - began, "peak_gb": _peak_gb(), "before_gb": before}))


def _peak_gb() -> float:
    """Peak of this process. Unlike that of `getrusage`, it does not begin with the peak of the parent."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / 1e9


def sized(rows: int, metrics: tuple[str, ...]) -> dict[str, float]:
    """What `measure` prints, in a process of its own."""
    with tempfile.TemporaryDirectory() as made:
        for seed, (name, share) in enumerate((("base", 0.5), ("tuned", 0.51))):
            write_output(Path(made) / name, rows, metrics, seed, share)
        done = subprocess.run([sys.executable, __file__, "--measure", made], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


SIZES = [(1_000_000, (*MEANS, "bleu")), (1_000_000, MEANS), (10_000_000, MEANS)]


def page(seeds: int, sizes: list[tuple[int, tuple[str, ...]]]) -> str:
    lines = [
        "# Comparing two models",
        "",
        f"`python benchmarks/paired_scores.py --seeds {seeds}`, {date.today()},",
        f"Python {platform.python_version()}, one of two cores, no GPU.",
        "",
        "## Error rates",
        "",
        f"Shares of {seeds:,} seeds, {DRAWS} draws each. *called real*: what a report says. Of equal models at most 5 % are to be.",
        "",
        "| answers | rows | true difference | called real | by the interval alone | interval holds the truth |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, rows, added in CASES:
        found = rates(MODELS[name], rows, added, seeds)
        shown = (f"{value:.1%}".replace("%", " %") for value in (found.real, found.by_interval, found.covered))
        lines.append(f"| {name} | {rows:,} | {'none' if not added else '0.05'} | {' | '.join(shown)} |")
        print(lines[-1], flush=True)
    lines += [
        "",
        "## Size",
        "",
        "Two outputs in parts of 65,536 rows on the local disk. Memory: peak of the process, and before it that of the libraries.",
        "A row's own BLEU is computed in Python, for wins and losses.",
        "",
        "| pairs of rows | metrics | CPU seconds | microseconds per pair | peak memory, GB | before, GB |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for rows, metrics in sizes:
        size = sized(rows, metrics)
        each = f"{size['cpu_s']:.1f} | {1e6 * size['cpu_s'] / rows:.1f} | {size['peak_gb']:.2f} | {size['before_gb']:.2f}"
        lines.append(f"| {rows:,} | {', '.join(metrics)} | {each} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        measure(asked.measure)
        return
    text = page(asked.seeds, SIZES)
    if asked.out is not None:
        asked.out.write_text(text)


if __name__ == "__main__":
    main()
