"""The same search on a test cluster with one gang, with two, and with two and the runs of the others: gain, trials and time.

`python benchmarks/tuner_gangs.py [--figures FILE]`: runs tests/cluster/test_search_on_gangs.py (or takes FILE, which the test has written),
and writes docs/benchmarks/tuner_gangs.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from training_cases import ROOT, write_page

from tuneyard.cli.trial_lines import words
from tuneyard.tuning import Record

_COLUMNS = (
    *("gangs", "runs from history", "gain", "winner", "ratio of the pair", "other settings tried", "best of the first two"),
    *("predicted over measured", "runs", "s"),
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--figures", type=Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        file = given.figures or Path(scratch) / "figures.json"
        if given.figures is None:
            command = [sys.executable, "-m", "pytest", "-q", "-m", "long", "tests/cluster/test_search_on_gangs.py"]
            subprocess.run(command, cwd=ROOT, env={**os.environ, "TUNEYARD_TEST_FIGURES": str(file)}, check=True)
        found = json.loads(file.read_text())
    sys.argv = sys.argv[:1]
    write_page("tuner_gangs", "Several gangs in one search", list(page(found)))


def page(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "Three jobs with the same search go to a hub one after the other: 12 combinations of micro-batch and ZeRO stage for the"
    yield "quickstart's base model, at most 8 runs and one pair. A gang is one rank in a pod of its own. The hub keeps history, and gives"
    yield "it to the last search alone."
    yield ""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|"
    for search in found:
        yield f"| {' | '.join(map(str, cells(search)))} |"
    yield ""
    rates = [statistics.median(own["tokens_per_s"] for own in search["own"] if own["tokens_per_s"]) for search in found]
    yield f"The settings of the file ran at {', '.join(f'{rate:,.0f}' for rate in rates)} tokens/s in the median, in this order."
    yield "Predictions are those before the first trial; the column is the median over all runs, pairs included."
    yield ""
    yield "All pods share the processors of one machine. Gangs side by side slow each other there, and a second gang starts later than the"
    yield "first. The seconds therefore say nothing about gangs on machines of their own, which were not measured."


def cells(search: Mapping[str, Any]) -> Iterator[object]:
    record = Record.from_dict(search)
    best, gain = record.best(), record.gain(record.needed)
    runs = [*record.own, *record.trials, *(run for pair in record.pairs for run in pair)]
    first = max((trial.ratio or 0.0 for trial in sorted(record.trials, key=lambda trial: trial.number)[:2]), default=0.0)
    began, ended = (datetime.fromisoformat(search[name]) for name in ("began", "ended"))
    expected = [run.predicted / run.tokens_per_s for run in runs if run.predicted and run.tokens_per_s]
    yield search["workers"]
    yield search["said"].partition(" timed runs in history")[0].rpartition(" ")[2] if "timed runs" in search["said"] else 0
    yield f"{gain:+.0%}" if gain else "not confirmed"
    yield words(best.point) if best is not None else "none"
    yield ", ".join(f"{ratio:.2f}" for ratio in record.ratios()) or "none"
    yield len(record.trials)
    yield f"{first:.2f}"
    yield f"{statistics.median(expected):.2f}"
    yield len(runs)
    yield f"{(ended - began).total_seconds():.0f}"


if __name__ == "__main__":
    main()
