"""A search on this machine: what it tried, predicted and measured, and what the winner gains over the file's own settings.

`python benchmarks/tuner_live.py [--out DIR] [FILE]`: runs `tuneyard tune` (DIR: goes on with a search there, or takes its result), writes
docs/benchmarks/tuner_live.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from training_cases import ROOT, write_page

from tuneyard.cli.trial_lines import words

AIM = 0.103
"""CubicML's gain over the settings of experts (Meta 2024)."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file", nargs="?", type=Path, default=ROOT / "jobspecs" / "tune-quickstart.yaml")
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = given.out or Path(scratch) / "out"
        # A history of its own: nothing is known before the first trial.
        environment = {**os.environ, "TUNEYARD_HISTORY_URL": f"sqlite:///{scratch}/history.db"}
        command = [str(Path(sys.executable).with_name("tuneyard")), "tune", str(given.file), "--out", str(out)]
        subprocess.run([*command, *(["--resume"] if out.exists() else [])], env=environment, check=True)
        found = json.loads((out / "report.json").read_text())["tasks"]["search"]
    sys.argv = sys.argv[:1]
    write_page("tuner_live", "A search on this machine", list(page(given.file, found)))


def page(file: Path, found: Mapping[str, Any]) -> Iterator[str]:
    runs = [*found["own"], *found["trials"], *(each for pair in found["pairs"] for each in pair)]
    minutes = sum(each["seconds"] for each in runs) / 60
    plan = ", ".join(f"{name.replace('_', ' ')} {str(value).lower()}" for name, value in found["plan"].items())
    spread = statistics.median(each["spread"] for each in runs)
    own = [each["tokens_per_s"] for each in found["own"]] + [one["tokens_per_s"] for one, _ in found["pairs"]]
    yield f"`tuneyard tune {file.name}`: searcher {found['searcher']}, no history. {len(runs)} runs of the task in {minutes:.1f} minutes:"
    yield f"{15 * len(runs) / minutes:.0f} in 15 minutes."
    yield f"The settings of the file: {plan}; not packed. They ran {len(own)} times, at {min(own):,.0f} to {max(own):,.0f} tokens/s."
    yield ""
    ratios = ", ".join(f"{ratio:.3f}" for ratio in found["ratios"])
    yield f"**{found['gain']:+.1%}** ({words(found['best']) or 'nothing confirmed'}), the median of the pairs: {ratios}. Aim: {AIM:+.1%}."
    yield f"Steps within a run spread by {spread:.0%} (half the distance of the quartiles)."
    yield ""
    yield "| run | settings | tokens/s | over the file's, same round | spread of steps | s |"
    yield "|---:|---|---:|---:|---:|---:|"
    for each in sorted(runs, key=lambda one: one["number"]):
        rate = f"{each['tokens_per_s']:,.0f}" if each["tokens_per_s"] else each["failure"]
        ratio = f"{each['ratio']:.3f}" if each["ratio"] else ""
        cells = [each["number"], words(each["point"]) or "of the file", rate, ratio, f"{each['spread']:.0%}", f"{each['seconds']:.0f}"]
        yield f"| {' | '.join(map(str, cells))} |"
    without = max(
        (each for each in found["trials"] if each["ratio"] and not each["point"].get("data.pack")), key=lambda each: each["ratio"]
    )
    yield ""
    yield (
        "Packing is tried because the file lists it: it puts more samples into a step. Without it rows are padded to the longest of their"
        " micro-batch, and padding is computed like tokens."
        f" The best that was tried without it: {words(without['point'])}, {without['ratio']:.2f}."
    )


if __name__ == "__main__":
    main()
