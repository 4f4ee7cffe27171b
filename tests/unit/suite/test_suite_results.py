"""The sum that `make test` ends with: every part counts, also one that has reported nothing."""

from __future__ import annotations

from pathlib import Path

from tests.suite.results import Counts, count, read_tests, slowest

XML = """<testsuites><testsuite name="pytest">
<testcase classname="tests.a" name="test_good" time="1.5"/>
<testcase classname="tests.a" name="test_slow" time="9.0"/>
<testcase classname="tests.a" name="test_bad" time="0.5"><failure message="no"/></testcase>
<testcase classname="tests.b" name="test_setup" time="0.1"><error message="no"/></testcase>
<testcase classname="tests.b" name="test_left_out" time="0.0"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""


def test_outcomes_are_counted(tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(XML)

    tests = read_tests(tmp_path / "results.xml")

    assert str(count(tests, ended_well=False)) == "2 passed, 2 failed, 1 skipped"
    assert [test.name for test in slowest(tests, 2)] == ["tests.a::test_slow", "tests.a::test_good"]


def test_a_part_that_fails_without_a_failed_test_counts_as_a_failure(tmp_path: Path) -> None:
    (tmp_path / "broken.xml").write_text("<testsuites><testsuite>")

    for file in ("broken.xml", "missing.xml"):
        assert count(read_tests(tmp_path / file), ended_well=False) == Counts(failed=1)
    assert count([], ended_well=True) == Counts()
    assert Counts(3, 0, 1) + Counts(2, 1, 0) == Counts(5, 1, 1)
