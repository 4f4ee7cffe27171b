"""The scorer of today against that before (input order, 64 rows in flight, small steps), and against Ray Data LLM, on the same rows.

python benchmarks/scoring_peer.py [--case CASE] [--rows 192] [--pairs 2] [--results FILE] [--out docs/benchmarks/scoring_peer.md]

All sides run vLLM with the same settings (fp32, eager, the same model, maxLength and KV cache), a new engine for each run, greedy. The time
of a side is from the first row in its engine to the last answer (ours: to the last committed part), so that no load is in it. Sides
alternate in order; ratios are within pairs. A run may take minutes: --results collects the pairs of several.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.builders.models import TEXT, write_model

from tuneyard.api import ScoreTask
from tuneyard.runtime.score.pool import WorkerPool
from tuneyard.runtime.sessions.session import ray_session
from tuneyard.scoring import Loaded, ScoreRequest, Work, engine, work_of
from tuneyard.scoring.exchange import Asked
from tuneyard.scoring.settings import ENGINE_ENVIRONMENT, ENGINE_ENVIRONMENT_ON_CPU
from tuneyard.scoring.vllm_worker import VllmWorker
from tuneyard.tracking import silent

MAX_LENGTH, KV_CACHE = 1024, 1024**3
MAX_TOKENS = {"prefixes": 16, "lengths": 48}
BATCH_BEFORE, BATCH_AUTO = 64, 227
TOKENS_BEFORE, TOKENS_NOW = 2048, 4096
"""Of a step, at most."""
SIDES = ("before", "now", "ray")


class Before(VllmWorker):
    """The scorer before: requests in input order, steps of at most 2048 tokens."""

    def load(self) -> Loaded:
        arguments = engine.engine_arguments
        engine.engine_arguments = lambda settings: {**arguments(settings), "max_num_batched_tokens": TOKENS_BEFORE}
        return super().load()

    def _ordered(self, requests: list[Asked]) -> list[Asked]:
        return requests


def prompts_of(case: str, rows: int) -> list[str]:
    """prefixes: twelve instructions of about 500 tokens in turn, each with a question. lengths: 4 to 900 tokens, evenly by logarithm."""
    chance, words = random.Random(7), TEXT.split()

    def text(count: int) -> str:
        return " ".join(chance.choices(words, k=count))

    if case == "lengths":
        return [text(round(3 * 220 ** chance.random())) for _ in range(rows)]
    instructions = [text(400) for _ in range(12)]
    return [f"{instructions[row % 12]} {text(8)}" for row in range(rows)]


@dataclass(frozen=True)
class Run:
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def request(folder: Path, output: str, case: str, batch: int | str) -> ScoreRequest:
    task = {
        "model": {"name": "tiny"},
        "data": {"source": str(folder / "rows.jsonl"), "chat": False},
        "generation": {"maxTokens": MAX_TOKENS[case]},
        "engine": {"batch": batch, "maxLength": MAX_LENGTH, "kvCache": str(KV_CACHE)},
    }
    score = ScoreTask.model_validate(task)
    return ScoreRequest(job="bench", name="score", task=score, model_uri=str(folder / "model"), output=output, scratch=str(folder))


class Pool(WorkerPool):
    """The pool as it is, around an engine of this class that gets all cores."""

    def __init__(self, work: Work, worker: type) -> None:
        super().__init__(work, silent)
        self._class = worker

    def new_worker(self, rank: int = 0) -> Any:  # noqa: ARG002 - as the pool asks
        cores = len(os.sched_getaffinity(0))
        options = {"num_cpus": 0, "max_concurrency": 8, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(cores)}}}
        return ray.remote(self._class).options(**options).remote(self._order)


def run_ours(asked: ScoreRequest, worker: type) -> Run:
    """Tokens, and seconds from the first hand-out to the last commit, of a new engine."""
    work = work_of(asked)
    pool = Pool(work, worker)
    pool.run(lambda: False)
    pool.close()
    measured = pool.measured(wall_s=0.0, stopped=False)
    assert measured.settings is not None
    assert measured.settings.batch in (BATCH_BEFORE, BATCH_AUTO)
    return Run(work.counted.output_tokens, measured.generation_s)


def run_ray(prompts: list[str], folder: Path, case: str) -> Run:
    """Ray Data LLM: tokens, and seconds from the first row in the engine to the last answer."""
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    cores = len(os.sched_getaffinity(0))
    config = vLLMEngineProcessorConfig(
        model_source=str(folder / "model"),
        engine_kwargs={
            "dtype": "float32",
            "max_model_len": MAX_LENGTH,
            "max_num_seqs": BATCH_AUTO,
            "max_num_batched_tokens": TOKENS_NOW,
            "kv_cache_memory_bytes": KV_CACHE,
            "enforce_eager": True,
            "disable_log_stats": True,
        },
        concurrency=1,
        log_engine_metrics=False,
        batch_size=BATCH_AUTO,
        chat_template_stage={"enabled": False},
        tokenize_stage={"enabled": True},
        detokenize_stage={"enabled": False},
        placement_group_config={"bundles": [{"CPU": 1}]},
        runtime_env={"env_vars": {**ENGINE_ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(cores)}},
    )
    processor = build_processor(
        config,
        preprocess=lambda row: {"prompt": row["prompt"], "sampling_params": {"max_tokens": MAX_TOKENS[case], "temperature": 0.0}},
        postprocess=lambda row: {
            "tokens": row["num_generated_tokens"],
            "taken_s": row["time_taken_llm"],
            "ended": time.time(),
        },
    )
    rows = processor(ray.data.from_items([{"prompt": prompt} for prompt in prompts], override_num_blocks=2)).take_all()
    began = min(row["ended"] - row["taken_s"] for row in rows)
    return Run(sum(row["tokens"] for row in rows), max(row["ended"] for row in rows) - began)


def measure(folder: Path, case: str, rows: int, numbers: range) -> list[dict[str, Run]]:
    prompts = prompts_of(case, rows)
    (folder / "rows.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    found = []
    for number in numbers:
        runs = {}
        for name in SIDES if number % 2 == 0 else SIDES[::-1]:
            output = str(folder / f"{case}-{name}-{number}")
            if name == "ray":
                runs[name] = run_ray(prompts, folder, case)
            elif name == "before":
                runs[name] = run_ours(request(folder, output, case, BATCH_BEFORE), Before)
            else:
                runs[name] = run_ours(request(folder, output, case, "auto"), VllmWorker)
            print(f"{case}, pair {number + 1}, {name}: {runs[name].rate:.0f} tokens/s", file=sys.stderr, flush=True)
        found.append(runs)
    return found


def add_to(results: Path, case: str, rows: int, found: list[dict[str, Run]]) -> None:
    """Several short runs make one page."""
    with results.open("a") as file:
        for runs in found:
            sides = {side: [run.tokens, round(run.seconds, 3)] for side, run in runs.items()}
            file.write(json.dumps({"case": case, "rows": rows, **sides}) + "\n")


def as_page(results: Path, arguments: argparse.Namespace) -> str:
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    tables, sums = [], []
    for case in dict.fromkeys(line["case"] for line in lines):
        own = [line for line in lines if line["case"] == case]
        rates = [{"rows": line["rows"]} | {side: line[side][0] / line[side][1] for side in SIDES} for line in own]
        rows = [
            f"| {r['rows']} | {r['before']:.0f} | {r['now']:.0f} | {r['ray']:.0f} | "
            f"{r['now'] / r['before']:.2f} | {r['now'] / r['ray']:.2f} |"
            for r in rates
        ]
        tables.append(f"## {TITLES[case]}\n\nAt most {MAX_TOKENS[case]} tokens of each answer.\n\n{HEAD}\n" + "\n".join(rows))
        for title, side in (("the scorer before", "before"), ("Ray Data LLM", "ray")):
            ratios = [r["now"] / r[side] for r in rates]
            middle = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f}; pairs: {len(ratios)})"
            sums.append(f"- {TITLES[case]}, against {title}: {middle}")
    cores = len(os.sched_getaffinity(0))
    return f"""# The scorer against Ray Data LLM, and against itself before

`python benchmarks/scoring_peer.py --rows {arguments.rows} --pairs {arguments.pairs}`,
{datetime.date.today().isoformat()}, {cores} cores, no GPU ({platform.machine()}), vLLM {version("vllm-cpu")}, Ray {version("ray")}.

One engine, greedy, fp32 and eager, the same model (6 layers of width 256, random weights), maxLength {MAX_LENGTH},
a KV cache of {KV_CACHE >> 20} MiB, prefix caching on; loaded anew for each run. *before*: requests in input order,
{BATCH_BEFORE} in flight, steps of {TOKENS_BEFORE} tokens. *now*: requests ordered, `batch: auto` ({BATCH_AUTO} here), steps of
{TOKENS_NOW} tokens. *Ray Data LLM*: `ray.data.llm.build_processor` with `max_num_seqs` and `batch_size` {BATCH_AUTO},
`max_num_batched_tokens` {TOKENS_NOW}.
Figures are output tokens/s, from the first row in the engine to the last answer; ours includes the commit
of each part, and loading is in none. The order of the sides alternates from pair to pair. Only
ratios within a pair count. Pairs that were measured beside other programs had ratios from 0.51 to 1.90, and are of no use.

{chr(10).join(sums)}

{(chr(10) * 2).join(tables)}
"""


HEAD = "| rows | before | now | Ray Data LLM | now / before | now / Ray Data LLM |\n|---|---|---|---|---|---|"
TITLES = {"prefixes": "Rows with twelve long shared prefixes", "lengths": "Rows of mixed lengths"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=sorted(MAX_TOKENS), action="append", help="repeatable; default: both")
    parser.add_argument("--rows", type=int, default=192)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--results", type=Path, help="JSON lines of measured pairs, added to; the page shows all of them")
    parser.add_argument("--out", type=Path, help="where to write the page")
    arguments = parser.parse_args()
    os.environ.update(ENGINE_ENVIRONMENT | ENGINE_ENVIRONMENT_ON_CPU)
    with tempfile.TemporaryDirectory(prefix="ty-bench-") as name:
        folder = Path(name)
        results = arguments.results or folder / "results.jsonl"
        shape = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4}
        write_model(folder / "model", max_position_embeddings=2048, **shape)
        # Ray Data counts a core for each of its stages: with fewer, its engine would wait for them.
        with ray_session(address=None, cpus=8, gpus=0, values={}, setup=[], secrets=[], run="bench"):
            first = len(results.read_text().splitlines()) // 2 if results.exists() else 0
            for case in (arguments.case or sorted(MAX_TOKENS)) if arguments.pairs else []:
                add_to(results, case, arguments.rows, measure(folder, case, arguments.rows, range(first, first + arguments.pairs)))
        page = as_page(results, arguments)
    print(page)
    if arguments.out is not None:
        arguments.out.write_text(page)


if __name__ == "__main__":
    main()
