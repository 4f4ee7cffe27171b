"""The files that the command of a process task needs: the files it names, and the Python modules they import.

`os.path` is asked, and not pathlib, which raises where a word is too long to be a name.
"""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

_NOT_SHIPPED = ("__pycache__",)


def program_files(command: Sequence[str], folder: Path) -> set[Path]:
    """Paths below `folder`, or leading out of it, where the command says so. Words that name nothing there are left alone.

    A folder is meant where a word has a `/` in it. What a program opens by itself cannot be known: `workingDir` ships a whole folder.
    """
    found: set[Path] = set()
    for token in _tokens(command):
        path = folder / token
        if os.path.isfile(path):
            found |= {path, *(_imports(path, path.parent) if path.suffix == ".py" else ())}
        elif "/" in token and os.path.isdir(path):
            found |= set(files_below(path))
    for before, module in pairwise(command):
        if before == "-m":
            for path in _module(module, folder):
                found |= {path, *_imports(path, folder)}
    return {Path(os.path.normpath(path)) for path in found}


def named_files(line: str, folder: Path) -> list[str]:
    """Words of a command line that are files below `folder`."""
    return sorted({token for token in _tokens([line]) if os.path.isfile(folder / token)})


def files_below(folder: Path) -> Iterator[Path]:
    """What a folder holds, but for hidden files and Python's caches. Links to folders are not followed: they are given as they are."""
    for here, folders, names in os.walk(folder):
        linked = [name for name in folders if Path(here, name).is_symlink()]
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_SHIPPED and name not in linked]
        yield from (Path(here, name) for name in (*linked, *names) if not name.startswith("."))


def _tokens(command: Sequence[str]) -> Iterator[str]:
    """Words that may be paths: as they stand, after `--option=`, and in the lines of a shell."""
    for word in command:
        for token in (word, *(_shell_words(word) if any(map(str.isspace, word)) else ())):
            for part in (token, token.partition("=")[2]):
                if part and not part.startswith(("-", "$", "/", "~")) and "://" not in part and len(part) < 4096 and "\0" not in part:
                    yield part


def _shell_words(line: str) -> list[str]:
    try:
        return shlex.split(line.replace(";", " "))
    except ValueError:
        return line.split()


def _imports(script: Path, root: Path) -> set[Path]:
    """Files of the modules below `root` that a script imports, directly or through other modules."""
    found: set[Path] = set()
    waiting = [script]
    while waiting:
        for name in _imported(waiting.pop()):
            new = set(_module(name, root)) - found - {script}
            found |= new
            waiting += [path for path in new if path.suffix == ".py"]
    return found


def _imported(script: Path) -> Iterator[str]:
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return  # Python will say so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _module(name: str, root: Path) -> Iterator[Path]:
    """The file of a module, or all of its package: what lies beside its modules may belong to them."""
    top = root / name.partition(".")[0]
    if not top.name.isidentifier():
        return
    if os.path.isfile(top.with_suffix(".py")):
        yield top.with_suffix(".py")
    elif os.path.isdir(top) and any(top.glob("*.py")):
        yield from files_below(top)
