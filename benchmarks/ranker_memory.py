"""Memory of a ranker as planned, beside what a rank takes while it trains.

python benchmarks/ranker_memory.py

Each ranker trains in a process of its own, after a small one has loaded all libraries; anonymous memory is read every 2 ms, so that the rows
of the data, which are mapped from disk, do not count. Writes docs/benchmarks/ranker_memory.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

STEPS, ROWS = 6, 20_000
FEATURES = {"dense": ["number0", "number1", "number2", "number3"]}


def tables(rows: int, count: int) -> dict[str, Any]:
    """Features with large tables: `item` and its copies in the log."""
    return FEATURES | {"sparse": [{"name": name, "rows": rows} for name in ("user", "item", "category", "hour", "device", "tags")[:count]]}


def with_history(rows: int) -> dict[str, Any]:
    return FEATURES | {"sparse": [{"name": "user", "rows": rows}, {"name": "history", "rows": rows, "length": 12}]}


CASES: list[tuple[str, dict[str, Any]]] = [
    ("tables of 6 M rows, width 32", {"features": tables(1_000_000, 6), "model": {"width": 32}}),
    ("tables of 12 M rows, width 16", {"features": tables(2_000_000, 6), "model": {"width": 16}}),
    ("tables of 4 M rows, width 64, fp16", {"features": tables(1_000_000, 4), "model": {"width": 64}, "tables": {"rows": "fp16"}}),
    ("tables of 2 M rows, width 64, a sequence", {"features": with_history(1_000_000), "model": {"width": 64}}),
    ("wide dense part", {"model": {"width": 64, "outputs": 16, "layers": [["dlrm", "dcn"]] * 3, "hidden": [2048, 1024]}}),
    ("four layers, batch 8192", {"model": {"width": 32, "layers": [["dlrm", "linear"]] * 4}, "batch": {"global": 8192}}),
    ("attention, batch 8192", {"model": {"width": 32, "layers": [["attention", "linear"]] * 2}, "batch": {"global": 8192}}),
    ("convolution, batch 4096", {"model": {"width": 32, "layers": [["convolution", "linear"]] * 2}, "batch": {"global": 4096}}),
    ("all modules, three layers", {"model": {"width": 32, "layers": [["dlrm", "attention", "convolution", "linear", "dcn"]] * 3}}),
    (
        "the same, recomputed",
        {"model": {"width": 32, "layers": [["dlrm", "attention", "convolution", "linear", "dcn"]] * 3}, "strategy": {"recompute": True}},
    ),
    (
        "tables and batch",
        {"features": tables(500_000, 6), "model": {"width": 32, "layers": [["dlrm", "dcn"]] * 2}, "batch": {"global": 8192}},
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=int)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measured(CASES[options.case][1], options.log)))
        return
    from tests.rankers import write_clicks

    lines, errors = ["| ranker | planned, GB | measured, GB | planned over measured |", "|---|---|---|---|"], []
    with tempfile.TemporaryDirectory() as folder:
        log = write_clicks(Path(folder) / "clicks.parquet", rows=ROWS)
        for number, (name, _) in enumerate(CASES):
            command = [sys.executable, __file__, "--case", str(number), "--log", str(log)]
            said = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
            if said.returncode:
                raise SystemExit(said.stderr[-3000:])
            found = json.loads(said.stdout.splitlines()[-1])
            errors.append(abs(found["planned_gb"] / found["measured_gb"] - 1))
            lines.append(
                f"| {name} | {found['planned_gb']:.3f} | {found['measured_gb']:.3f} | {found['planned_gb'] / found['measured_gb']:.2f} |"
            )
            print(lines[-1], file=sys.stderr, flush=True)
    page = [
        "# Memory of rankers, planned and measured",
        "",
        f"`python benchmarks/ranker_memory.py`, {time.strftime('%Y-%m-%d')}: one rank on cpu, {STEPS} steps, batches of 4,096 rows where nothing else is said, without the memory",
        f"of libraries. The plan is off by {statistics.median(errors):.1%} in the median, {max(errors):.1%} at most (aim: 6 % in the median).",
        "",
        *lines,
        "",
    ]
    (Path(__file__).parents[1] / "docs/benchmarks/ranker_memory.md").write_text("\n".join(page))
    print("\n".join(page))


def measured(fields: dict[str, Any], log: Path) -> dict[str, float]:
    from tests.rankers import rank_request, rank_task

    from tuneyard.training import train

    base = {"batch": {"global": 4096}, "steps": STEPS, "checkpoint": {"everySteps": 3}}
    with tempfile.TemporaryDirectory() as folder:
        train(rank_request(Path(folder) / "first", rank_task(log, **(base | {"batch": {"global": 64}}))))
        gc.collect()
        request = rank_request(Path(folder) / "own", rank_task(log, **(base | fields)))
        before = anonymous_bytes()
        with Peak() as peak:
            train(request)
    planned = request.plan.memory.total_gb - request.plan.memory.libraries_gb
    return {"planned_gb": planned, "measured_gb": (peak.bytes - before) / 1e9}


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system does not tell anonymous memory")


class Peak:
    """The most anonymous memory that this process had."""

    def __init__(self) -> None:
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self.bytes = max(self.bytes, anonymous_bytes())


if __name__ == "__main__":
    main()
