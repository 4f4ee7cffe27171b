"""The closing lines of `make test`: the slowest tests, minutes beside budgets, what was flaky, what did not run, and the sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.suite.parts import Part
from tests.suite.results import Counts, Test, count, read_tests, slowest
from tests.suite.scheduling import Ended

FLAKY_AT_MOST = 3
"""More tests that fail beside others and pass alone fail the run."""
ASKED_AGAIN_AT_MOST = 10
"""Where more tests fail, the change is at fault, and running them once more would only take time."""
_OVER_BUDGET = 1.1


@dataclass
class Closing:
    """What has ended so far. `seconds` since the run began are the caller's to know."""

    ended: list[tuple[Ended, Counts]] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    never_began: Sequence[Part] = ()

    def add(self, end: Ended) -> None:
        # 5: a part of which nothing was selected.
        tests = [replace(test, part=end.part.name) for test in read_tests(end.results)] if end.part.paths else []
        self.ended.append((end, count(tests, ended_well=end.code in (0, 5))))
        self.tests += tests

    @property
    def failed(self) -> list[Test]:
        return [test for test in self.tests if test.outcome == "failed"]

    def parts_to_run_again(self) -> list[Part]:
        """Parts with failed tests, where these are few. A part that ended in another way (a crash, its limit) is not asked again."""
        if not 0 < len(self.failed) <= ASKED_AGAIN_AT_MOST:
            return []
        names = {test.part for test in self.failed}
        return [end.part for end, _ in self.ended if end.part.name in names and not end.timed_out]

    def add_again(self, end: Ended) -> None:
        """The second end of a part, of which only failed tests ran, alone. A test that passes now is flaky, and counts as passed."""
        passed = {test.name for test in read_tests(end.results) if test.outcome == "passed"}
        mended = [test.name for test in self.failed if test.part == end.part.name and test.name in passed]
        self.flaky += mended
        self.tests = [replace(test, outcome="passed") if test.name in mended else test for test in self.tests]
        for index, (first, counts) in enumerate(self.ended):
            if first.part == end.part:
                self.ended[index] = first, Counts(counts.passed + len(mended), counts.failed - len(mended), counts.skipped)

    @property
    def counts(self) -> Counts:
        """Parts that never began, and more flaky tests than a run may have, count as failures."""
        more = len(self.never_began) + (len(self.flaky) > FLAKY_AT_MOST)
        return sum((counts for _, counts in self.ended), Counts(failed=more))

    def slowest_tests(self) -> str:
        lines = ["=== the slowest tests, with the fixtures that were made for them"]
        lines += [f"{test.seconds:7.1f} s {test.cpu_s:7.1f} cpu  {test.name}" for test in slowest(self.tests)]
        return "\n".join(lines)

    def table(self, seconds: float) -> str:
        """One line per part: minutes, processor minutes beside the budget, and tests; then what a reader has to act on."""
        lines = [f"{'part':<12}{'minutes':>9}{'cpu':>8}{'budget':>8}{'passed':>8}{'failed':>8}{'skipped':>8}"]
        for end, counts in self.ended:
            budget = "" if end.part.beside or end.part.long else f"{end.part.cpu_min:.1f}"
            times = f"{end.seconds / 60:>9.1f}{end.cpu_s / 60:>8.1f}{budget:>8}"
            lines.append(f"{end.part.name:<12}{times}{counts.passed:>8}{counts.failed:>8}{counts.skipped:>8}")
        all_cpu = sum(end.cpu_s for end, _ in self.ended if not end.part.beside)
        budgets = sum(end.part.cpu_min for end, _ in self.ended if not end.part.long)
        lines.append(f"{'all':<12}{seconds / 60:>9.1f}{all_cpu / 60:>8.1f}{budgets:>8.1f}")
        return "\n".join([*lines, *self._to_act_on()])

    def _to_act_on(self) -> list[str]:
        lines = [
            f"over its budget: {end.part.name} took {end.cpu_s / 60:.1f} processor minutes of {end.part.cpu_min:g}."
            " Make it cheaper before you add to it."
            for end, _ in self.ended
            if not end.part.beside and end.cpu_s / 60 > _OVER_BUDGET * end.part.cpu_min
        ]
        lines += [
            f"flaky: {name} failed beside other tests and passed alone. Write it down in docs/testing.md, and mend it in the next commit."
            for name in self.flaky
        ]
        if len(self.flaky) > FLAKY_AT_MOST:
            lines.append(f"{len(self.flaky)} tests are flaky; a run with more than {FLAKY_AT_MOST} fails.")
        lines += [f"failed: {test.part}: {test.name}" for test in self.failed]
        lines += [f"interrupted: {end.part.name} after {end.seconds / 60:.0f} minutes" for end, _ in self.ended if end.timed_out]
        if self.never_began:
            lines.append(f"out of time: {', '.join(part.name for part in self.never_began)} did not run. Run them alone: make test ARGS=…")
        return lines

    def write(self, folder: Path, seconds: float) -> None:
        """`summary`: the table and the sum, for whoever reads a log from its end."""
        (folder / "summary").write_text(f"{self.table(seconds)}\n{self.counts}\n")


def describe_end(end: Ended) -> str:
    """A line about the end of a part."""
    words = "passed" if end.code in (0, 5) else f"FAILED with exit code {end.code}"
    late = ", interrupted" if end.timed_out else ""
    return f"{words}{late}, {end.seconds / 60:.1f} minutes, {end.log}"
