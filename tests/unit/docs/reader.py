"""A reader's folder: the files that pages speak of, small, and storage on this disk in place of buckets."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from tests.builders.models import sentences, write_tokenizer
from tests.unit.docs.markdown import ROOT, read_page

_QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}


def substituted(text: str, folder: Path) -> str:
    """Buckets and models of a page as folders of the reader."""
    return re.sub(r"s3://", f"file://{folder}/s3/", text).replace("Qwen/Qwen2.5-0.5B", str(folder / "model"))


def make_reader(folder: Path) -> Path:
    """`folder` with job.yaml (README's), its data, clusters.yaml, jobs.csv, a model, a template, and a bucket with data and logs."""
    chats = "".join(json.dumps({"messages": _chat(text)}) + "\n" for text in sentences(40))
    for path in (folder / "chats.jsonl", folder / "s3" / "corpus" / "chats" / "chats.jsonl"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(chats)
    (folder / "job.yaml").write_text(substituted(_yaml_of("README.md"), folder))
    (folder / "clusters.yaml").write_text(_yaml_of("docs/simulate.md"))
    (folder / "templates").mkdir()
    (folder / "templates" / "qwen-small.yaml").write_text(_yaml_of("docs/model-templates.md").partition("---\n")[2])
    rows = "".join(f"{60 * n},{600 + 60 * n},{8 * (1 + n % 3)},maps\n" for n in range(12))
    (folder / "jobs.csv").write_text(f"submit_s,duration_s,gpus,team\n{rows}")
    write_tokenizer(folder / "model")
    (folder / "model" / "config.json").write_text(json.dumps(_QWEN))
    for source in ("driver", "rank-0", "rank-1"):
        log = folder / "s3" / "models" / "support-bot" / "logs" / "train" / "2" / source / "000001.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"step 1 of {source}\n")
    runs = folder / "benchmarks" / "data" / "training_runs.csv.gz"
    runs.parent.mkdir(parents=True)
    with gzip.open(ROOT / "benchmarks" / "data" / runs.name, "rt") as whole, gzip.open(runs, "wt") as few:
        few.writelines(line for line, _ in zip(whole, range(150), strict=False))
    return folder


def _chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": text[::-1]}]


def _yaml_of(name: str) -> str:
    return next(block.text for block in read_page(ROOT / name).blocks if block.language == "yaml")
