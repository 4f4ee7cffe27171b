"""Files of a job's code: the files in the command of a process task, or the module of a training program, and the Python modules that they
import. They are read, and never run.

This module uses `os.path`, because pathlib raises for a word that is too long to be a name.
"""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

_NOT_SHIPPED = ("__pycache__",)


def program_files(command: Sequence[str], folder: Path) -> set[Path]:
    """Paths below `folder`, or outside of it where the command says so. Other words are ignored.

    A word with a `/` may name a folder. Files that a program opens by itself are unknown: `workingDir` ships a whole folder.
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


def module_of(program: str) -> str:
    """`captions` of `captions:Captions`."""
    return program.partition(":")[0]


def module_files(program: str, folder: Path) -> set[Path]:
    """Files below `folder` of a training program (`module:object`): its module, the package of that module, and their imports. Empty if the
    module is elsewhere, such as in an installed package.
    """
    name = module_of(program)
    own = set(_module(name, folder))
    if not (_source(name, folder)):
        return set()
    return {
        Path(os.path.normpath(path)) for path in own | {each for path in own if path.suffix == ".py" for each in _imports(path, folder)}
    }


def missing_object(program: str, folder: Path) -> str | None:
    """Why `module:object` is not below `folder`, judged by its source alone. None if it is there or cannot be judged: the module is
    installed, or gets its names by `from … import *`.
    """
    name, _, wanted = program.partition(":")
    path = _source(name, folder)
    if path is None:
        suffixed = name.endswith(".py")
        return f"a module is named without .py: write {name.removesuffix('.py')}:{wanted}" if suffixed else None
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return f"{path.name}{line} is no Python: {error.msg if isinstance(error, SyntaxError) else error}"
    names = set(_bound(tree.body))
    if wanted in names or "*" in names:
        return None
    near = get_close_matches(wanted, names, n=1)
    return f"{path.name} has no {wanted}" + (f" (did you mean {near[0]}?)" if near else "")


def _source(module: str, folder: Path) -> Path | None:
    """The file of a dotted module below `folder`."""
    path = folder.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if os.path.isfile(file)), None)


def _bound(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that statements bind at the top of a module, including those inside `if`, `try` and `with`."""
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in aliases)
            case _:
                yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
                for inner in (getattr(node, field, []) for field in ("body", "orelse", "finalbody")):
                    yield from _bound(inner)
                for handler in getattr(node, "handlers", []):
                    yield from _bound(handler.body)


def named_files(line: str, folder: Path) -> list[str]:
    """Words of a command line that are files below `folder`."""
    return sorted({token for token in _tokens([line]) if os.path.isfile(folder / token)})


def files_below(folder: Path) -> Iterator[Path]:
    """Files of a folder, without hidden files and Python's caches. Links to folders are returned as links, not followed."""
    for here, folders, names in os.walk(folder):
        linked = [name for name in folders if Path(here, name).is_symlink()]
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_SHIPPED and name not in linked]
        yield from (Path(here, name) for name in (*linked, *names) if not name.startswith("."))


def _tokens(command: Sequence[str]) -> Iterator[str]:
    """Words that may be paths: plain words, values of `--option=`, and words of shell lines."""
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
        return  # Python will report the error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _module(name: str, root: Path) -> Iterator[Path]:
    """The file of a module, or all files of its package: data beside its modules may belong to them."""
    top = root / name.partition(".")[0]
    if not top.name.isidentifier():
        return
    if os.path.isfile(top.with_suffix(".py")):
        yield top.with_suffix(".py")
    elif os.path.isdir(top) and any(top.glob("*.py")):
        yield from files_below(top)
