"""The closing lines of `make test`: who is over the budget, what was flaky, what did not run; and what of it fails the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.suite.closing import ASKED_AGAIN_AT_MOST, FLAKY_AT_MOST, Closing
from tests.suite.parts import Part
from tests.suite.results import Counts
from tests.suite.scheduling import Ended, run_all

FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_fails_the_first_time(number):
    mark = Path({folder!r}) / str(number)
    seen = mark.exists()
    mark.touch()
    assert seen
"""
GOOD = "\ndef test_good():\n    with open({counts!r}, 'a') as file:\n        file.write('x')\n"
BAD = "\ndef test_bad():\n    assert False\n"


def end(name: str, *, cpu_s: float = 1, code: int = 0, timed_out: bool = False) -> Ended:
    return Ended(Part(name=name, cpu_min=1, command=("true",)), code, 60.0, cpu_s, timed_out, Path("log"), Path("results"))


def run_twice(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> Closing:
    """A part of real tests, run as `make test` runs it: beside others, and what failed once more."""
    (folder / "tests").mkdir()
    (folder / "tests" / "test_some.py").write_text(source)
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", str(root))
    part = Part(name="some", cpu_min=1, paths=(str(folder / "tests"), f"--rootdir={folder}", "-c", "/dev/null"))
    closing = Closing()
    arguments = {"lanes": 1, "environment": os.environ, "started": lambda _: None}
    run_all([part], folder, ended=closing.add, **arguments)  # type: ignore[arg-type]
    run_all(closing.parts_to_run_again(), folder, ended=closing.add_again, again=True, **arguments)  # type: ignore[arg-type]
    return closing


def test_a_test_that_passes_alone_is_named_as_flaky_and_the_run_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = tmp_path / "counts"
    source = FLAKY.format(count=1, folder=str(tmp_path)) + GOOD.format(counts=str(counts))

    closing = run_twice(tmp_path, monkeypatch, source)

    assert closing.counts == Counts(passed=2)
    assert "flaky: tests.test_some::test_fails_the_first_time[0] failed beside other tests and passed alone" in closing.table(60)
    assert counts.read_text() == "x"  # what had passed did not run again


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closing = run_twice(tmp_path, monkeypatch, FLAKY.format(count=1, folder=str(tmp_path)) + BAD)

    assert closing.counts == Counts(passed=1, failed=1)
    assert "failed: some: tests.test_some::test_bad" in closing.table(60)


def test_more_flaky_tests_than_three_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closing = run_twice(tmp_path, monkeypatch, FLAKY.format(count=FLAKY_AT_MOST + 1, folder=str(tmp_path)))

    assert closing.counts == Counts(passed=FLAKY_AT_MOST + 1, failed=1)
    assert f"{FLAKY_AT_MOST + 1} tests are flaky; a run with more than {FLAKY_AT_MOST} fails." in closing.table(60)


def test_where_many_tests_fail_none_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closing = run_twice(tmp_path, monkeypatch, FLAKY.format(count=ASKED_AGAIN_AT_MOST + 1, folder=str(tmp_path)))

    assert closing.counts == Counts(failed=ASKED_AGAIN_AT_MOST + 1)


def test_a_part_over_its_budget_by_a_tenth_is_named() -> None:
    closing = Closing()
    for each in (end("cheap", cpu_s=65), end("dear", cpu_s=67)):
        closing.add(each)

    assert [line for line in closing.table(60).split("\n") if "over its budget" in line] == [
        "over its budget: dear took 1.1 processor minutes of 1. Make it cheaper before you add to it."
    ]
    assert closing.counts.failed == 0


def test_parts_that_had_no_time_to_begin_and_those_that_were_interrupted_fail_the_run() -> None:
    closing = Closing(never_began=(Part(name="late", cpu_min=1),))
    closing.add(end("long", code=2, timed_out=True))

    assert closing.counts == Counts(failed=2)
    assert "interrupted: long after 1 minutes" in closing.table(60)
    assert "out of time: late did not run. Run them alone: make test ARGS=…" in closing.table(60)


def test_the_summary_ends_with_the_sum(tmp_path: Path) -> None:
    closing = Closing()
    closing.add(end("one"))
    closing.write(tmp_path, 60)

    assert (tmp_path / "summary").read_text().split("\n")[-2:] == ["0 passed, 0 failed, 0 skipped", ""]
