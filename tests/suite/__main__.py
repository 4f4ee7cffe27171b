"""`python -m tests.suite [PART …]`: all parts, or these; their logs as they end, the slowest tests, and the sum."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from tests.suite.parts import BUILD, PARTS, Part
from tests.suite.results import Counts, Test, counted, read_tests, slowest
from tests.suite.scheduling import Ended, run_all

MEMORY_FOR_TIME = {"GOGC": "400"}
"""Go programs collect garbage when their heap has grown by this many percent; 100 is the default. docs/testing.md has the effect."""
FOLDER = Path(__file__).parents[2] / "build" / "tests"


class Summary:
    """What has ended so far."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.ended: list[tuple[Ended, Counts]] = []
        self.tests: list[Test] = []

    def add(self, end: Ended) -> None:
        tests = read_tests(end.results) if end.part.paths else []
        # 5: a part of which nothing was selected.
        counts = counted(tests, ended_well=end.code in (0, 5))
        self.tests += tests
        self.ended.append((end, counts))
        print(f"\n=== {end.part.name}: {_outcome(end)}", flush=True)
        print(end.log.read_text(errors="replace").rstrip(), flush=True)

    @property
    def counts(self) -> Counts:
        return sum((counts for _, counts in self.ended), Counts())

    def show(self, seconds: float) -> None:
        print("\n=== the slowest tests, with the fixtures that were made for them")
        for test in slowest(self.tests):
            print(f"{test.seconds:7.1f} s {test.cpu_s:7.1f} cpu  {test.name}")
        print(f"\n{'part':<24}{'minutes':>8}{'cpu':>8}{'share':>8}{'budget':>8}{'passed':>8}{'failed':>8}{'skipped':>8}")
        for end, counts in self.ended:
            minutes = end.seconds / 60
            share = 0.0 if end.part.beside else minutes / self.lanes
            over = "  over its budget" if share > end.part.budget_min > 0 else ""
            times = f"{minutes:>8.1f}{end.cpu_s / 60:>8.1f}{share:>8.1f}{end.part.budget_min:>8g}"
            figures = f"{times}{counts.passed:>8}{counts.failed:>8}{counts.skipped:>8}"
            print(f"{end.part.name:<24}{figures}{over}")
        print(f"{seconds / 60:.1f} minutes\n\n{self.counts}", flush=True)
        (FOLDER / "sum").write_text(f"{self.counts}\n")


def _outcome(end: Ended) -> str:
    words = "passed" if end.code in (0, 5) else f"FAILED with exit code {end.code}"
    late = f", interrupted after {end.part.limit_s / 60:g} minutes" if end.timed_out else ""
    return f"{words}{late}, {end.seconds / 60:.1f} minutes, {end.log}"


def chosen(names: list[str]) -> list[Part]:
    """The named parts and the one that builds; all without names."""
    unknown = set(names) - {part.name for part in PARTS}
    if unknown:
        sys.exit(f"error: no part {', '.join(sorted(unknown))}; there are: {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if not names or part.name in {*names, BUILD}]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of tests/suite/parts.py (default: all)")
    parser.add_argument("--lanes", type=int, default=(os.cpu_count() or 1) + 1, help="parts at once (default: %(default)s)")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "sum").unlink(missing_ok=True)
    summary, began = Summary(given.lanes), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: parts take down what they have started
    try:
        run_all(
            chosen(given.parts),
            FOLDER,
            lanes=given.lanes,
            environment={**MEMORY_FOR_TIME, **os.environ},
            started=lambda part: print(f"{(time.monotonic() - began) / 60:5.1f} min  {part.name} begins", flush=True),
            ended=summary.add,
        )
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        summary.show(time.monotonic() - began)
        return 130
    summary.show(time.monotonic() - began)
    return 1 if summary.counts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
