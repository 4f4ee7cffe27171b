"""Dockerfiles as lists of instructions, and which files of the repository a build is given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCKERFILES = sorted((ROOT / "docker").glob("Dockerfile.*"))


@dataclass(frozen=True)
class Instruction:
    stage: int
    name: str
    words: str

    @property
    def arguments(self) -> list[str]:
        return [word for word in shlex.split(self.words) if not word.startswith("--")]

    @property
    def flags(self) -> list[str]:
        return [word for word in self.words.split() if word.startswith("--")]


def instructions(path: Path) -> list[Instruction]:
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return list(_staged(line.strip() for line in lines if line.strip()))


def _staged(lines: Iterator[str]) -> Iterator[Instruction]:
    stage = -1
    for line in lines:
        name, _, words = line.partition(" ")
        stage += name == "FROM"
        yield Instruction(stage, name, words.strip())


def reaches_the_build(path: str) -> bool:
    """Whether .dockerignore lets a file of the repository through: the last line that matches it, or a folder above it, decides."""
    above = [path, *(str(parent) for parent in Path(path).parents if str(parent) != ".")]
    let = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("**/")
            names = above if pattern == line.removeprefix("!") else [part for one in above for part in (one, Path(one).name)]
            if any(fnmatch(name, pattern) for name in names):
                let = line.startswith("!")
    return let


def requirements(lock: Path) -> dict[str, str]:
    """Name (as on the index) -> the whole entry of a lock file."""
    entries = re.split(r"\n(?=\S)", lock.read_text())
    return {match[1].lower(): entry for entry in entries if (match := re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==", entry))}
