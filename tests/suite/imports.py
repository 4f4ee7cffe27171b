"""Which modules of this repository a module needs, read from the source of all, without importing any.

`import_statements` and `named` read the import statements of one file. `Imports` is the graph over the product, its tests, benchmarks and
scripts. A module needs what it imports, at its start or later; the packages above; the modules behind the names of a package that loads
them at their first use; the modules that it starts as programs (`-m tests.clusters.clocked_hub`); the commands of `tuneyard` that it calls,
in its process or another; and the `conftest.py` files that pytest loads for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_QUOTED = re.compile(r"[\"']((?:tuneyard|tuneyard_operators|tests)(?:\.\w+)+)[\"']")
_CALLED = re.compile(
    r"(?:[(\[]|= )\[\"(\w+)\"|(?:TUNEYARD, |\btuneyard\"\)*, |\b(?:say|tuneyard|tuneyard_here)\(|\brefusal\(capsys, )\"(\w+)\""
)
"""A list that begins with a word as an argument or a value, a word behind the program, or a call of a test's function that runs it."""
PRODUCT = (ROOT / "platform" / "tuneyard", ROOT / "operators" / "tuneyard_operators")


def find_modules(packages: Iterable[Path]) -> dict[str, Path]:
    """Modules of packages, by dotted name."""
    return {_name(path, package): path for package in packages for path in package.rglob("*.py")}


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True)
class Statement:
    """An import statement. `late`: it stands in a function. `typing`: type checkers alone read it."""

    node: ast.Import | ast.ImportFrom
    late: bool
    typing: bool


@cache
def import_statements(path: Path) -> tuple[Statement, ...]:
    """All import statements of a file, which is parsed once in a process. Its tree is not kept: garbage collection among all trees would
    take longer than parsing."""
    return tuple(_statements(ast.parse(path.read_text(encoding="utf-8")).body))


def _statements(body: list[ast.stmt], *, late: bool = False, typing: bool = False) -> Iterator[Statement]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield Statement(node, late, typing)
            continue
        inner = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        checked = typing or (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield from _statements([child], late=inner, typing=checked)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                yield from _statements(child.body, late=inner, typing=checked)


def named(node: ast.Import | ast.ImportFrom, known: Mapping[str, Path]) -> Iterator[str]:
    """Known modules that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
        return
    for alias in node.names:
        name = f"{node.module}.{alias.name}"
        if name in known:
            yield name
        elif node.module in known and alias.name != "_core":  # compiled
            yield node.module


@dataclass(frozen=True)
class _Source:
    """What the graph keeps of a file."""

    nodes: tuple[ast.Import | ast.ImportFrom, ...]
    quoted: tuple[str, ...]
    """Names of modules in quotes."""
    commands: frozenset[str]
    """Names of commands of `tuneyard` where a call of it may stand."""
    behind: Mapping[str, str]
    """Of a package: the module behind each name that it hands out, also at its first use alone."""


class Imports:
    """The graph of a tree; a file is read when something reaches it. `root`: the repository. `commands`: the module of each command of
    `tuneyard`; without it, calls of commands are no edges."""

    def __init__(self, root: Path = ROOT, commands: Mapping[str, str] | None = None) -> None:
        self.root = root
        folders = [
            *(root / package.relative_to(ROOT) for package in PRODUCT),
            *(root / name for name in ("tests", "benchmarks", "scripts")),
        ]
        self.modules = find_modules(folders)
        self.commands = commands or {}
        self._sources: dict[str, _Source] = {}
        self._needs: dict[str, frozenset[str]] = {}
        self._reached: dict[frozenset[str], set[str]] = {}

    def needs(self, module: str) -> frozenset[str]:
        """Modules that a module needs by itself."""
        if module not in self._needs:
            self._needs[module] = frozenset(self._named_in(module)) - {module}
        return self._needs[module]

    def reached(self, modules: Iterable[str]) -> set[str]:
        """These modules and all that they need, directly or through others."""
        begin = frozenset(modules)
        if begin not in self._reached:
            found, left = set[str](), list(begin)
            while left:
                module = left.pop()
                if module not in found:
                    found.add(module)
                    left += self.needs(module)
            self._reached[begin] = found
        return self._reached[begin]

    def _read(self, module: str) -> _Source:
        if module not in self._sources:
            path = self.modules[module]
            source, statements = path.read_text(encoding="utf-8"), import_statements(path)
            behind = self._handed_out(statements) if path.name == "__init__.py" else {}
            nodes, quoted = tuple(each.node for each in statements if not each.typing), tuple(_QUOTED.findall(source))
            self._sources[module] = _Source(nodes, quoted, self._called_in(source), behind)
        return self._sources[module]

    def _called_in(self, source: str) -> frozenset[str]:
        return frozenset(name for found in _CALLED.findall(source) for name in found if name in self.commands)

    def _handed_out(self, statements: Iterable[Statement]) -> dict[str, str]:
        return {
            alias.asname or alias.name: node.module
            for node in (each.node for each in statements)
            if isinstance(node, ast.ImportFrom) and node.module in self.modules
            for alias in node.names
        }

    def _named_in(self, module: str) -> Iterator[str]:
        yield from self._above(module)
        if module.startswith("tests."):
            yield from self._by_pytest(module)
        for node in self._read(module).nodes:
            for name in named(node, self.modules):
                yield name
                yield from self._above(name)
            if isinstance(node, ast.ImportFrom) and node.module in self.modules:
                behind = self._read(node.module).behind
                yield from (behind[alias.name] for alias in node.names if alias.name in behind)

    def _by_pytest(self, module: str) -> Iterator[str]:
        """What a test needs without importing it: conftest files above it, and programs that it names. The product's own lists of
        modules (commands, stacks) are no needs of whoever reads them."""
        parts = module.split(".")
        conftests = (f"{'.'.join(parts[:end])}.conftest" for end in range(1, len(parts)))
        source = self._read(module)
        commands = (self.commands[name] for name in source.commands)
        for name in (*conftests, *source.quoted, *(f"{name}.__main__" for name in source.quoted), *commands):
            if name in self.modules:
                yield name
                yield from self._above(name)

    def _above(self, module: str) -> Iterator[str]:
        parts = module.split(".")
        yield from (name for end in range(1, len(parts)) if (name := ".".join(parts[:end])) in self.modules)
