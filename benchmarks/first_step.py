"""Seconds to the first step on text data of 0.05 to 10 GB, of one part and of three, and steps per second afterwards.

`python benchmarks/first_step.py` writes the texts (Python's sources in texts of 4 KiB, each with a number of its own; 12 GB), and runs the
same train task of 40 steps on each of them as `python -m tuneyard.training`. Each run has an empty cache, or (`prepared already`) the
prepared rows of the run before it. Runs with a data set for evaluation are ended before their evaluation, which would take many minutes.
Writes docs/benchmarks/first_step.md. `--before CHECKOUT`: an older tree of this project, which runs the 0.3 GB case too. `--folder`: where
texts, caches and outputs lie until the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.stream_first_step import _texts  # noqa: E402
from benchmarks.training_cases import write_page  # noqa: E402

STEPS, SETTLED = 40, 10
"""Steps of a run, and the first of those whose pace counts."""
_GB = 1_000_000_000
_COMPARED = 0.3
"""GB of the data that are also prepared, and evaluated on."""
_MANY_PARTS, _MANY_GB = 12, 0.36
_LOOK_S = 0.1
_HEAD = """\
{steps} steps of 8 packed rows of 256 tokens (batch.micro 4) on a llama of 2 layers and 64 dimensions, one thread, with a tokenizer of 4,000
tokens. The texts are Python's sources in texts of 4 KiB. All figures of a first step are those beyond the start of a rank, which are minus
those of the same run on 64 lines: {start:.1f} s, {cpu:.1f} processor seconds and {memory:.2f} GB. Processor seconds are those of all
processes; two cores take at least half as long. Memory is that of all processes at most, without files (Pss_Anon). Steps/s
are those from step {settled} on."""


@dataclass
class Run:
    """`first_s`: from the start of the process to the end of step 1. `cpu_s`: processor seconds of all its processes until then. `loss`:
    of the last step.
    """

    first_s: float
    cpu_s: float
    memory_gb: float
    steps_per_s: float
    loss: float | None
    streamed: bool


@dataclass
class Case:
    """A task on `sources`. `streaming` None: the default. `warm`: with the cache that the case before has left. `validation`: a data set
    for evaluation.
    """

    name: str
    sources: list[Path]
    how: str
    streaming: bool | None = None
    warm: bool = False
    tree: Path = ROOT
    validation: Path | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--sizes", type=float, nargs="*", default=[0.05, 0.3, 1.3, 10.0], help="GB")
    parser.add_argument("--compare", action=argparse.BooleanOptionalAction, default=True, help="prepare one size whole, too")
    parser.add_argument("--results", type=Path, help="a file of results so far, which is added to")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name).absolute()
        results = given.results or folder / "results"
        write_model(folder / "model")
        if not results.exists():
            measure(Case("64 lines", [write_texts(folder / "tiny.jsonl", 0)], "prepared"), folder, results)
        for size in given.sizes:
            whole = [write_texts(folder / "whole.jsonl", int(size * _GB))]
            measure(Case(f"{size:g} GB", whole, "by default"), folder, results)
            if size == _COMPARED and given.compare:
                before = Case(f"{size:g} GB", whole, "by default, before", tree=given.before) if given.before else None
                measure(before or Case(f"{size:g} GB", whole, "`streaming: false`", streaming=False), folder, results)
                measure(Case(f"{size:g} GB", whole, "by default, prepared already", warm=True), folder, results)
                held_out = [write_texts(folder / "held-out.jsonl", int(size * _GB))]
                name = f"{size:g} GB, and {size:g} GB of `validation`"
                measure(Case(name, whole, "by default", validation=held_out[0]), folder, results)
                remove(held_out)
            parts = cut(whole[0], (0.6, 0.3, 0.1))
            measure(Case(f"{size:g} GB, three parts", parts, "by default"), folder, results)
            remove([*whole, *parts])
        if given.compare:
            whole = [write_texts(folder / "whole.jsonl", int(_MANY_GB * _GB))]
            parts = cut(whole[0], (1 / _MANY_PARTS,) * _MANY_PARTS)
            measure(Case(f"{_MANY_GB:g} GB, {_MANY_PARTS} parts", parts, "by default"), folder, results)
            remove([*whole, *parts])
        report([json.loads(line) for line in results.read_text().splitlines()])


def report(results: list[dict[str, Any]]) -> None:
    base = results[0]
    lines = _HEAD.format(steps=STEPS, start=base["first_s"], cpu=base["cpu_s"], memory=base["memory_gb"], settled=SETTLED).splitlines()
    lines += ["", f"| data | rows | streamed | first step | processor seconds | memory | steps/s | loss of step {STEPS} |"]
    lines += ["|---|---|---|---:|---:|---:|---:|---:|"]
    for found in results[1:]:
        first, cpu = (found[name] - base[name] for name in ("first_s", "cpu_s"))
        memory = f"{found['memory_gb'] - base['memory_gb']:.2f} GB" if found["memory_gb"] else ""
        loss = "" if found["loss"] is None else repr(found["loss"])
        figures = f"{first:.1f} s | {cpu:.1f} | {memory} | {found['steps_per_s']:.1f} | {loss}"
        lines.append(f"| {found['name']} | {found['how']} | {'yes' if found['streamed'] else 'no'} | {figures} |")
    write_page("first_step", "The first step on text of 0.05 to 10 GB", lines)


def measure(case: Case, folder: Path, results: Path) -> None:
    """Run a case, and add its result."""
    found = {"name": case.name, "how": case.how, **asdict(run(case, folder))}
    print(found, flush=True)
    with results.open("a") as file:
        file.write(json.dumps(found) + "\n")


def run(case: Case, folder: Path) -> Run:
    """Run a case in a process of its own."""
    cache, out = folder / "cache", folder / "out"
    if not case.warm:
        shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    job = folder / "job.yaml"
    job.write_text(yaml.safe_dump(job_of(case, folder)))
    command = [sys.executable, "-u", "-m", "tuneyard.training", str(job), "--task", "train", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(case.tree.resolve() / "platform"), "TUNEYARD_CACHE": str(cache)}
    environment["OMP_NUM_THREADS"] = "1"
    began, at, said = time.monotonic(), dict[int, float](), list[str]()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    memory = Memory(process.pid)
    cpu_s, last = 0.0, STEPS - 1 if case.validation else STEPS
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if step := re.match(r"step (\d+)/", line):
            at[int(step[1])] = time.monotonic() - began
            cpu_s = cpu_s or memory.cpu_s()
            if int(step[1]) == last and case.validation:
                process.kill()
    if process.wait() and last not in at:
        raise RuntimeError("".join(said)[-3000:])
    pace = (last - SETTLED) / (at[last] - at[SETTLED])
    if case.validation:
        return Run(at[1], cpu_s, memory.most, pace, None, any(line.startswith("streaming about") for line in said))
    result = json.loads((out / "train" / "result.json").read_text())
    return Run(at[1], cpu_s, memory.most, pace, result["losses"][-1], bool(result["details"]["data"]["streamed"]))


def job_of(case: Case, folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = {"pack": True, "maxLength": 256, "format": "text", "showSample": False}
    if case.streaming is not None:
        data["streaming"] = case.streaming
    if case.validation is not None:
        data["validation"] = {"source": str(case.validation)}
    if len(case.sources) == 1:
        data["source"] = str(case.sources[0])
    else:
        data["mix"] = [{"source": str(source)} for source in case.sources]
    train = {
        "model": {"name": str(folder / "model")},
        "data": data,
        "objective": "clm",
        "batch": {"global": 8, "micro": 4},
        "steps": STEPS,
        "strategy": {"zero": 0, "precision": "fp32"},
        "checkpoint": {"everySteps": STEPS},
    }
    spec = {"tasks": [{"name": "train", "train": train}]}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "first-step"}, "spec": spec}


class Memory:
    """Watches a process and its children. `most`: GB at most, without files (Pss_Anon)."""

    def __init__(self, pid: int) -> None:
        self.most = 0.0
        self._process = psutil.Process(pid)
        threading.Thread(target=self._watch, daemon=True).start()

    def cpu_s(self) -> float:
        """Processor seconds of the process and its children so far, of ended ones too."""
        times = self._process.cpu_times()
        running = [child.cpu_times() for child in self._process.children(recursive=True)]
        return sum(times[:4]) + sum(sum(each[:4]) for each in running)

    def _watch(self) -> None:
        while True:
            try:
                together = [self._process, *self._process.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            held = sum(_anonymous_bytes(each.pid) for each in together)
            self.most = max(self.most, held / 1e9)
            time.sleep(_LOOK_S)


def _anonymous_bytes(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss_Anon")), 0)


def write_texts(path: Path, size_bytes: int) -> Path:
    """At least 64 lines, and about `size_bytes`."""
    texts = [json.dumps(text).encode()[1:] for text in _texts()]
    with path.open("wb") as out:
        written = number = 0
        while written < size_bytes or number < 64:
            written += out.write(b'{"text": "%d %s}\n' % (number, texts[number % len(texts)]))
            number += 1
    return path


def cut(path: Path, shares: tuple[float, ...]) -> list[Path]:
    """The lines of a file as several files."""
    parts, size = [], path.stat().st_size
    with path.open("rb") as whole:
        for number, share in enumerate(shares):
            part = path.with_name(f"part-{number}.jsonl")
            left = int(share * size)
            with part.open("wb") as out:
                while left > 0 and (block := whole.read(min(left, 16 << 20))):
                    left -= out.write(block)
                out.write(whole.readline())
            parts.append(part)
    return parts


def remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def write_model(folder: Path) -> None:
    from tests.builders import models

    texts = tuple(_texts()[:500])
    models.write_model(folder, vocab_size=4096)
    models.tokenizer_of([], eos="<|end|>", chat_template=None, size=4000, texts=texts).save_pretrained(folder)


if __name__ == "__main__":
    main()
