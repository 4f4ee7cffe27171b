"""Tensor parallelism on plain shards beside one process, the engine of transformers and DeepSpeed's AutoTP: who trains, and who is right.

Writes docs/benchmarks/tensor_parallel_engine.md.

python benchmarks/tensor_parallel_engine.py [MODEL_TYPE ...] [--keep rows.jsonl]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.ranks.applied_models import Case, linears_of
from tests.ranks.tensor_engines import (
    EQUAL,
    GRADIENTS_EQUAL,
    Ran,
    by_deepspeed,
    by_transformers,
    first_pass_of_ours,
    in_ranks,
    one_process,
    ours,
)

PAGE = Path(__file__).parents[1] / "docs/benchmarks/tensor_parallel_engine.md"
REDCOAST = ("gptj", "llama", "opt", "t5", "bart")
MODELS = (
    *REDCOAST,
    *("bert", "roberta", "electra", "gpt2", "gpt_neo", "gpt_neox", "gpt_bigcode", "codegen", "bloom", "mpt", "falcon", "phi", "phi3"),
    *("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "mistral", "ministral", "mixtral", "gemma", "gemma2", "gemma3_text"),
    *("olmo", "olmo2", "olmoe", "deepseek_v2", "deepseek_v3", "cohere", "cohere2", "starcoder2", "stablelm", "granite", "granitemoe"),
    *("glm4", "glm4_moe", "smollm3", "llama4_text", "gpt_oss", "mamba", "mamba2", "jamba", "nemotron", "persimmon", "mbart", "pegasus"),
    *("exaone4", "minimax"),
)
PER_GROUP, ADAPTER_RANK = 3, 4
OURS = ("full, 2", "LoRA, 2", "full, 4", "LoRA, 4")


@dataclass
class Row:
    """One model: what came of each run, by name."""

    model: str
    runs: dict[str, Any] = field(default_factory=dict)

    def ran(self, name: str) -> Ran:
        return Ran(**self.runs[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--keep", type=Path, help="rows of earlier runs, which are not measured again")
    parser.add_argument("--gradients-only", action="store_true", help="take no steps, and run no peers, for models without a row")
    given = parser.parse_args()
    rows = [Row(**json.loads(line)) for line in given.keep.read_text().splitlines()] if given.keep and given.keep.exists() else []
    wanted = [name for name in given.models or MODELS if name not in {row.model for row in rows}]
    for start in range(0, len(wanted), PER_GROUP):
        found = measured(wanted[start : start + PER_GROUP], steps=not given.gradients_only)
        rows += found
        if given.keep:
            given.keep.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
        for row in found:
            print(row.model, {name: ran["verdict"] for name, ran in row.runs.items()}, flush=True)
    if not given.models:
        PAGE.write_text(page(sorted(rows, key=lambda row: (row.model not in REDCOAST, row.model))))


def measured(models: list[str], *, steps: bool = True) -> list[Row]:
    """A row for each model: ours with all weights and with LoRA on 2 and 4 ranks, the others with all weights on 2."""
    rows = {model: Row(model) for model in models}

    def note(name: str, engine: Any, cases: list[Case], expected: list[list[float]], degree: int) -> None:
        for case, ran in zip(cases, in_ranks(engine, cases, expected, degree), strict=True):
            rows[case.model_type].runs[name] = asdict(ran)

    full = [Case(model) for model in models]
    adapted = [Case(model, rank_of_lora=ADAPTER_RANK) for model in models if linears_of(Case(model).model(meta=True))]
    losses = one_process(full) if steps else [[] for _ in full]
    losses_adapted = one_process(adapted) if steps else [[] for _ in adapted]
    engine = ours if steps else first_pass_of_ours
    for degree in (2, 4):
        note(f"full, {degree}", engine, full, losses, degree)
        note(f"LoRA, {degree}", engine, adapted, losses_adapted, degree)
    if not steps:
        return list(rows.values())
    note("transformers", by_transformers, full, losses, 2)
    for case, expected in zip(full, losses, strict=True):
        note("DeepSpeed", by_deepspeed, [case], [expected], 2)
    return list(rows.values())


def page(rows: list[Row]) -> str:
    """The page, from all rows."""
    lines = [
        "# Tensor parallelism on plain shards: 20 steps beside one process, and beside peers",
        "",
        f"`python benchmarks/tensor_parallel_engine.py`, {datetime.date.today()}, {os.cpu_count()} cores, no GPU, gloo, float32: "
        f"torch {version('torch')}, transformers {version('transformers')}, DeepSpeed {version('deepspeed')}, PEFT {version('peft')}.",
        "",
        "Each model type, built from a small config, with the weights of one process. *equal*: logits and gradients of the first batch",
        "within 1e-5 of one process (relative to the largest value; beside a thousandth of the largest gradient, where it is below),",
        "and the loss of each of 20 steps of AdamW, each of two micro-batches, within 1e-4. Of peers the losses alone are compared.",
        "*gradients equal*: measured with `--gradients-only`, without steps and without peers.",
        "LoRA of rank 4 is on every linear but the head. Dropout is off.",
        "",
        "Ours: `explain_tensor_parallel` and `shard_model`. transformers: its hand-written plan by its own engine (DTensor parameters),",
        "ties made again afterwards, AdamW without `foreach`. DeepSpeed: `tensor_parallel.autotp_size: 2`, ZeRO 0, no clipping.",
        "Models of RedCoast come first.",
        "",
        "| model | parameters cut | ours: full, 2 | LoRA, 2 | full, 4 | LoRA, 4 | transformers, 2 | DeepSpeed, 2 |",
        "|---|---:|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [_cell(row.ran(name).verdict) if name in row.runs else _absent(name) for name in (*OURS, "transformers", "DeepSpeed")]
        lines.append(f"| {row.model} | {100 * row.ran(OURS[0]).share:.0f} % | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "## Count", "", *_counts(rows), ""])


def _absent(name: str) -> str:
    return "no linears" if name in OURS else "not run"


def _counts(rows: list[Row]) -> list[str]:
    def count(name: str, wanted: Callable[[Ran], bool]) -> int:
        return sum(wanted(row.ran(name)) for row in rows if name in row.runs)

    kinds: Mapping[str, Callable[[Ran], bool]] = {
        "trains 20 steps": lambda ran: ran.trains,
        "agrees with one process": lambda ran: ran.verdict == EQUAL,
        "differs from one process": lambda ran: ran.verdict.startswith("wrong"),
        "gradients agree, no steps taken": lambda ran: ran.verdict == GRADIENTS_EQUAL,
        "fails": lambda ran: ran.verdict.startswith("fails"),
        "has no plan": lambda ran: ran.verdict == "no plan",
    }
    names = (*OURS, "transformers", "DeepSpeed")
    heads = [f"ours: {name}" if name in OURS else f"{name}, 2" for name in names]
    lines = [f"| of {len(rows)} models | {' | '.join(heads)} |", "|---|" + "---:|" * len(names)]
    return lines + [f"| {kind} | {' | '.join(str(count(name, wanted)) for name in names)} |" for kind, wanted in kinds.items()]


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("<", "(").replace(">", ")")


if __name__ == "__main__":
    main()
