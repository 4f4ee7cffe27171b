"""Score tasks beside lm-evaluation-harness's own runner: the same tiny model and rows.

python benchmarks/lm_eval_peer.py [--rows 200] [--more 50] [--out docs/benchmarks/lm_eval_peer.md]

Its runner uses its class for transformers, on a CPU in fp32; ours is `tuneyard run` with vLLM. First its tasks are read by `data.lmEval`
from the same YAML files, once whole and once by a run that is killed and resumed. Then two of them are written as plain score tasks, with
fields of a JobSpec: a multiple choice, and a generation with the filter `regex` and the metric exact_match.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).parents[1]
TUNEYARD = str(Path(sys.executable).with_name("tuneyard"))
PATTERN = "([a-z]+)"
POSITIONS = 256
"""Of the model: windows are two tokens shorter, because vLLM evaluates the last token too, and generates one."""
RUNS = {
    "plain": {"tasks": ["choices", "words", "greedy", "rolling", "pair", "shots", "long_shots"]},
    "chat": {"tasks": ["chat_choices", "chat_words"], "fewshot": 2, "chat": True},
}
"""Score tasks with `data.lmEval`."""
WHAT = {
    "choices": "multiple choice",
    "words": "generation, filter `regex`",
    "greedy": "log-likelihood, and whether it is greedy",
    "rolling": "rolling log-likelihood, texts longer than the model",
    "pair": "group of two multiple choices",
    "pair_one": "its first task",
    "pair_two": "its second task",
    "shots": "multiple choice, 2 examples",
    "long_shots": "generation, 30 examples, cut on the left",
    "chat_choices": "multiple choice, chat template, 2 examples",
    "chat_words": "generation, chat template, 2 examples",
}
_THEIRS = """
import json, os, sys
import lm_eval
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
folder, positions, runs = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
model = HFLM(pretrained=f"{folder}/model", dtype="float32", device="cpu", batch_size=1, max_length=positions - 2)
os.chdir(f"{folder}/tasks")
found, samples = {}, {}
for run in runs.values():
    made = simple_evaluate(
        model=model, tasks=run["tasks"], task_manager=TaskManager(include_path=".", include_defaults=False), bootstrap_iters=1000,
        num_fewshot=run.get("fewshot"), apply_chat_template=run.get("chat", False), log_samples=True,
    )
    found |= made["results"]
    samples |= made["samples"]
by_row = {name: sorted(samples[name], key=lambda row: row["doc_id"]) for name in ("choices", "words")}
logs = [[each[0] if isinstance(each[0], float) else each[0][0] for each in row["filtered_resps"]] for row in by_row["choices"]]
words = [row["filtered_resps"][0] for row in by_row["words"]]
print(json.dumps({"version": lm_eval.__version__, "results": found, "logs": logs, "words": words}, default=str))
"""


def harness_tasks() -> dict[str, dict[str, Any]]:
    """YAML of the harness, by name."""

    def rows(file: str) -> dict[str, Any]:
        return {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": file}}, "test_split": "test"}

    choices = {"output_type": "multiple_choice", "doc_to_text": "question", "doc_to_choice": "choices", "doc_to_target": "right"}
    choices["metric_list"] = [{"metric": "acc"}, {"metric": "acc_norm"}]
    match = {"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True}
    words = {"output_type": "generate_until", "doc_to_text": "question", "doc_to_target": "word", "metric_list": [match]}
    words["filter_list"] = [{"name": "word", "filter": [{"function": "regex", "regex_pattern": PATTERN}, {"function": "take_first"}]}]
    letter = {"name": "letter", "filter": [{"function": "regex", "regex_pattern": "([a-z])"}, {"function": "take_first"}]}
    letters = {"filter_list": [letter], "doc_to_target": "o"}
    to_the_end = {"until": [], "max_gen_toks": 16, "do_sample": False}
    to_a_word = {"until": [" red", "\n"], "max_gen_toks": 24, "do_sample": False}
    greedy = {"output_type": "loglikelihood", "doc_to_text": "question", "doc_to_target": "said", "target_delimiter": ""}
    greedy["metric_list"] = [{"metric": "acc"}, {"metric": "perplexity"}]
    rolling = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "long"}
    rolling["metric_list"] = [{"metric": each} for each in ("word_perplexity", "byte_perplexity", "bits_per_byte")]
    few = rows("few.jsonl")
    tasks = {
        "choices": {**rows("rows.jsonl"), **choices},
        "words": {**rows("rows.jsonl"), **words, "generation_kwargs": to_the_end},
        "greedy": {**few, **greedy},
        "rolling": {**few, **rolling},
        "pair_one": {**few, **choices},
        "pair_two": {**rows("rows.jsonl"), **choices, "doc_to_text": "Say: {{question}}"},
        "shots": {**few, **choices, "num_fewshot": 2, "fewshot_split": "test"},
        "long_shots": {**few, **words, **letters, "generation_kwargs": to_a_word, "num_fewshot": 30, "fewshot_split": "test"},
        "chat_choices": {**few, **choices, "fewshot_split": "test"},
        "chat_words": {**few, **words, "generation_kwargs": to_a_word, "fewshot_split": "test"},
    }
    group = {"group": "pair", "task": ["pair_one", "pair_two"], "aggregate_metric_list": [{"metric": "acc", "weight_by_size": True}]}
    return {**{name: {"task": name, **task} for name, task in tasks.items()}, "pair": group}


def write(folder: Path, count: int, more: int) -> None:
    """The model, the rows, and the tasks of both sides. `more`: rows of the further tasks."""
    from tests.builders.harness_tasks import likely_continuations
    from tests.builders.models import sentences, write_model

    write_model(folder / "model", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    texts = sentences(count)
    rows = [
        {
            "question": text,
            "choices": [texts[-1 - place][:9].strip(), "the cat sat", texts[(place + 1) % count][:20].strip()],
            "right": place % 3,
            "word": "dog",
        }
        for place, text in enumerate(texts)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tasks").mkdir()
    (folder / "tasks" / "rows.jsonl").write_text((folder / "rows.jsonl").read_text())
    said = likely_continuations(folder / "model", texts[:more])
    few = [{**rows[place], "said": said[place], "long": " ".join(texts[place : place + 12])} for place in range(more)]
    (folder / "tasks" / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in few))
    for name, task in harness_tasks().items():
        (folder / "tasks" / f"{name}.yaml").write_text(yaml.safe_dump(task))
    model = {"model": {"name": str(folder / "model")}}
    source = {"source": str(folder / "rows.jsonl"), "prompt": "question", "chat": False}
    ours = {
        "choices": {"data": {**source, "reference": "right"}, "choices": {"column": "choices"}, "metrics": ["acc", "acc_norm"]},
        "words": {
            "data": {**source, "reference": "word"},
            "generation": {"maxTokens": 16},
            "answer": {"first": PATTERN},
            "ignore": ["case", "punctuation"],
            "metrics": ["exact_match"],
        },
    }
    tasks = [{"name": name, "score": {**model, **task}} for name, task in ours.items()]
    job: dict[str, Any] = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "peer"}, "spec": {"tasks": tasks}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    asked = {name: {"data": {"lmEval": {**run, "folder": "tasks"}}, "rowsPerPart": 128} for name, run in RUNS.items()}
    harness = [{"name": name, "score": {**model, **task}} for name, task in asked.items()]
    (folder / "harness.yaml").write_text(yaml.safe_dump({**job, "spec": {"tasks": harness}}))


def run(command: list[str], environment: Mapping[str, str]) -> str:
    """What a command prints."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environment}).stdout


def killed_and_resumed(folder: Path, environment: Mapping[str, str]) -> int:
    """Run the harness's tasks, kill the run once two parts are committed, and resume it. Returns the parts that were there when it was
    killed."""
    command = [TUNEYARD, "run", str(folder / "harness.yaml"), "--out", str(folder / "resumed")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    parts = folder / "resumed" / "plain" / "parts"
    while len(list(parts.glob("*.parquet"))) < 2:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.002)
    process.kill()
    process.wait()
    there = len(list(parts.glob("*.parquet")))
    run([*command, "--resume"], environment)
    return there


def figures_of(folder: Path) -> dict[str, float]:
    """All figures of the runs of `RUNS`."""
    found = [json.loads((folder / name / "metrics.json").read_text())["metrics"] for name in RUNS]
    return {name: value for each in found for name, value in each.items()}


def figure_rows(theirs: Mapping[str, Mapping[str, Any]], ours: Mapping[str, float]) -> tuple[list[str], float]:
    """A row for each of their figures, and the largest difference as a share of the value."""
    rows, apart = [], 0.0
    for task in WHAT:
        for key, value in theirs[task].items():
            metric, comma, of = key.partition(",")
            if not comma or metric.endswith("_stderr"):
                continue
            our = ours[f"{task}/{metric}" if of == "none" else f"{task}/{metric}/{of}"]
            apart = max(apart, abs(our - value) / max(abs(value), 1e-12) if our != value else 0.0)
            rows.append(f"| {WHAT[task]} | {metric} | {value:.6g} | {our:.6g} |")
    assert len(rows) == len(ours), "one side has figures that the other one lacks"
    return rows, apart


def page(count: int, more: int) -> str:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write(folder, count, more)
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "TUNEYARD_HISTORY": "off", "OMP_NUM_THREADS": "1"}
        said = run([sys.executable, "-c", _THEIRS, made, str(POSITIONS), json.dumps(RUNS)], offline)
        theirs: dict[str, Any] = json.loads(said.splitlines()[-1])
        run([TUNEYARD, "run", str(folder / "harness.yaml"), "--out", str(folder / "whole")], offline)
        whole = figures_of(folder / "whole")
        there = killed_and_resumed(folder, offline)
        resumed = figures_of(folder / "resumed")
        run([TUNEYARD, "run", str(folder / "job.yaml"), "--out", str(folder / "out")], offline)
        rows = {name: pq.read_table(folder / "out" / name / "parts").to_pylist() for name in ("choices", "words")}
        ours = {name: json.loads((folder / "out" / name / "metrics.json").read_text())["metrics"] for name in rows}
    pairs = [pair for row, logs in zip(rows["choices"], theirs["logs"], strict=True) for pair in zip(row["choice_logs"], logs, strict=True)]
    apart = max(abs(first - second) for first, second in pairs)
    answers = [(row["extracted"] or "[invalid]") == word for row, word in zip(rows["words"], theirs["words"], strict=True)]
    results = theirs["results"]
    figures, share = figure_rows(results, whole)
    same = "the same figures" if resumed == whole else "other figures"
    lines = [
        "# Score tasks beside lm-evaluation-harness",
        "",
        f"`python benchmarks/lm_eval_peer.py --rows {count} --more {more}`, {date.today()},",
        f"Python {platform.python_version()}, two cores, no GPU. lm-evaluation-harness {theirs['version']},",
        f"with its class for transformers, in fp32, `max_length` {POSITIONS - 2}.",
        "",
        f"A Llama with 2 layers, {POSITIONS} positions and random weights. `tuneyard run` with vLLM.",
        "",
        "## Its own tasks, by `data.lmEval`",
        "",
        f"Both sides read the same YAML files. The first two tasks and the second of the group have {count} rows, the others {more}.",
        "",
        "| task | figure | lm-evaluation-harness | score task |",
        "|---|---|---:|---:|",
        *figures,
        "",
        f"The figures differ by a share of {share:.1e} at most.",
        f"A run that was killed by SIGKILL with {there} parts committed, and resumed, has {same}.",
        "",
        "## Two tasks, by fields of a JobSpec",
        "",
        f"The same rows as plain score tasks, {count} each.",
        "",
        "| task | figure | lm-evaluation-harness | score task |",
        "|---|---|---:|---:|",
        f"| multiple choice | acc | {results['choices']['acc,none']:.4f} | {ours['choices']['acc']:.4f} |",
        f"| multiple choice | acc_norm | {results['choices']['acc_norm,none']:.4f} | {ours['choices']['acc_norm']:.4f} |",
        f"| first word of an answer | exact_match | {results['words']['exact_match,word']:.4f} | {ours['words']['exact_match']:.4f} |",
        "",
        f"The {len(pairs):,} log-likelihoods of choices differ by {apart:.1e} at most.",
        f"{sum(answers)} of {count} answers that were cut out are the same.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--more", type=int, default=50, help="rows of the further tasks")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks" / "lm_eval_peer.md")
    arguments = parser.parse_args()
    arguments.out.write_text(page(arguments.rows, arguments.more))


if __name__ == "__main__":
    main()
