"""Installs of the wheel as `pip install` makes them, in environments of their own, in the versions of a lock file."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.installed import call

ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).with_name("uv"))

_LINES = """
import contextlib, io, json, sys
from tuneyard.cli import main
found = {}
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        found[line] = [main(line.split()), out.getvalue(), err.getvalue()]
print(json.dumps(found))
"""
"""An interpreter and its imports take longer than what command lines do."""


@dataclass(frozen=True)
class Install:
    """A virtual environment that holds Tuneyard as a wheel, and neither this repository nor its `.venv`."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def __call__(self, *words: object, cwd: Path, module: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `tuneyard WORDS`, or `python -m MODULE WORDS`, as someone who has a home folder without anything in it."""
        command = [str(self.python), "-m", module] if module else [str(self.folder / "bin" / "tuneyard")]
        (home := cwd / "home").mkdir(exist_ok=True)
        environment = {"HOME": str(home), "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "HF_HUB_OFFLINE": "1", **variables}
        line = [*command, *map(str, words)]
        return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)

    def run_lines(self, lines: Sequence[str], *, cwd: Path, **variables: str) -> dict[str, tuple[int, str, str]]:
        """Run command lines of `tuneyard`, in one process; line -> exit code, stdout and stderr."""
        (cwd / "lines.py").write_text(_LINES)
        done = self(json.dumps(lines), cwd=cwd, module="lines", **variables)
        assert done.returncode == 0, done.stderr
        return {line: tuple(found) for line, found in json.loads(done.stdout).items()}

    def distributions(self) -> set[str]:
        """What is installed, by name."""
        listed = subprocess.run([UV, "pip", "freeze", "--python", str(self.python)], capture_output=True, text=True, check=True).stdout
        return {line.split("==")[0].split(" @ ")[0] for line in listed.splitlines()}


@functools.cache
def wheel() -> Path:
    """The wheel of this tree, built once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="tuneyard-wheel-"))
    call([UV, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(folder), str(ROOT)])
    (found,) = folder.glob("*.whl")
    return found


def install(folder: Path, extra: str = "") -> Install:
    """Install the wheel, with an extra or without. What is there is found in uv's cache, so that it takes seconds."""
    call([UV, "venv", "--quiet", "--python", sys.executable, str(folder)])
    what = f"{wheel()}[{extra}]" if extra else str(wheel())
    # Bytecode of 200 MB of libraries would be compiled for one test.
    quick = ["--quiet", "--no-compile-bytecode", "--python", str(folder / "bin" / "python")]
    call([UV, "pip", "install", *quick, "--constraint", str(ROOT / "requirements" / "cpu.txt"), what], env=dict(os.environ))
    return Install(folder)
