"""Memory and speed of a ranker as planned, beside what a rank takes while it trains.

python benchmarks/ranker_memory.py

Each ranker trains in a process of its own on one core, after a small one has loaded all libraries. Anonymous memory is read every 2 ms: the
rows of the data, which are mapped from disk, do not count. A step counts by the seconds that the process has computed, which other work on
the machine moves less than the clock: the shortest after the first. Writes docs/benchmarks/ranker_memory.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from training_cases import write_page

STEPS, ROWS = 4, 20_000


def rankers(seed: int, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Rankers at random, half of them with tables of hundreds of megabytes: their description, and fields of a task."""
    chance, found = random.Random(seed), []
    modules = ("dlrm", "attention", "convolution", "linear", "dcn")
    for number in range(count):
        width, batch = chance.choice((16, 32, 64)), chance.choice((2048, 4096, 8192))
        layers = [chance.sample(modules, chance.randint(1, 3)) for _ in range(chance.randint(1, 4))]
        rows = chance.randint(100_000, 1_000_000) if number % 2 else chance.randint(100, 10_000)
        names = chance.sample(("user", "item", "category", "hour", "device", "tags"), chance.randint(2, 6))
        sparse: list[dict[str, Any]] = [{"name": name, "rows": rows} for name in names]
        sparse += [{"name": "history", "rows": rows, "length": 12}] if chance.random() < 0.5 else []
        model = {"width": width, "outputs": chance.choice((4, 8, 16)), "layers": layers, "hidden": [chance.choice((64, 256, 1024))]}
        kind = chance.choice(("fp32", "fp32", "fp16"))
        recompute = chance.random() < 0.2
        fields = {"features": {"dense": ["number0", "number1"], "sparse": sparse}, "model": model, "batch": {"global": batch}}
        fields |= {"tables": {"rows": kind}, "strategy": {"recompute": recompute}}
        shown = "; ".join("+".join(each) for each in layers)
        size = f"{len(sparse)} tables of {rows:,} rows {kind}, width {width}"
        found.append((f"{size}, {model['outputs']} x ({shown}), batch {batch}{', recomputed' if recompute else ''}", fields))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=2611, help="of the rankers; 3 and 77 were looked at while the plan was made")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = rankers(options.seed, options.count)
    if options.case is not None:
        print(json.dumps(measured(cases[options.case][1], options.log)))
        return
    from tests.builders.rankers import write_clicks

    head = "| ranker | planned, GB | measured, GB | planned over measured | planned, s | measured, s | planned over measured |"
    lines, errors = [head, "|---|---|---|---|---|---|---|"], []
    speeds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        log = write_clicks(Path(folder) / "clicks.parquet", rows=ROWS)
        for number, (name, _) in enumerate(cases):
            command = [
                sys.executable,
                __file__,
                "--case",
                str(number),
                "--log",
                str(log),
                "--seed",
                str(options.seed),
                "--count",
                str(options.count),
            ]
            said = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
            if said.returncode:
                raise SystemExit(said.stderr[-3000:])
            found = json.loads(said.stdout.splitlines()[-1])
            memory, speed = (found[f"planned_{unit}"] / found[f"measured_{unit}"] for unit in ("gb", "s"))
            errors.append(abs(memory - 1))
            speeds.append(max(speed, 1 / speed))
            of_memory = f"{found['planned_gb']:.3f} | {found['measured_gb']:.3f} | {memory:.2f}"
            lines.append(f"| {name} | {of_memory} | {found['planned_s']:.3f} | {found['measured_s']:.3f} | {speed:.2f} |")
            print(lines[-1], file=sys.stderr, flush=True)
    off = f"{statistics.median(errors):.1%} in the median, {max(errors):.1%} at most"
    fast = f"a factor of {statistics.median(speeds):.2f} in the median, {max(speeds):.2f} at most"
    text = (
        f"One rank on one core, {STEPS} steps with a checkpoint in between, without the memory of libraries; rankers drawn at random with "
        f"seed {options.seed}. The rankers of seeds 3 and 77 were looked at while the plan was made, and no others. Memory is off by {off} "
        f"(aim: 6 % in the median). The time of a step is off by {fast}."
    )
    write_page("ranker_memory", "Memory and speed of rankers, planned and measured", [text, "", *lines])


def measured(fields: dict[str, Any], log: Path) -> dict[str, float]:
    from tests.builders.rankers import rank_request, rank_task

    from tuneyard.tracking import Step
    from tuneyard.training import train

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    clock: list[float] = []

    def emit(event: Any) -> None:
        if isinstance(event, Step):
            clock.append(time.process_time())

    base = {"batch": {"global": 4096}, "steps": STEPS, "checkpoint": {"everySteps": 2}}
    with tempfile.TemporaryDirectory() as folder:
        train(rank_request(Path(folder) / "first", rank_task(log, **(base | {"batch": {"global": 64}}))))
        gc.collect()
        request = rank_request(Path(folder) / "own", rank_task(log, **(base | fields)))
        before = anonymous_bytes()
        with Peak() as peak:
            train(request, emit=emit)
    planned = request.plan.memory.total_gb - request.plan.memory.libraries_gb
    steps = [after - earlier for earlier, after in pairwise(clock)]
    speed = request.plan.speed
    assert speed is not None
    return {
        "planned_gb": planned,
        "measured_gb": (peak.bytes - before) / 1e9,
        "planned_s": speed.step_s,
        "measured_s": min(steps),
    }


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
