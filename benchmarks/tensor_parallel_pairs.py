"""How much of a model's blocks is cut in pairs by our plan, and what a rank exchanges in a step, for each architecture of transformers.

Writes docs/benchmarks/tensor_parallel_pairs.md.

python benchmarks/tensor_parallel_pairs.py [MODEL_TYPE ...] [--degree 2] [--before rows.jsonl] [--keep rows.jsonl]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.ranks.applied_models import Case, differences_of
from tests.ranks.pairs import Pairs, pairs_of

PAGE = Path(__file__).parents[1] / "docs/benchmarks/tensor_parallel_pairs.md"
AIM = 0.95
PER_GROUP = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--degree", type=int, default=2)
    parser.add_argument("--before", type=Path, help="rows that another revision of the product kept")
    parser.add_argument("--keep", type=Path, help="where rows are kept; those that are there are not measured again")
    given = parser.parse_args()
    rows = {row.model: row for row in _kept(given.keep)}
    for model in given.models or every_model():
        if model not in rows:
            rows[model] = pairs_of(model, given.degree)
            print(json.dumps(asdict(rows[model])), flush=True)
            if given.keep:
                given.keep.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows.values()))
    if given.before:
        before = {row.model: row for row in _kept(given.before)}
        compare(before, rows, given.degree)
        if given.keep:
            given.keep.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows.values()))
        PAGE.write_text(page(before, rows, given.degree))


def compare(before: dict[str, Pairs], rows: dict[str, Pairs], degree: int) -> None:
    """Note how far real ranks are from one process, for each model whose plan has changed."""
    wanted = [other for one, other in _both(before, rows) if _differs(one, other) and other.difference is None]
    for start in range(0, len(wanted), PER_GROUP):
        some = wanted[start : start + PER_GROUP]
        for row, found in zip(some, differences_of([Case(row.model) for row in some], degree), strict=True):
            row.difference = max(found.logits, found.gradient)


def _both(before: dict[str, Pairs], after: dict[str, Pairs]) -> list[tuple[Pairs, Pairs]]:
    return [(before[name], after[name]) for name in sorted(after) if name in before and not (before[name].error or after[name].error)]


def _differs(one: Pairs, other: Pairs) -> bool:
    return (one.paired, one.collectives) != (other.paired, other.collectives)


def every_model() -> list[str]:
    """Model types with a language model, causal or with an encoder."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    known = {**AutoModelForCausalLM._model_mapping, **AutoModelForSeq2SeqLM._model_mapping}
    return sorted(name for name, made_by in CONFIG_MAPPING.items() if made_by in known)


def page(before: dict[str, Pairs], after: dict[str, Pairs], degree: int) -> str:
    """The page, from the rows of both revisions."""
    both = _both(before, after)
    changed = [pair for pair in both if _differs(*pair)]
    lines = [
        "# Blocks that are cut in pairs, and what a rank exchanges",
        "",
        f"`python benchmarks/tensor_parallel_pairs.py --before rows.jsonl`, {datetime.date.today()}, {os.cpu_count()} cores, no GPU: "
        f"torch {version('torch')}, transformers {version('transformers')}, degree {degree}.",
        "",
        "Each model type with a language model whose small config builds and records. *In pairs*: parameters of the layers that are",
        "cut by columns and rows with shards between, or as experts, as a share of all parameters of the layers, norms included.",
        "*Collectives*, *kB*: calls in one forward and backward pass of 2 rows of 12 tokens in fp32, and the tensors that they add up",
        "or join. *Before*: without a rank's share of a module's numbers, tables cut by heads, blocks other than halves, linears of",
        "other classes than torch's, and results that are changed in place.",
        "",
        "| figure | before | after |",
        "|---|---:|---:|",
        f"| model types with a language model | {len(every_model())} | {len(every_model())} |",
        f"| tried by this run | {len(before)} | {len(after)} |",
        f"| architectures measured by both | {len(both)} | {len(both)} |",
        f"| with at least {AIM:.0%} of the blocks in pairs | {_reach(both, 0)} | {_reach(both, 1)} |",
        f"| collectives, in all | {sum(a.collectives for a, _ in both)} | {sum(b.collectives for _, b in both)} |",
        f"| kB, in all | {sum(a.bytes for a, _ in both) // 1000} | {sum(b.bytes for _, b in both) // 1000} |",
        "",
        "## Changed",
        "",
        "*Difference*: of logits or of the worst gradient, between two real ranks on gloo and one process, relative to the largest value.",
        "",
        "| model | in pairs before | after | collectives before | after | kB before | after | difference | divided |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one, other in changed:
        lines.append(
            f"| {one.model} | {_share(one)} | {_share(other)} | {one.collectives} | {other.collectives} | {one.bytes / 1e3:.0f} "
            f"| {other.bytes / 1e3:.0f} | {other.difference:.0e} | {_cell(other.divided)} |"
        )
    lines += [
        "",
        "## As before",
        "",
        "| model | in pairs | collectives | kB | the largest part that is not, and why |",
        "|---|---:|---:|---:|---|",
    ]
    for one, other in both:
        if (one, other) not in changed:
            lines.append(f"| {other.model} | {_share(other)} | {other.collectives} | {other.bytes / 1e3:.0f} | {_cell(other.largest)} |")
    lines += ["", "## Below the aim", "", *[f"- {b.model} ({_share(b)}): {_cell(b.largest)}" for _, b in both if b.paired < AIM * b.blocks]]
    failed = [row for name, row in sorted(after.items()) if row.error]
    lines += ["", "## Not measured", "", *[f"- {row.model}: {_cell(row.error)}" for row in failed], ""]
    return "\n".join(lines)


def _kept(path: Path | None) -> list[Pairs]:
    return [Pairs(**json.loads(line)) for line in path.read_text().splitlines()] if path and path.exists() else []


def _reach(both: list[tuple[Pairs, Pairs]], at: int) -> int:
    return sum(pair[at].paired >= AIM * pair[at].blocks for pair in both)


def _share(row: Pairs) -> str:
    return f"{100 * row.paired / max(row.blocks, 1):.1f} %"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("<", "(").replace(">", ")")


if __name__ == "__main__":
    main()
