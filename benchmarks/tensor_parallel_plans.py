"""Our tensor-parallel plans beside the hand-written ones of transformers, parameter by parameter, and both against one process on gloo.

Writes docs/benchmarks/tensor_parallel_plans.md.

python benchmarks/tensor_parallel_plans.py [MODEL_TYPE ...] [--degree 2] [--keep rows.jsonl]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.ranks.hand_plans import NOT_RUN, Row, compared, compared_in_ranks

PAGE = Path(__file__).parents[1] / "docs/benchmarks/tensor_parallel_plans.md"
PER_GROUP = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--degree", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="rows of earlier runs, which are not measured again")
    parser.add_argument("--plans-only", action="store_true", help="compare plans only: models without a kept row are not run")
    given = parser.parse_args()
    rows = [Row(**json.loads(line)) for line in given.keep.read_text().splitlines()] if given.keep and given.keep.exists() else []
    wanted = [name for name in given.models or with_plans() if name not in {row.model for row in rows}]
    for start in range(0, len(wanted), PER_GROUP):
        models = wanted[start : start + PER_GROUP]
        found = [compared(m, given.degree, runs=False) for m in models] if given.plans_only else compared_in_ranks(models, given.degree)
        rows += found
        if given.keep and not given.plans_only:
            given.keep.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
        for row in found:
            print(row.model, row.kinds, row.ours, row.theirs, row.error, flush=True)
    if not given.models:
        PAGE.write_text(page(sorted(rows, key=lambda row: row.model), given.degree))


def with_plans() -> list[str]:
    """Model types whose config class, or that of a part, has a plan for tensor parallelism."""
    from transformers import CONFIG_MAPPING

    return sorted(name for name, made_by in CONFIG_MAPPING.items() if getattr(made_by, "base_model_tp_plan", None))


def verdict(row: Row) -> str:
    """The class of a model's differences."""
    if not row.differing:
        return "equal plans"
    if row.theirs not in ("equal", NOT_RUN) and row.ours == "equal":
        return "ours right"
    if "theirs alone" in row.kinds:
        return "theirs shards more"
    return "equivalent, ours shards more" if "ours alone" in row.kinds else "equivalent"


def page(rows: list[Row], degree: int) -> str:
    """The page, from all rows."""
    measured = [row for row in rows if not row.error]
    total: Counter[str] = Counter()
    for row in measured:
        total.update({kind: count for kind, count in row.kinds.items() if kind != "not reached"})
    kinds = Counter(verdict(row) for row in measured)
    lines = [
        "# Automatic tensor-parallel plans beside hand-written ones",
        "",
        f"`python benchmarks/tensor_parallel_plans.py`, {datetime.date.today()}, {os.cpu_count()} cores, no GPU: torch {version('torch')}, "
        f"transformers {version('transformers')}, degree {degree} on gloo, float32.",
        "",
        "Each model type whose config class has a `base_model_tp_plan`, built from a small config.",
        "Ours: `tuneyard.parallel.tensor_parallel_plan`. Both plans are applied by the engine of transformers.",
        "*equal*: logits within 1e-5 and every gradient within 1e-4 of one process, relative to the largest value.",
        "*same*: same style; *both, otherwise*: both shard, with",
        "other communication; *ours alone*, *theirs alone*: one shards. *ours right*: the hand-written plan fails or gives other numbers.",
        "Left out: parameters that a pass over token ids does not reach (vision towers), which ours leaves whole.",
        "",
        "| figure | value |",
        "|---|---:|",
        f"| model types with a plan | {len(rows)} |",
        f"| compared | {len(measured)} |",
        f"| both plans run on gloo | {sum(row.ours != NOT_RUN for row in measured)} |",
        f"| ours gives the numbers of one process | {sum(row.ours == 'equal' for row in measured)} |",
        f"| ours gives wrong numbers | {sum(row.ours.startswith('wrong') for row in measured)} |",
        f"| ours fails to run | {sum(row.ours.startswith('fails') for row in measured)} |",
        f"| theirs gives the numbers of one process | {sum(row.theirs == 'equal' for row in measured)} |",
        f"| theirs gives wrong numbers | {sum(row.theirs.startswith('wrong') for row in measured)} |",
        f"| theirs fails to run | {sum(row.theirs.startswith('fails') for row in measured)} |",
        f"| parameters that both treat the same | {_percent(total['same'], sum(total.values()))} |",
        f"| same, or both shard | {_percent(total['same'] + total['both, otherwise'], sum(total.values()))} |",
        f"| same, both shard, or ours alone shards | {_percent(sum(total.values()) - total['theirs alone'], sum(total.values()))} |",
        f"| parameters that ours alone shards | {_percent(total['ours alone'], sum(total.values()))} |",
        f"| parameters that theirs alone shards | {_percent(total['theirs alone'], sum(total.values()))} |",
        *[f"| models: {name} | {count} |" for name, count in kinds.most_common()],
        "",
        "| model | same | both, otherwise | ours alone | theirs alone | ours | theirs | class |",
        "|---|---:|---:|---:|---:|---|---|---|",
    ]
    for row in measured:
        shares = [_percent(row.kinds.get(kind, 0), row.parameters) for kind in ("same", "both, otherwise", "ours alone", "theirs alone")]
        lines.append(f"| {row.model} | {' | '.join(shares)} | {_cell(row.ours)} | {_cell(row.theirs)} | {verdict(row)} |")
    lines += ["", "## Where theirs shards more", ""]
    for row in measured:
        theirs = {name: styles.partition(" | ")[2] for name, styles in row.differing.items() if styles.startswith("whole")}
        if "theirs alone" in row.kinds:
            lines.append(f"- {row.model}: {', '.join(f'`{name}` ({style})' for name, style in theirs.items())}")
    lines += ["", "## Not compared", "", *[f"- {row.model}: {_cell(row.error)}" for row in rows if row.error], ""]
    return "\n".join(lines)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f} %"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("<", "(").replace(">", ")")


if __name__ == "__main__":
    main()
