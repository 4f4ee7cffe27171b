"""`make test SINCE=<rev>`: the parts that a change can touch.

A part is touched by a changed module that one of its test files reaches (`imports`), or that one of its `programs` reaches: programs that
tests start as processes, and a changed folder that it `reads`. Lint and unit tests always run. What everything rests on, and a changed
file that no rule knows, touches every part.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePath

from tests.suite.imports import ROOT, Imports
from tests.suite.parts import PARTS, Part

from tuneyard.cli.commands import COMMANDS

ALWAYS = ("lint", "unit")
EVERY_PART = (
    "tests/suite",
    "tests/conftest.py",
    "tests/__init__.py",
    "pyproject.toml",
    "requirements",
    "Makefile",
    "scripts/setup.sh",
    "hatch_build.py",
)
"""What every test rests on: its runner, its configuration, its libraries."""
ALWAYS_READ = ("docs", "README.md", "CONTRIBUTING.md", "LICENSE", ".ci", ".gitignore", "docker", "tests/golden")
"""What unit tests and lint alone look at."""


def changed_since(revision: str, root: Path = ROOT) -> list[str]:
    """Files that differ from a revision, with those that are new and not ignored.

    Raises:
        ValueError: git knows no such revision, or this is no checkout.
    """
    files: list[str] = []
    for command in (["diff", "--name-only", "--no-renames", revision, "--"], ["ls-files", "--others", "--exclude-standard"]):
        done = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"git cannot say what changed since {revision}: {done.stderr.strip().splitlines()[-1]}")
        files += done.stdout.splitlines()
    return files


def read_imports() -> Imports:
    """The graph of this tree, with the commands of `tuneyard`."""
    return Imports(commands={command.name: command.target.partition(":")[0] for command in COMMANDS})


def touched_by(files: Iterable[str], imports: Imports, parts: Iterable[Part] = PARTS) -> dict[str, str]:
    """Names of touched parts, each with the changed file that touches it."""
    parts = [part for part in parts if not part.beside]
    touched = dict.fromkeys(ALWAYS, "always runs")
    reached = {part.name: _reached(part, imports) for part in parts}
    modules = {str(path.relative_to(imports.root)): module for module, path in imports.modules.items()}
    for file in files:
        for part in parts:
            if part.name not in touched and _touches(file, part, reached[part.name], modules):
                touched[part.name] = file
    return touched


def _touches(file: str, part: Part, reached: set[str], modules: Mapping[str, str]) -> bool:
    if _lies_in(file, EVERY_PART):
        return True
    if _lies_in(file, part.reads) or _lies_in(file, part.paths):
        return True
    if _lies_in(file, ALWAYS_READ) or _is_read(file):
        return False
    changed = _modules_of(file, modules)
    return not changed or not reached.isdisjoint(changed)


def _modules_of(file: str, modules: Mapping[str, str]) -> set[str]:
    """The module of a file; of a file that is no module, or is gone, those of the nearest folder that has any."""
    if file in modules:
        return {modules[file]}
    for folder in PurePath(file).parents:
        found = {module for path, module in modules.items() if PurePath(path).parent == folder}
        if found:
            return found
    return set()


def _is_read(file: str) -> bool:
    """Whether some part says that it reads the file's folder: parts that do not are not touched by it."""
    return any(_lies_in(file, part.reads) for part in PARTS)


@cache
def _reached(part: Part, imports: Imports) -> set[str]:
    """Looked for once: where each of two thousand modules lies takes longer than the question."""
    roots = {module for module, path in imports.modules.items() if _lies_in(str(path.relative_to(imports.root)), part.paths)}
    return imports.reached({*roots, *part.programs})


def _lies_in(file: str, paths: Iterable[str]) -> bool:
    return any(PurePath(file).is_relative_to(path) for path in paths)
