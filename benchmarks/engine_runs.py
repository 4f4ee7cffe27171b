"""Predicted beside measured seconds of score runs on this machine, round after round, with a history that begins empty.

`python benchmarks/engine_runs.py`: runs jobs of two models by `tuneyard run`, and writes docs/benchmarks/engine_runs.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.training_cases import write_page  # noqa: E402 -- found by the line above
from tests.builders.models import sentences, write_model  # noqa: E402

ROUNDS = 3
SHAPES = {
    "23M": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8},
    "3M": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4},
}


@dataclass(frozen=True)
class Job:
    model: str
    rows: int
    batch: int
    answer: int
    """maxTokens."""


JOBS = (Job("23M", 100, 16, 64), Job("23M", 400, 32, 32), Job("3M", 400, 32, 64), Job("23M", 100, 4, 96), Job("3M", 100, 64, 128))


def main() -> None:
    found: list[tuple[int, Job, dict[str, Any], float]] = []
    with tempfile.TemporaryDirectory(prefix="ty-engine-runs-") as name:
        folder = Path(name)
        _write_material(folder)
        for number in range(ROUNDS):
            for at, job in enumerate(JOBS):
                speed = _run(folder, job, f"{number}-{at}")
                found.append((number, job, speed, os.getloadavg()[0]))
                print(number, job, speed["sentence"], flush=True)
    write_page("engine_runs", "Score runs beside their prediction", [*_page(found)])


def _write_material(folder: Path) -> None:
    for name, shape in SHAPES.items():
        write_model(folder / name, num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=1024, **shape)
    texts = sentences(max(job.rows for job in JOBS) + 2)
    for rows in {job.rows for job in JOBS}:
        lines = [json.dumps({"question": " ".join(texts[i : i + 3])}) for i in range(rows)]
        (folder / f"{rows}.jsonl").write_text("\n".join(lines) + "\n")


def _run(folder: Path, job: Job, name: str) -> dict[str, Any]:
    """`details.speed` of a run."""
    score = {
        "model": {"name": f"./{job.model}"},
        "data": {"source": f"{job.rows}.jsonl", "prompt": "question"},
        "engine": {"batch": job.batch},
        "generation": {"maxTokens": job.answer, "temperature": 1, "seed": 1},
    }
    task = {"name": "judge", "score": score, "resources": {"sku": ["cpu"]}}
    metadata = {"name": f"{job.model.lower()}-{job.rows}-{job.batch}-{job.answer}"}
    file = folder / f"{name}.yaml"
    file.write_text(
        yaml.safe_dump({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": metadata, "spec": {"tasks": [task]}})
    )
    environment = {**os.environ, "TUNEYARD_HISTORY": "on", "TUNEYARD_HISTORY_URL": f"sqlite:///{folder}/history.db"}
    command = [str(Path(sys.executable).with_name("tuneyard")), "run", str(file), "--out", str(folder / f"out-{name}")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    report = json.loads((folder / f"out-{name}" / "report.json").read_text())
    speed: dict[str, Any] = report["tasks"]["judge"]["details"]["speed"]
    return speed


def _page(found: Sequence[tuple[int, Job, dict[str, Any], float]]) -> Iterator[str]:
    later = [speed for number, _, speed, _ in found if number]
    off = [abs(speed["predicted_s"] / speed["measured_s"] - 1) for speed in later]
    whole = [abs(speed["expected_s"] / speed["took_s"] - 1) for speed in later]
    yield from (
        "Aim: predicted and measured within 20 % once the history has runs of this machine.",
        "",
        f"From the second round on, the time of the rows was predicted with a median error of **{median(off):.0%}**, and"
        f" {sum(each <= 0.2 for each in off)} of {len(off)}",
        f"runs within 20 %. The time of the whole task, as expected before the run with the start of engines: {median(whole):.0%}.",
        "",
        "Two Llama-shaped models with random weights, one engine in fp32, answers by sampling. The history is empty before the first run,",
        "and each prediction uses the runs above it. `load` is the load average of the machine after the run: a load above its cores means",
        "that other programs took part of them, more in one run than in another.",
        "",
        "| round | model | rows | batch | maxTokens | load | runs known | rows took | predicted | off | task took | expected | off |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    )
    for number, job, speed, load in found:
        measured, predicted, took, expected = (speed[name] for name in ("measured_s", "predicted_s", "took_s", "expected_s"))
        yield (
            f"| {number + 1} | {job.model} | {job.rows} | {job.batch} | {job.answer} | {load:.0f} | {speed['runs']} | {measured:.1f} s | "
            f"{predicted:.1f} s | {predicted / measured - 1:+.0%} | {took:.0f} s | {expected:.0f} s | {expected / took - 1:+.0%} |"
        )


if __name__ == "__main__":
    main()
