"""What `make quickstart` says last: the path of the report on stdout, and on stderr how the command is called from now on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_RUN = """#!/bin/sh
echo runs/quickstart/report.json
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the Makefile, set up, in which a job is done at once."""
    folder = tmp_path / "my clone"
    program = folder / ".venv" / "bin" / "tuneyard"
    program.parent.mkdir(parents=True)
    program.write_text(_RUN)
    program.chmod(0o755)
    shutil.copy(ROOT / "Makefile", folder)
    return folder


def quickstart(clone: Path, path: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "--silent", "--assume-old=setup", "quickstart"]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=True)


def test_it_ends_with_how_the_command_is_reached(clone: Path) -> None:
    done = quickstart(clone, "/usr/bin:/bin")
    assert done.stdout.splitlines()[-1] == "runs/quickstart/report.json"
    advice = done.stderr.splitlines()[-1]
    assert advice.startswith("next: the command is .venv/bin/tuneyard; as plain `tuneyard`: ")
    line = advice.partition("`tuneyard`: ")[2]
    shown = subprocess.run(["sh", "-c", f"{line}\ncommand -v tuneyard"], capture_output=True, text=True, check=True, cwd="/")
    assert shown.stdout.strip() == str(clone / ".venv" / "bin" / "tuneyard"), "the line works as it is printed, from any folder"


def test_who_has_it_on_the_path_is_told_nothing(clone: Path) -> None:
    assert quickstart(clone, f"{clone}/.venv/bin:/usr/bin:/bin").stderr == ""
