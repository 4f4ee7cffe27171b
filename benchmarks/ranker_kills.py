"""Kill matrix of rank tasks: SIGKILL at random instants of training and of saves, over layouts of tables and of the dense part.

`python benchmarks/ranker_kills.py [--kills 4]`: writes docs/benchmarks/ranker_kills.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.ranks.kills import Case, run_case
from training_cases import write_page

TASK: dict[str, Any] = {"batch": {"global": 240}, "model": {"width": 32}}
TWO = {"workers": 2}
ELASTIC = [{"workers": workers} for workers in (1, 2, 4, 3)]


def cases() -> list[tuple[str, dict[str, Any]]]:
    """Name, and fields of a case."""
    return [
        ("1 worker", {"plan": {}}),
        ("2 workers, tables as a whole", {"plan": TWO, "task": {"tables": {"sharding": "table"}}}),
        ("2 workers, tables by rows, fp16", {"plan": TWO, "task": {"tables": {"sharding": "row", "rows": "fp16"}}}),
        ("2 workers, tables by columns, ZeRO 3", {"plan": {**TWO, "zero": 3}, "task": {"tables": {"sharding": "column"}}}),
        ("2 workers, S3 that stops and starts", {"plan": TWO, "on_s3": True, "outages": True}),
        ("1, 2, 4, 3 workers in turn", {"plan": {}, "layouts": ELASTIC}),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=4)
    kills = parser.parse_args().kills
    lines = [
        "| case | kills | of these in a save | attempts | losses against the run left alone | seconds |",
        "|---|---|---|---|---|---|",
    ]
    total = 0
    for seed, (name, fields) in enumerate(cases(), start=1):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            task = TASK | fields.pop("task", {})
            outcome = run_case(Case(folder=folder, task=task, ranker=True, kills=kills, seed=seed, **fields))
        total += outcome.kills
        agreement = "equal, bit for bit" if outcome.exact else f"differ by {outcome.difference:.1e}"
        row = [name, outcome.kills, outcome.in_saves, outcome.attempts, agreement, f"{time.monotonic() - began:.0f}"]
        lines.append("| " + " | ".join(map(str, row)) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    text = (
        f"{total} kills. 30 steps of 240 rows of the log of clicks, a checkpoint every two "
        "steps; at each kill one rank or all, at random, half of the kills while a save is on its way. In the last row each attempt has "
        "another number of workers than the one before, so that tables move and sums are added in another order."
    )
    write_page("ranker_kills", "Rank tasks that are killed", [text, "", *lines])


if __name__ == "__main__":
    main()
