"""What pytest found, read from its JUnit XML files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.suite.processor import PROPERTY

SLOWEST = 20


@dataclass(frozen=True)
class Test:
    """`seconds` include the fixtures that were made for it; `cpu_s` is what its part used meanwhile, 0 where that is not known."""

    name: str
    outcome: str
    seconds: float
    cpu_s: float = 0.0
    part: str = ""


@dataclass(frozen=True)
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        """pytest's closing line, in plain words."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_tests(file: Path) -> list[Test]:
    """Tests that a pytest process has reported; none where it ended before it could write its file."""
    try:
        cases = ElementTree.parse(file).getroot().iter("testcase")
    except (FileNotFoundError, ElementTree.ParseError):
        return []
    return [
        Test(f"{case.get('classname')}::{case.get('name')}", _outcome(case), float(case.get("time", 0)), _cpu_s(case)) for case in cases
    ]


def _cpu_s(case: ElementTree.Element) -> float:
    return next((float(each.get("value", 0)) for each in case.iter("property") if each.get("name") == PROPERTY), 0.0)


def _outcome(case: ElementTree.Element) -> str:
    marks = {child.tag for child in case}
    if marks & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in marks else "passed"


def count(tests: Iterable[Test], *, ended_well: bool) -> Counts:
    """Counts of a part. A part that failed although no test of it did (a crash, a limit, a linter) counts as one failure."""
    outcomes = [test.outcome for test in tests]
    failed = outcomes.count("failed")
    return Counts(outcomes.count("passed"), failed if failed or ended_well else 1, outcomes.count("skipped"))


def slowest(tests: Iterable[Test], count: int = SLOWEST) -> list[Test]:
    return sorted(tests, key=lambda test: -test.seconds)[:count]
