"""Rows split over ranks: which architectures give the numbers of one device, what a rank holds at each degree, and what peers do.

Writes docs/benchmarks/context_parallel.md.

python benchmarks/context_parallel.py [--keep FOLDER] [--only equality|peers|memory] [--ranks 2]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.context_peers import peer_difference
from tests.builders.models import cpu_plan, train_request, train_task, write_tokenizer
from tests.ranks.context_models import Difference, differences
from tests.ranks.groups import results_in_ranks

from tuneyard.catalog import gpu
from tuneyard.catalog.built import model_shape_of
from tuneyard.planning import Layout, Setup, estimate_memory

PAGE = Path(__file__).parents[1] / "docs/benchmarks/context_parallel.md"
KINDS = ["llama", "qwen3", "gemma2", "phi", "phi3", "gpt_neox", "gpt2", "mistral", "olmo2", "qwen3_moe", "mixtral", "deepseek_v3"]
PEERS = ("ulysses", "ring")
LONG = (2048, 4096, 8192)
PER_CALL = 6
Rows = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "context-parallel", help="rows measured before")
    parser.add_argument("--only", choices=["equality", "peers", "memory"])
    parser.add_argument("--ranks", type=int, default=2)
    given = parser.parse_args()
    given.keep.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[Rows], Iterator[dict[str, Any]]]] = {
        "equality": lambda before: equality(before, given.ranks),
        "peers": lambda before: beside_peers(before, given.ranks),
        "memory": memory,
    }
    for name, measure in parts.items():
        path = given.keep / f"{name}.jsonl"
        before = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if given.only in (None, name):
            with path.open("a") as kept:
                for row in measure(before):
                    print(json.dumps(row), file=kept, flush=True)
                    print(name, row, flush=True)
    found = {name: [json.loads(line) for line in (given.keep / f"{name}.jsonl").read_text().splitlines()] for name in parts}
    PAGE.write_text(page(found, given.ranks))


def equality(before: Rows, ranks: int) -> Iterator[dict[str, Any]]:
    """Every causal model type of transformers that a small config builds, on packed rows and on padded ones."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    for packed in (True, False):
        done = {row["model_type"] for row in before if row["packed"] is packed}
        wanted = [name for name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) if name not in done]
        for start in range(0, len(wanted), PER_CALL):
            yield from ({**asdict(each), "packed": packed} for each in _together(wanted[start : start + PER_CALL], ranks, packed))


def _together(names: list[str], ranks: int, packed: bool) -> list[Difference]:
    """One that cannot be built ends its process: then each has processes of its own."""
    try:
        return differences(names, ranks, packed=packed)
    except RuntimeError:
        if len(names) > 1:
            return [each for name in names for each in _together([name], ranks, packed)]
        return [Difference(names[0], ranks, refused="not built: the small config does not fit")]


def beside_peers(before: Rows, ranks: int) -> Iterator[dict[str, Any]]:
    done = {(row["peer"], row["model_type"], row["packed"]) for row in before}
    for model_type in KINDS:
        for packed in (False, True):
            for peer in PEERS:
                if (peer, model_type, packed) not in done:
                    yield {"peer": peer, "packed": packed, **asdict(peer_difference(peer, model_type, ranks, packed=packed))}


def memory(before: Rows) -> Iterator[dict[str, Any]]:
    """Two steps of one long row at 1, 2 and 4 ranks: the peak of a rank, beside the plan's estimate."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    done = {(row["tokens"], row["ranks"]) for row in before}
    size = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4}
    config = LlamaConfig(vocab_size=4096, max_position_embeddings=max(LONG), pad_token_id=1, eos_token_id=0, bos_token_id=None, **size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder / "model")
        write_tokenizer(folder / "model")
        words = " ".join(f"w{i % 97} {i}" for i in range(4 * max(LONG)))
        (folder / "text.jsonl").write_text("".join(json.dumps({"text": words}) + "\n" for _ in range(4)))
        for tokens in LONG:
            for ranks in (1, 2, 4):
                if (tokens, ranks) in done:
                    continue
                task = train_task(
                    folder / "model",
                    folder / "text.jsonl",
                    data={"source": str(folder / "text.jsonl"), "maxLength": tokens},
                    batch={"global": 1},
                    steps=2,
                )
                plan = cpu_plan(workers=ranks, context_parallel=ranks, micro_batch=1, grad_accum=1, zero=0)
                [result] = results_in_ranks([train_request(folder / f"{tokens}-{ranks}", task, plan)], workers=ranks)
                layout = Layout(
                    workers=ranks,
                    context_parallel=ranks,
                    zero=0,
                    precision="fp32",
                    attention="sdpa",
                    micro_batch=1,
                    seq_len=tokens,
                )
                libraries = max(result.libraries_gb)
                planned = estimate_memory(Setup.of(task, model_shape_of(config.to_dict()), gpu("cpu"), layout), libraries)
                yield {
                    "tokens": tokens,
                    "ranks": ranks,
                    "libraries_gb": libraries,
                    "peak_gb": max(result.peak_memory_gb),
                    "planned_gb": planned.device.total_gb,
                    "activations_gb": planned.device.activations_gb,
                    "loss": result.losses[-1],
                }


def page(found: dict[str, Rows], ranks: int) -> str:
    lines = [
        "# Rows split over ranks",
        "",
        f"`python benchmarks/context_parallel.py`, {datetime.date.today()}, {os.cpu_count()} cores, no GPU: gloo, float32. Other work ran "
        "on the machine; there are no times here. Cells that are empty or say *not run* were not reached by the run.",
        "",
        "## Equal to one device, or refused",
        "",
        f"Every causal model type of transformers, from a small config, over {ranks} ranks. Two rows of 29 tokens: *packed*, three samples "
        "each; *padded*, one row shorter. *equal*: loss and every gradient within 1e-5 of one device, relative to the largest value of "
        "each. *rounding*: within 1e-4 (Gemma 4, two types: 2e-7 in float64). *refused*: by the probe or before it.",
        "",
        *_equality_lines(found["equality"]),
        "",
        "## Beside peers",
        "",
        f"DeepSpeed's `UlyssesSPAttentionHF` and torch's ring attention (`context_parallel`, as accelerate uses it) on rows of 32 tokens "
        f"over {ranks} ranks; *full*: one sample a row.",
        "",
        "| model | ours, full | ours, packed | Ulysses, full | Ulysses, packed | ring, full | ring, packed |",
        "|---|---|---|---|---|---|---|",
        *_peer_lines(found),
        "",
        "## Memory of a rank",
        "",
        "A Llama of 4 layers of width 256 (8 heads, 4,096 tokens), full training in fp32, one row a step: peak resident memory of the "
        "fullest rank, above what its libraries held before it loaded the model.",
        "",
        "| tokens of a row | ranks | peak GB | planned GB | of it activations | loss of step 2 |",
        "|---:|---:|---:|---:|---:|---:|",
        *[
            f"| {row['tokens']:,} | {row['ranks']} | {row['peak_gb'] - row['libraries_gb']:.2f} | "
            f"{row['planned_gb'] - row['libraries_gb']:.2f} | {row['activations_gb']:.2f} | {row['loss']:.5f} |"
            for row in found["memory"]
        ],
    ]
    return "\n".join(lines) + "\n"


def _equality_lines(rows: Rows) -> list[str]:
    lines = ["| rows | equal | rounding | wrong | refused | not built |", "|---|---:|---:|---:|---:|---:|"]
    for packed, name in ((True, "packed"), (False, "padded")):
        classes = [_class(row) for row in rows if row["packed"] is packed]
        counts = [str(classes.count(each)) for each in ("equal", "rounding", "wrong", "refused", "not built")]
        lines.append(f"| {name} | {' | '.join(counts)} |")
    by_type: dict[str, dict[bool, dict[str, Any]]] = {}
    for row in rows:
        by_type.setdefault(row["model_type"], {})[row["packed"]] = row
    lines += ["", "| model | packed | padded |", "|---|---|---|"]
    lines += [f"| {name} | {_cell(both.get(True))} | {_cell(both.get(False))} |" for name, both in sorted(by_type.items())]
    return lines


def _class(row: dict[str, Any]) -> str:
    if row["refused"].startswith("not built"):
        return "not built"
    if row["refused"]:
        return "refused"
    worst = max(row["loss"], row["gradient"])
    return "equal" if worst < 1e-5 else "rounding" if worst < 1e-4 else "wrong"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["refused"]:
        return row["refused"].split(":")[0].split(" (of")[0]
    return f"{_class(row)} ({max(row['loss'], row['gradient']):.0e})"


def _peer_lines(found: dict[str, Rows]) -> list[str]:
    ours = {(row["model_type"], row["packed"]): row for row in found["equality"]}
    theirs = {(row["peer"], row["model_type"], row["packed"]): row for row in found["peers"]}

    def told(row: dict[str, Any] | None) -> str:
        if row is None:
            return "not run"
        if row["refused"]:
            return f"fails: {row['refused'][:60]}"
        return f"{_class(row)} ({max(row['loss'], row['gradient']):.0e})"

    lines = []
    for kind in KINDS:
        cells = [told(ours.get((kind, False))), told(ours.get((kind, True)))]
        cells += [told(theirs.get((peer, kind, packed))) for peer in PEERS for packed in (False, True)]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
