"""`python -m tests.suite [PART …]`: all parts, or these; their logs as they end, failed tests once more alone, and the closing lines."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

from tests.suite.closing import Closing, describe_end
from tests.suite.imports import ROOT
from tests.suite.parts import BUILD, PARTS, Part, long_parts
from tests.suite.scheduling import Ended, run_all
from tests.suite.touched import changed_since, read_imports, touched_by

MEMORY_FOR_TIME = {"GOGC": "400"}
"""Go programs collect garbage when their heap has grown by this many percent; 100 is the default. docs/testing.md has the effect."""
FOLDER = ROOT / "build" / "tests"
_TO_END_MIN = 7
"""Minutes that running parts have after the last one began, before they are interrupted."""


def choose(names: list[str]) -> list[Part]:
    """The named parts and the one that builds servers for them; all without names."""
    unknown = set(names) - {part.name for part in PARTS}
    if unknown:
        sys.exit(f"error: no part {', '.join(sorted(unknown))}; there are: {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if not names or part.name in {*names, BUILD}]


def choose_since(revision: str) -> list[Part]:
    """The parts that a change since a revision can touch; says which, and why."""
    try:
        files = changed_since(revision)
    except ValueError as error:
        sys.exit(f"error: {error}")
    touched = touched_by(files, read_imports())
    for name, reason in touched.items():
        print(f"{name:<12}{reason}")
    print(
        f"not touched by {len(files)} changed files: {', '.join(p.name for p in PARTS if p.name not in touched and not p.beside) or 'none'}"
    )
    return choose(list(touched))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of tests/suite/parts.py (default: all)")
    parser.add_argument("--since", metavar="REV", help="lint, unit tests, and the parts that a change since this revision can touch")
    parser.add_argument("--long", action="store_true", help="long tests, and property tests with all examples, in place of the others")
    parser.add_argument("--lanes", type=int, default=(os.cpu_count() or 1) + 1, help="parts at once (default: %(default)s)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        help=f"then no part begins; {_TO_END_MIN} minutes later those that run are interrupted",
    )
    parser.add_argument("--list", action="store_true", help="print the chosen parts, and run none")
    given = parser.parse_args()
    if given.since and given.parts:
        parser.error("take either SINCE, or the names of parts")
    parts = choose_since(given.since) if given.since else choose(given.parts)
    if given.long:
        parts = long_parts(parts)
    if given.list:
        budget = "long tests" if given.long else f"{sum(part.cpu_min for part in parts):.1f} processor minutes"
        print(f"{budget}: {', '.join(part.name for part in parts)}")
        return 0
    return run(parts, lanes=given.lanes, minutes=given.minutes)


def run(parts: list[Part], *, lanes: int, minutes: float) -> int:
    """Run parts, and print what came out. Returns the exit code."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "summary").unlink(missing_ok=True)
    closing, began = Closing(), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: parts take down what they have started
    environment = {**MEMORY_FOR_TIME, **os.environ}

    def begin(part: Part) -> None:
        print(f"{(time.monotonic() - began) / 60:5.1f} min  {part.name} begins", flush=True)

    def show(end: Ended, *, again: bool = False) -> None:
        (closing.add_again if again else closing.add)(end)
        print(f"\n=== {end.part.name}{', failed tests alone' if again else ''}: {describe_end(end)}", flush=True)
        print(end.log.read_text(errors="replace").rstrip(), flush=True)

    def close() -> None:
        seconds = time.monotonic() - began
        print(f"\n{closing.slowest_tests()}\n\n{closing.table(seconds)}\n\n{closing.counts}", flush=True)
        closing.write(FOLDER, seconds)

    end_at = began + minutes * 60
    limits = {"start_until": end_at, "run_until": end_at + _TO_END_MIN * 60}
    try:
        closing.never_began = run_all(parts, FOLDER, lanes=lanes, environment=environment, started=begin, ended=show, **limits)
        # One after the other, with nothing beside them: a test that passes now failed for what ran beside it.
        run_all(
            closing.parts_to_run_again(),
            FOLDER,
            lanes=1,
            environment=environment,
            started=begin,
            ended=lambda end: show(end, again=True),
            again=True,
            **limits,
        )
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        close()
        return 130
    close()
    return 1 if closing.counts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
