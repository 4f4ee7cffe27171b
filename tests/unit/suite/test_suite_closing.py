"""The closing lines of `make test`: who is over the budget, what was flaky, what did not run; and what of it fails the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.suite.closing import ASKED_AGAIN_AT_MOST, FLAKY_AT_MOST, Closing
from tests.suite.parts import Part
from tests.suite.results import Counts
from tests.suite.scheduling import Ended, run_all

TESTS = """
from pathlib import Path

def test_fails_the_first_time():
    mark = Path({folder!r}) / "seen"
    seen = mark.exists()
    mark.touch()
    assert seen

def test_good():
    with open({folder!r} + "/good", "a") as file:
        file.write("x")

def test_bad():
    assert False
"""


def end(name: str, *, cpu_s: float = 1, code: int = 0, timed_out: bool = False) -> Ended:
    return Ended(Part(name=name, cpu_min=1, command=("true",)), code, 60.0, cpu_s, timed_out, Path("log"), Path("results"))


def end_with(folder: Path, outcomes: dict[str, bool]) -> Ended:
    """The end of a part whose tests, by name, have passed or not."""
    results = folder / "results.xml"
    cases = "".join(
        f'<testcase classname="some" name="{name}">{"" if passed else "<failure/>"}</testcase>' for name, passed in outcomes.items()
    )
    results.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return Ended(Part(name="some", cpu_min=1, paths=("tests",)), int(not all(outcomes.values())), 60.0, 1.0, False, Path("log"), results)


def test_what_failed_runs_once_more_and_is_flaky_if_it_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By real processes of pytest, as `make test` starts them."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(TESTS.format(folder=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    part = Part(name="some", cpu_min=1, paths=(str(tmp_path / "tests"), f"--rootdir={tmp_path}", "-c", "/dev/null"))
    closing = Closing()
    for again, ended in ((False, closing.add), (True, closing.add_again)):
        run_all([part], tmp_path, lanes=1, environment=os.environ, started=lambda _: None, ended=ended, again=again)

    assert closing.counts == Counts(passed=2, failed=1)
    words = closing.table(60)
    assert "flaky: tests.test_some::test_fails_the_first_time failed beside other tests and passed alone" in words
    assert "failed: some: tests.test_some::test_bad" in words
    assert (tmp_path / "good").read_text() == "x", "what had passed did not run again"


@pytest.mark.parametrize(("flaky", "failed"), [(FLAKY_AT_MOST, 0), (FLAKY_AT_MOST + 1, 1)])
def test_more_flaky_tests_than_three_fail_the_run(flaky: int, failed: int, tmp_path: Path) -> None:
    closing = Closing()
    closing.add(end_with(tmp_path, {f"test_{number}": False for number in range(flaky)}))
    assert [part.name for part in closing.parts_to_run_again()] == ["some"]
    closing.add_again(end_with(tmp_path, {f"test_{number}": True for number in range(flaky)}))

    assert closing.counts == Counts(passed=flaky, failed=failed)
    assert (f"{flaky} tests are flaky; a run with more than {FLAKY_AT_MOST} fails." in closing.table(60)) == bool(failed)


def test_where_many_tests_fail_none_runs_again(tmp_path: Path) -> None:
    closing = Closing()
    closing.add(end_with(tmp_path, {f"test_{number}": False for number in range(ASKED_AGAIN_AT_MOST + 1)}))

    assert closing.parts_to_run_again() == []
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
