"""`.ci/run`: whatever happens, its last line is the sum, and its exit code is that of what it ran."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.suite.imports import ROOT

MAKE = """#!/bin/sh
echo "make $*" >> "$LOG"
case "$1" in
  setup) exit {setup};;
  test) mkdir -p build/tests; printf 'part  minutes\\n{sum}\\n' > build/tests/summary; exit {test};;
esac
"""


@pytest.mark.parametrize(
    ("setup", "test", "words", "code"),
    [
        (0, 0, "5 passed, 0 failed, 1 skipped", 0),
        (0, 2, "5 passed, 1 failed, 1 skipped", 2),
        (3, 0, "0 passed, 1 failed", 3),
    ],
    ids=["passes", "fails", "cannot be set up"],
)
def test_the_last_line_is_the_sum(setup: int, test: int, words: str, code: int, tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(MAKE.format(setup=setup, test=test, sum=words))
    make.chmod(0o755)
    (tmp_path / "build" / "tests").mkdir(parents=True)
    (tmp_path / "build" / "tests" / "summary").write_text("9 passed, 0 failed, 0 skipped")  # of a run before

    environment = {**os.environ, "PATH": f"{make.parent}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, capture_output=True, text=True, env=environment)

    assert done.returncode == code
    assert done.stdout.strip().split("\n")[-1] == words
    asked = (tmp_path / "log").read_text().split("\n")
    assert asked[0] == "make setup"
    assert asked[1:-1] == ([] if setup else ["make test ARGS=--minutes 75"])
