"""Seconds until ranks and engines are ready, cold beside forked; a job's first step, its next task, and a killed rank.

`python benchmarks/warm_starts.py [--pairs N] [--jobs N]`: pairs in turn; writes docs/benchmarks/warm_starts.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.builders.models import write_chats, write_model  # noqa: E402

from tuneyard.runtime.sessions.stacks import Stack, engine_stack, train_stack  # noqa: E402
from tuneyard.warm import Started, WarmServer, start, without  # noqa: E402

PAGE = ROOT / "docs/benchmarks/warm_starts.md"
TUNEYARD = str(Path(sys.executable).with_name("tuneyard"))
STEPS = 40


# --- in the processes that are measured


def rank() -> None:
    """Has loaded what a rank loads, and says so."""
    stack = train_stack([])
    with without(stack.absent):
        import tuneyard.training.entry
        import tuneyard.training.zero_stack  # noqa: F401
    _ready()


def engine() -> None:
    """Has loaded an engine of a tiny model, as `scoring` does, and says so."""
    for name, value in engine_stack().settings:
        os.environ.setdefault(name, value)
    from vllm import LLM

    LLM(os.environ["BENCH_MODEL"], enforce_eager=True, dtype="float32", max_model_len=256, kv_cache_memory_bytes=64 << 20)
    _ready()


def _ready() -> None:
    channel = int(sys.argv[-1])
    os.write(channel, b"r")
    os.close(channel)
    signal.pause()


# --- measuring


def ready_s(count: int, server: Path | None, function: str) -> tuple[float, float]:
    """Seconds until `count` processes are ready, and the mean of their own memory (PSS), MB."""
    began = time.perf_counter()
    started: list[tuple[Started, int]] = []
    for _ in range(count):
        reading, writing = os.pipe()
        process, why = start(server, f"benchmarks.warm_starts:{function}", descriptors=lambda writing=writing: [writing])
        os.close(writing)
        if server is not None and why:
            raise SystemExit(f"not forked: {why}")
        started.append((process, reading))
    for _, reading in started:
        if os.read(reading, 1) != b"r":
            raise SystemExit("a process died before it was ready")
        os.close(reading)
    seconds = time.perf_counter() - began
    own = statistics.mean(_pss_mb(process.pid) for process, _ in started)
    for process, _ in started:
        process.kill()
        process.wait()
    return seconds, own


def _pss_mb(pid: int) -> float:
    return sum(int(kb) for kb in re.findall(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)) / 1024


def compared(name: str, count: int, function: str, stack: Stack, pairs: int, log: Path) -> str:
    """A row: cold and forked in turn."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    os.environ.update(environment)
    began = time.perf_counter()
    server = WarmServer(stack.modules, absent=stack.absent, settings=dict(stack.settings), environment=environment, log=log)
    try:
        ready_s(1, server.socket, function)
        loading = time.perf_counter() - began
        rows = []
        for _ in range(pairs):
            rows.append((ready_s(count, None, function), ready_s(count, server.socket, function)))
            print(f"{name}: cold {rows[-1][0][0]:.1f} s, forked {rows[-1][1][0]:.1f} s", flush=True)
    finally:
        server.close()
    cold, warm = [row[0] for row in rows], [row[1] for row in rows]
    ratio = statistics.median(c[0] / w[0] for c, w in rows)
    return (
        f"| {name} | {_spread([c[0] for c in cold])} | {_spread([w[0] for w in warm])} | {ratio:.1f}x"
        f" | {statistics.median(c[1] for c in cold):.0f} | {statistics.median(w[1] for w in warm):.0f} | {loading:.1f} |"
    )


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


# --- jobs


def job(folder: Path, *, steps: int = STEPS) -> Path:
    task: dict[str, Any] = {
        "model": {"name": "model"},
        "data": {"source": "chats.jsonl", "maxLength": 64},
        "optimizer": {"learningRate": 1e-3},
        "batch": {"global": 8, "micro": 2},
        "steps": steps,
        "strategy": {"zero": 2},
        "checkpoint": {"everySteps": 5},
    }
    tasks = [{"name": name, "train": task, "resources": {"workers": 2}} for name in ("first", "second")]
    tasks[1]["dependsOn"] = ["first"]
    path = folder / "job.yaml"
    meta = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "bench"}, "spec": {"tasks": tasks}}
    path.write_text(yaml.safe_dump(meta))
    return path


DRIVER = """
import json, sys, time
from pathlib import Path
began = float(sys.argv[3])
from tuneyard.api import load_jobspec
from tuneyard.runtime import run_job
from tuneyard.tracking import Step, TaskEvent, Warned
def tell(event):
    if isinstance(event, Step | TaskEvent | Warned):
        step = getattr(event, "step", 0)
        print(json.dumps([time.time() - began, event.task, type(event).__name__, step, getattr(event, "state", "")]),
              file=sys.stderr, flush=True)
run_job(load_jobspec(Path(sys.argv[1])), base_dir=Path(sys.argv[1]).parent, out=sys.argv[2], listener=tell)
"""


def run(folder: Path, out: str, *, warm: bool, kill_at: int = 0) -> dict[str, Any]:
    """Seconds from the start of the process to the first step, from the second task's start to its first step, and, with `kill_at`, from
    the SIGKILL of rank 1 at that step to the next step that none had done before."""
    environment = {**os.environ, "TUNEYARD_HISTORY": "off", **({} if warm else {"TUNEYARD_WARM_SERVERS": "off"})}
    began = time.time()
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(job(folder)), str(folder / out), str(began)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    found: dict[str, Any] = {"losses": {}}
    second_began, killed, furthest, again = 0.0, 0.0, 0, False
    for line in process.stderr:
        if not line.startswith("["):
            continue
        seconds, task, kind, step, state = json.loads(line)
        if kind == "TaskEvent" and state == "started" and task == "second":
            second_began = second_began or seconds
        again = again or (killed > 0 and kind == "Warned")  # that the next attempt starts: steps on their way by then are no new ones
        if kind != "Step":
            continue
        if task == "first":
            found.setdefault("first_step_s", seconds)
            if kill_at and step == kill_at and not killed:
                log = (folder / out / "logs" / "first-rank-1.log").read_text()
                os.kill(int(re.findall(r"process (\d+)", log)[-1]), signal.SIGKILL)
                killed = seconds
            elif again and step > furthest and "repaired_s" not in found:
                found["repaired_s"] = seconds - killed
            furthest = max(furthest, step)
        elif "next_task_s" not in found:
            found["next_task_s"] = seconds - second_began
    if process.wait() != 0:
        raise SystemExit("the job failed")
    report = json.loads((folder / out / "report.json").read_text())
    if kill_at and "repaired_s" not in found:
        raise SystemExit("rank 1 was not killed, or nothing came after it")
    found["losses"] = {name: task["losses"] for name, task in report["tasks"].items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model", max_position_embeddings=2048, hidden_size=128, num_attention_heads=4, num_key_value_heads=4)
        write_chats(folder / "chats.jsonl")
        os.environ["BENCH_MODEL"] = str(folder / "model")
        log = folder / "server.log"
        rows = [
            compared("2 ranks", 2, "rank", train_stack([]), options.pairs, log),
            compared("4 ranks", 4, "rank", train_stack([]), options.pairs, log),
            compared("1 engine, loaded", 1, "engine", engine_stack(), options.pairs, log),
        ]
        runs = [(run(folder, f"warm{i}", warm=True), run(folder, f"cold{i}", warm=False)) for i in range(options.jobs)]
        kills = [run(folder, f"kill{i}", warm=True, kill_at=12) for i in range(options.jobs)]
    every = [found["losses"] for pair in runs for found in pair] + [found["losses"] for found in kills]
    equal = all(losses == every[0] for losses in every)

    def of(which: int, key: str) -> str:
        return _spread([pair[which][key] for pair in runs])

    page = f"""# Warm starts

`python benchmarks/warm_starts.py --pairs {options.pairs} --jobs {options.jobs}`, {datetime.now(UTC):%Y-%m-%d},
2 cores, 24 GiB, no GPU; virtual and noisy: look
at the ratios. Cold and forked in turn. Medians (smallest to largest). A process is ready when its stack is imported; an engine when it has
loaded a tiny model. Memory: proportional set size (PSS) of a process when it is ready.

| ready | cold, s | forked, s | ratio | cold, MB each | forked, MB each | the server itself loads in, s |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

`tuneyard run` of two train tasks (tiny model, 2 ranks, ZeRO 2, {STEPS} steps each), from the start of the process:

| | cold (`TUNEYARD_WARM_SERVERS=off`) | with fork servers | aim |
|---|---|---|---|
| first optimizer step, s | {of(1, "first_step_s")} | {of(0, "first_step_s")} | 10 |
| second task, from its start to its first step, s | {of(1, "next_task_s")} | {of(0, "next_task_s")} | 3 |
| rank 1 killed (SIGKILL) at step 12: until the next new step, s | | {_spread([found["repaired_s"] for found in kills])} | 8 |

Losses of both tasks in all {len(every)} runs, cold, forked, and killed: {"equal, bit for bit" if equal else "NOT EQUAL"}.
"""
    PAGE.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
