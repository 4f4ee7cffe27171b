"""Command lines in pages: in fenced blocks, after a `$` in transcripts, and in sentences.

A line of a block counts if it starts with a program that is named in PROGRAMS. Usage lines are taken apart first: `[--all]`, `a|b`,
`status · why NAME` become lines that a parser can read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tests.unit.docs.markdown import Block, Page

PYTHONS = ("python", "python3", ".venv/bin/python")
CHECKED = ("tuneyard", ".venv/bin/tuneyard", "kubectl", "make", "helm", "pip", ".venv/bin/pip", "bash", "torchrun", *PYTHONS)
"""Programs whose verbs, options or files are compared with the code."""
_OF_THE_SYSTEM = ("apt-get", "cat", "cd", "cp", "curl", "echo", "eval", "export", "mkdir", "rm", "source", "sudo")
OTHERS = (*_OF_THE_SYSTEM, "aws", "comet", "docker", "git", "uv")
"""Programs of which only the files of this repository that they name are looked for."""
PROGRAMS = (*CHECKED, *OTHERS)
_USAGE = re.compile(r"[\[\]·…|]|\.\.\.|\b[A-Z]{2,}\b|\bN\b")
_ASSIGNED = re.compile(r"^\w+=\S*$")


@dataclass(frozen=True)
class Line:
    """A command. `partial`: a usage line, or a name in a sentence, which may lack arguments."""

    where: str
    text: str
    argv: tuple[str, ...]
    partial: bool

    @property
    def program(self) -> str:
        return self.argv[0]


def lines_of(page: Page) -> Iterator[Line]:
    """Every command of a page. Raises ValueError where quotes are open."""
    for block in page.blocks:
        if block.language not in ("yaml", "python", "sql", "json"):
            yield from _of_block(block)
    for number, text in page.spans:
        if text.split()[0] in CHECKED and " " in text:
            yield from _lines(f"{page.name}:{number}", text, partial=True)


def _of_block(block: Block) -> Iterator[Line]:
    transcript = any(line.startswith("$ ") for line in block.text.splitlines())
    number, waiting = block.line, ""
    for line in block.text.splitlines():
        text = waiting + (line.removeprefix("$ ") if not waiting else line.strip())
        if line.endswith("\\"):
            waiting = text.rstrip("\\").rstrip() + " "
        else:
            if _is_command(text) and (not transcript or waiting or line.startswith("$ ")):
                yield from _lines(f"{block.page}:{number}", text, partial=False)
            waiting = ""
        number += 1


def _is_command(text: str) -> bool:
    words = text.split()
    while words and _ASSIGNED.match(words[0]):
        words = words[1:]
    return bool(words) and words[0] in PROGRAMS


def _lines(where: str, text: str, *, partial: bool) -> Iterator[Line]:
    command = re.split(r" {2,}", text.strip())[0]
    own = command.split()[0] in ("tuneyard", ".venv/bin/tuneyard") or command.startswith("kubectl tuneyard")
    usage = own and _USAGE.search(re.sub(r"\s#.*", "", command)) is not None
    for one in _alternatives(command) if own else [command]:
        argv = shlex.split(one, comments=True)
        while argv and _ASSIGNED.match(argv[0]):
            argv = argv[1:]
        for end in ("|", "&", "&&", ";", ">", "2>"):
            argv = argv[: argv.index(end)] if end in argv else argv
        if argv:
            yield Line(where, text, tuple(argv), partial or usage)


def _alternatives(usage: str) -> Iterator[str]:
    """`tuneyard history list | import CSV` -> `tuneyard history list`, `tuneyard history import CSV`."""
    plain = re.sub(r"\s#.*", "", usage)
    first, *rest = re.split(r" [·|] ", re.sub(r"[\[\]…]|\.\.\.", " ", plain))
    yield from _words(first)
    stem = first.split()
    length = 2 if stem[0] == "kubectl" or (len(stem) > 2 and stem[1] in ("history", "checkpoints", "data", "schema")) else 1
    for part in rest:
        yield from _words(" ".join([*stem[:length], part]))


def _words(text: str) -> Iterator[str]:
    """`--dtype bf16|fp32` -> `--dtype bf16`, `--dtype fp32`; a number where the usage has N."""
    choices = [[choice if choice != "N" else "2" for choice in word.split("|")] for word in text.split()]
    yield from (" ".join(words) for words in product(*choices))
