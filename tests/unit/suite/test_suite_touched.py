"""`make test SINCE=<rev>`: which parts a changed file touches."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

import pytest
from tests.suite.imports import Imports
from tests.suite.parts import PARTS
from tests.suite.touched import changed_since, read_imports, touched_by

ALL = {part.name for part in PARTS if not part.beside}


@lru_cache(maxsize=1)
def imports() -> Imports:
    return read_imports()


def touched(*files: str) -> set[str]:
    return set(touched_by(files, imports()))


@pytest.mark.parametrize(
    "file",
    ["pyproject.toml", "requirements/cpu.txt", "tests/conftest.py", "tests/suite/parts.py", "platform/tuneyard/api/base.py", "unheard.of"],
)
def test_what_everything_rests_on_and_what_no_rule_knows_touches_all(file: str) -> None:
    assert touched(file) == ALL


@pytest.mark.parametrize("file", ["docs/testing.md", "README.md", "benchmarks/fence.py", "tests/unit/api/test_schema.py"])
def test_pages_and_unit_tests_touch_no_other_part(file: str) -> None:
    assert touched(file) == {"lint", "unit"}


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("tests/integration/scoring/test_score_tables.py", {"scoring"}),
        ("tests/integration/ranking/conftest.py", {"ranking"}),
        ("tests/ranks/ranker_tables.py", {"ranking"}),
        ("benchmarks/flops.py", {"stores"}),
        ("benchmarks/peer_side_trl.py", {"training"}),
        ("tests/clusters/clocked_runner.py", {"runs"}),  # started with -m
        ("charts/tuneyard-hub/values.yaml", {"pods", "hub", "client"}),
        ("jobspecs/quickstart.yaml", {"runs"}),
    ],
)
def test_a_file_touches_the_parts_that_use_it(file: str, names: set[str]) -> None:
    assert touched(file) == {"lint", "unit", *names}


@pytest.mark.parametrize(
    ("file", "yes", "no"),
    [
        ("platform/tuneyard/console/app.py", {"stores", "client"}, {"training", "parallel", "ranking", "scoring", "runs", "hub"}),
        ("platform/tuneyard/cli/plan/command.py", {"runs", "stores", "client"}, {"hub", "ranking", "scoring"}),
        ("platform/tuneyard/cli/jobs/why.py", {"client"}, {"runs", "training", "stores"}),
        ("operators/tuneyard_operators/hub/lanes.py", {"hub", "pods", "client"}, {"training", "scoring", "ranking", "parallel"}),
        ("platform/tuneyard/scoring/removed.py", {"scoring"}, {"parallel"}),  # a file that is gone: its folder
        ("platform/tuneyard/federation/core/cycle.c", {"hub"}, {"parallel"}),
    ],
)
def test_a_module_touches_who_imports_it_and_who_starts_it(file: str, yes: set[str], no: set[str]) -> None:
    assert yes <= touched(file)
    assert not no & touched(file)


def test_changes_are_those_since_a_revision_with_new_files(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for name in ("old", "same"):
        (tmp_path / name).write_text("")
    git("add", ".")
    git("commit", "-q", "-m", "a")
    (tmp_path / "old").write_text("changed")
    (tmp_path / "new").write_text("")

    assert sorted(changed_since("HEAD", tmp_path)) == ["new", "old"]
    with pytest.raises(ValueError, match="git cannot say what changed since nothing"):
        changed_since("nothing", tmp_path)
