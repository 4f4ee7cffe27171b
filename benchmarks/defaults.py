"""Data sets through `tuneyard init`, untouched, to answers: exact match of held-out prompts, beside an expert's job on the same model.

`python benchmarks/defaults.py [--folder build/defaults] [--only NAME …] [--again]`: writes docs/benchmarks/defaults.md. What has been
measured stays in the folder with its date, and is not measured again without `--again`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.defaults_data import DataSet, data_sets  # noqa: E402 -- found by the line above
from benchmarks.defaults_model import CHATS, STEPS, small_chat_model  # noqa: E402
from benchmarks.training_cases import write_page  # noqa: E402

from tuneyard.api import load_jobspec  # noqa: E402
from tuneyard.cli import main as tuneyard  # noqa: E402

MOST_TOKENS = 48
EXPERT: dict[str, dict[str, Any]] = {
    "sft": {"method": {"full": {}}, "optimizer": {"learningRate": 1e-3}, "batch": {"global": 16}, "steps": 250},
    "dpo": {"method": {"full": {}}, "optimizer": {"learningRate": 5e-5}, "batch": {"global": 16}, "steps": 100},
}
"""Settings of one who knows this model."""
Figures = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description="Jobs of `tuneyard init` beside an expert's: see the docstring.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "defaults")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some data sets; default: all")
    parser.add_argument("--jobs", nargs="+", choices=("init", "expert", "base"), default=("init", "expert", "base"))
    parser.add_argument("--again", action="store_true", help="measure what has been measured")
    given = parser.parse_args()
    folder: Path = given.folder.absolute()
    model = small_chat_model(folder / "small")
    kept = folder / "results.json"
    results: dict[str, Figures] = json.loads(kept.read_text()) if kept.exists() else {}
    with _fork_server(folder):
        for data in data_sets():
            if given.only and data.name not in given.only:
                continue
            for job in given.jobs:
                if given.again or job not in results.get(data.name, {}):
                    found = {"date": date.today().isoformat(), **_JOBS[job](data, folder / data.name / job, model)}
                    results.setdefault(data.name, {})[job] = found
                    print(f"{data.file} {job}: {results[data.name][job]}", file=sys.stderr, flush=True)
                    kept.write_text(json.dumps(results, indent=1))
    write_page("defaults", "What `tuneyard init` writes, beside an expert's job", list(page(results)))
    return 0


@contextlib.contextmanager
def _fork_server(folder: Path) -> Iterator[None]:
    """One for the ranks of all runs: each would load torch anew."""
    socket = folder / "training"
    socket.unlink(missing_ok=True)
    os.environ |= {"TUNEYARD_WARM_SERVERS": str(folder), "TUNEYARD_HISTORY": "off"}
    server = subprocess.Popen([sys.executable, "-m", "tuneyard.runtime.stack_server", "training", str(socket)])
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def by_init(data: DataSet, folder: Path, model: Path) -> Figures:
    """The job that `init` writes, as it is, for the file and the model and nothing else."""
    with _in(data, folder):
        code, said = _command("init", "--data", data.file, "--model", str(model), "--force")
        if code:
            return {"refused": said}
        code, warned = _command("validate", "job.yaml")
        if code:
            return {"refused": warned}
        return _run_and_ask(data, folder)


def by_expert(data: DataSet, folder: Path, model: Path) -> Figures:
    """A job with settings for this model, and fields for these data."""
    train = {"model": {"name": str(model)}, "data": {"source": data.file, "maxLength": 256, **data.expert}, "objective": data.objective}
    task = {"name": "train", "train": {**train, **EXPERT[data.objective]}}
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": data.name}, "spec": {"tasks": [task]}}
    with _in(data, folder):
        Path("job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
        return _run_and_ask(data, folder)


def untrained(data: DataSet, _folder: Path, model: Path) -> Figures:
    """The model before training, asked the same."""
    return {"right": _right(data, model)}


_JOBS = {"init": by_init, "expert": by_expert, "base": untrained}


def _run_and_ask(data: DataSet, folder: Path) -> Figures:
    began = time.monotonic()
    out = folder / f"run-{time.time_ns()}"
    code, said = _command("run", "job.yaml", "--out", str(out))
    if code:
        return {"refused": said}
    report = json.loads((out / "report.json").read_text())["tasks"]["train"]
    train = load_jobspec(Path("job.yaml")).spec.tasks[0].train
    assert train is not None
    settings = {"method": train.method.name, "rate": train.optimizer.learning_rate, "batch": train.batch.rows, "epochs": train.epochs}
    loss = [round(value, 3) for value in report["losses"][:: max(1, len(report["losses"]) - 1)]]
    return {**settings, "steps": report["steps"], "loss": loss, "wall_s": time.monotonic() - began, "right": _right(data, out)}


def _right(data: DataSet, model: Path) -> int:
    """Number of held-out prompts whose answer is the right one, character for character, at temperature 0."""
    from tuneyard.cli.chat.loaded import loaded_model

    wrong: list[str] = []
    with loaded_model(str(model), None, "generate") as loaded:
        for asked in data.asked:
            answer = loaded.generator.answer(asked.prompt, lambda _: None, max_tokens=MOST_TOKENS, tools=asked.tools)
            if answer != asked.answer:
                wrong.append(f"{answer!r} for {asked.answer!r}")
    print(*(f"  wrong: {each}" for each in wrong[:3]), sep="\n", file=sys.stderr)
    return len(data.asked) - len(wrong)


@contextlib.contextmanager
def _in(data: DataSet, folder: Path) -> Iterator[None]:
    data.write(folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _command(*argv: str) -> tuple[int, str]:
    """Exit code of a command, and the end of what it prints."""
    log = Path(f"{argv[0]}.log")
    with log.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        code = tuneyard(list(argv))
    return code, " ".join(log.read_text(encoding="utf-8").splitlines()[-3:])


def page(results: dict[str, Figures]) -> Iterator[str]:
    """Lines of the page below its head."""
    yield from (
        "Each file goes to `tuneyard init --data FILE --model FOLDER`, and the job that it writes to `tuneyard run`, untouched. An",
        "expert's own job trains all weights of the same model on the same file, with a learning rate and steps that were chosen for this",
        "model. Then held-out prompts are asked at temperature 0. Right is an answer that equals the expected one in every character.",
        "Held-out prompts join parts, such as a color and a thing, that the training has only seen apart. A test compares them, token by",
        "token, with trained rows: prompts, ends of answers, and what counts for the loss are the same",
        "(`tests/unit/cli/test_init_asked.py`).",
        "A data set without a row, and an empty cell, have not been measured.",
        "",
        f"The model is a Llama of half a million parameters. It has been trained from random weights on {CHATS:,} chats of general skills",
        f"({STEPS} steps, `benchmarks/defaults_words.py`): repeat words, find a field, know what is an animal, read lists, write JSON.",
    )
    for title, apart in (("Eight kinds of data", False), ("Kinds apart", True)):
        sets = [data for data in data_sets() if data.apart is apart and data.name in results]
        if sets:
            yield from ("", f"## {title}", "")
            if apart:
                yield from ("No default was chosen by a look at these.", "")
            yield "| file | kind | rows | steps of `init` | before | `init` | expert | of | measured |"
            yield "|---|---|---:|---:|---:|---:|---:|---:|---|"
            yield from (_row(data, results[data.name]) for data in sets)


def _row(data: DataSet, found: Figures) -> str:
    steps = found.get("init", {}).get("steps", "")
    cells = [_cell(found.get(job, {})) for job in ("base", "init", "expert")]
    days = " to ".join(dict.fromkeys(sorted(each["date"] for each in found.values())))
    return f"| `{data.file}` | {data.kind} | {data.rows} | {steps} | {' | '.join(cells)} | {len(data.asked)} | {days} |"


def _cell(figures: Figures) -> str:
    return "refused" if "refused" in figures else str(figures.get("right", ""))


if __name__ == "__main__":
    sys.exit(main())
