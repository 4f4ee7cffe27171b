"""Kill matrix: SIGKILL at random instants of training and of saves, over ZeRO stages, methods, workers, and a storage that comes and goes.

`python benchmarks/checkpoint_kills.py [--kills 5]`: writes docs/benchmarks/checkpoint_kills.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.ranks.kills import Case, Outcome, run_case
from training_cases import write_page

SHAPE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4}
LORA = {"method": {"lora": {"rank": 8, "dropout": 0.1}}}


def cases() -> list[tuple[str, dict[str, Any], dict[str, Any], bool]]:
    """Name, plan, task, whether on S3."""
    found: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = []
    for zero in range(4):
        found += [(f"ZeRO {zero}, full", {"zero": zero}, {}, False), (f"ZeRO {zero}, LoRA", {"zero": zero}, LORA, False)]
    found += [(f"ZeRO {zero}, full, 2 workers", {"zero": zero, "workers": 2}, {}, False) for zero in range(4)]
    found.append(("ZeRO 3, optimizer offloaded, full", {"zero": 3, "offload_optimizer": "cpu"}, {}, False))
    found += [
        (f"ZeRO {zero}, full, S3 that stops and starts", {"zero": zero, "workers": workers}, {}, True)
        for zero, workers in ((0, 1), (2, 2), (3, 1))
    ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=5)
    kills = parser.parse_args().kills
    lines = [
        "| case | kills | of these in a save | attempts | S3 outages | losses against the run left alone | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    total, inexact = Outcome(), 0
    for seed, (name, plan, task, on_s3) in enumerate(cases(), start=1):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = run_case(
                Case(folder=folder, plan=plan, task=task, shape=SHAPE, kills=kills, seed=seed, on_s3=on_s3, outages=on_s3, steps=40)
            )
        agreement = "equal, bit for bit" if outcome.exact else f"differ by {outcome.difference:.1e}"
        row = [name, outcome.kills, outcome.in_saves, outcome.attempts, outcome.outages or "", agreement, f"{time.monotonic() - began:.0f}"]
        lines.append("| " + " | ".join(map(str, row)) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
        total.kills += outcome.kills
        total.in_saves += outcome.in_saves
        total.attempts += outcome.attempts
        inexact += not outcome.exact
    lines += [
        "",
        f"{total.kills} kills, {total.in_saves} of them aimed at a save on its way, {total.attempts} attempts; every run resumed each time",
        f"and came to its end. Cases whose losses differ from those of the run left alone: {inexact}.",
        "",
        "Llama shape of 3 million parameters, 40 steps, a checkpoint every 2. A kill takes one rank at random, or all of them; half of",
        "the kills on local disk wait until the folder of a new checkpoint appears, and strike up to 50 ms later.",
    ]
    write_page("checkpoint_kills", "Killed at random instants", lines)
    if inexact:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
