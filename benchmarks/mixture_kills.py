"""A mixture of three streamed and prepared sets, killed at random: its shares, and its losses beside those of a run left alone.

`python benchmarks/mixture_kills.py [--steps 2000] [--kills 20]`: two ranks with data workers. Writes docs/benchmarks/mixture_kills.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.training_cases import write_page
from tests.builders.models import sentences
from tests.ranks.kills import Case, run_case

WEIGHTS = {"chats": 5.0, "manuals": 2.0, "replay": 1.0}
ROWS = {"chats": 4_000, "manuals": 40_000, "replay": 40_000}


def write_parts(folder: Path) -> list[dict[str, object]]:
    """A small set that is seen many times, and two large ones."""
    texts = sentences(300)
    for name, rows in ROWS.items():
        lines = (json.dumps({"text": f"{name} {i} {texts[i % 300]}"}) + "\n" for i in range(rows))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return [{"source": f"{folder}/{name}.jsonl", "name": name, "weight": weight} for name, weight in WEIGHTS.items()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TUNEYARD_CACHE"] = f"{name}/cache"
        data = {"mix": write_parts(folder), "maxLength": 64, "streaming": True, "workers": 1}
        task = {"data": data, "steps": given.steps, "checkpoint": {"everySteps": max(2, given.steps // 60), "keep": 3}}
        case = Case(folder=f"{name}/case", plan={"workers": 2}, task=task, kills=given.kills, steps=given.steps)
        outcome = run_case(case, limit_s=5400)
    mixture = outcome.details["mixture"]
    total = sum(WEIGHTS.values())
    rows = [sum(step) for step in zip(*mixture["rows_by_step"], strict=True)]
    wished = [weight / total for weight in WEIGHTS.values()]
    same = "equal to" if outcome.exact else "NOT equal to"
    lines = [
        f"{given.steps} steps of 8 rows on two ranks; {outcome.kills} kills of a rank or of both, {outcome.in_saves} of them while a",
        f"checkpoint was written, in {outcome.attempts} attempts. Losses are {same} those of the run left alone, bit for bit.",
        "",
        "| part | weight | share wished | share | off by |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {part} | {weight:g} | {wish:.2%} | {count / sum(rows):.2%} | {abs(count / sum(rows) - wish) / wish:.2%} |"
            for (part, weight), wish, count in zip(WEIGHTS.items(), wished, rows, strict=True)
        ),
    ]
    write_page("mixture_kills", "A mixture under kills", lines)


if __name__ == "__main__":
    main()
