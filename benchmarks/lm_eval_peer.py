"""Score tasks beside lm-evaluation-harness's own runner: the same tiny model, rows and formulas, two tasks.

python benchmarks/lm_eval_peer.py [--rows 200] [--out docs/benchmarks/lm_eval_peer.md]

Its runner uses its class for transformers, on a CPU in fp32; ours is `tuneyard run` with vLLM. The tasks are files of its YAML: a multiple
choice with three choices, and a generation with the filter `regex` and the metric exact_match that ignores case and punctuation.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow.parquet as pq
import yaml
from peer_packages import add_packages

ROOT = Path(__file__).parents[1]
PATTERN = "([a-z]+)"
PACKAGES = (
    *("lm-eval==0.4.13", "chardet==7.7.0", "dataproperty==1.1.1", "dill==0.4.1", "evaluate==0.4.6", "jsonlines==4.0.0"),
    *("mbstrdecoder==1.1.5", "more-itertools==11.2.1", "pathvalidate==3.3.1", "pytablewriter==1.2.1", "sqlitedict==2.1.0"),
    *("tabledata==1.3.5", "tcolorpy==0.1.7", "tqdm-multiprocess==0.0.11", "typepy==2.0.0", "word2number==1.1"),
)
_THEIRS = """
import json, sys
import lm_eval
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
folder = sys.argv[1]
found = simple_evaluate(
    model="hf", model_args=f"pretrained={folder}/model,dtype=float32", tasks=["choices", "words"], device="cpu", batch_size=1,
    task_manager=TaskManager(include_path=f"{folder}/tasks", include_defaults=False), bootstrap_iters=0, log_samples=True,
)
by_row = {name: sorted(rows, key=lambda row: row["doc_id"]) for name, rows in found["samples"].items()}
logs = [[each[0] if isinstance(each[0], float) else each[0][0] for each in row["filtered_resps"]] for row in by_row["choices"]]
words = [row["filtered_resps"][0] for row in by_row["words"]]
print(json.dumps({"version": lm_eval.__version__, "results": found["results"], "logs": logs, "words": words}, default=str))
"""


def write(folder: Path, count: int) -> None:
    """The model, the rows, and the tasks of both sides."""
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
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}}, "test_split": "test"}
    choices = {"doc_to_text": "question", "doc_to_choice": "choices", "doc_to_target": "right"}
    match = {"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True}
    words: dict[str, Any] = {"doc_to_text": "question", "doc_to_target": "word", "metric_list": [match]}
    words["generation_kwargs"] = {"until": [], "max_gen_toks": 16, "do_sample": False}
    words["filter_list"] = [{"name": "word", "filter": [{"function": "regex", "regex_pattern": PATTERN}, {"function": "take_first"}]}]
    accuracies = {"metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]}
    theirs = {
        "choices": {"output_type": "multiple_choice", **choices, **accuracies},
        "words": {"output_type": "generate_until", **words},
    }
    for name, task in theirs.items():
        (folder / "tasks" / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, **data, **task}))
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
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "peer"}, "spec": {"tasks": tasks}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))


def run(command: list[str], environment: Mapping[str, str]) -> str:
    """What a command prints."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environment}).stdout


def page(count: int) -> str:
    add_packages("lm-eval", PACKAGES)
    packages = sys.path[-1]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write(folder, count)
        offline = {"PYTHONPATH": packages, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
        said = run([sys.executable, "-c", _THEIRS, made], offline)
        theirs: dict[str, Any] = json.loads(said.splitlines()[-1])
        command = [str(Path(sys.executable).with_name("tuneyard")), "run", str(folder / "job.yaml"), "--out", str(folder / "out")]
        run(command, {"TUNEYARD_HISTORY": "off"})
        rows = {name: pq.read_table(folder / "out" / name / "parts").to_pylist() for name in ("choices", "words")}
        ours = {name: json.loads((folder / "out" / name / "metrics.json").read_text())["metrics"] for name in rows}
    pairs = [pair for row, logs in zip(rows["choices"], theirs["logs"], strict=True) for pair in zip(row["choice_logs"], logs, strict=True)]
    apart = max(abs(first - second) for first, second in pairs)
    answers = [(row["extracted"] or "[invalid]") == word for row, word in zip(rows["words"], theirs["words"], strict=True)]
    results = theirs["results"]
    lines = [
        "# Score tasks beside lm-evaluation-harness",
        "",
        f"`python benchmarks/lm_eval_peer.py --rows {count}`, {date.today()},",
        f"Python {platform.python_version()}, two cores, no GPU. lm-evaluation-harness {theirs['version']},",
        "with its class for transformers, in fp32.",
        "",
        f"A Llama with 2 layers and random weights, {count} rows. `tuneyard run` with vLLM.",
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
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks" / "lm_eval_peer.md")
    arguments = parser.parse_args()
    arguments.out.write_text(page(arguments.rows))


if __name__ == "__main__":
    main()
