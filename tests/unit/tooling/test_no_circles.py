"""Inside a room, imports go one way: no module reaches itself through others, at the start or later, in a function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import pytest
from tests.suite.imports import PRODUCT, find_modules, import_statements, named

Graph = Mapping[str, frozenset[str]]


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: frozenset(_imports(path, module)) for module, path in _modules().items()}
    assert len(graph) > 700
    assert set(_circles(graph)) == set()


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("from tuneyard.cluster import hub", True),
        ("from tuneyard.cluster.hub import Hub", True),
        ("import tuneyard.cluster.hub", True),
        ("def f():\n    from tuneyard.cluster.hub import Hub", True),
        ("def f():\n    from tuneyard.cluster.hub import Hub  # late: half a second", False),
        ("def f():\n    from tuneyard.cluster.hub import Hub  # noqa: F401", True),
        ("from tuneyard.cluster.hub import Hub  # late: half a second", True),
        ("if TYPE_CHECKING:\n    from tuneyard.cluster.hub import Hub", False),
        ("from tuneyard.storage import open_store", False),
        ("from tuneyard.federation import _core", False),
    ],
)
def test_what_counts(line: str, counts: bool, tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(line)
    assert ("tuneyard.cluster.hub" in set(_imports(file, "tuneyard.cluster.x"))) == counts


def test_circles_are_found() -> None:
    graph: Graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("ad"), "d": frozenset(), "e": frozenset("a")}
    assert list(_circles(graph)) == [("a", "b", "c")]


@lru_cache(maxsize=1)
def _modules() -> Mapping[str, Path]:
    return find_modules(PRODUCT)


def _imports(path: Path, module: str) -> Iterator[str]:
    """Modules of the same room that a module imports; not those of a late import whose line says why it is late."""
    lines, known = path.read_text(encoding="utf-8").split("\n"), _modules()
    room = ".".join(module.split(".")[:2])
    for each in import_statements(path):
        if each.typing or (each.late and "# late: " in lines[each.node.lineno - 1]):
            continue
        for name in named(each.node, known):
            if name != module and (name == room or name.startswith(f"{room}.")):
                yield name


def _circles(graph: Graph) -> Iterator[tuple[str, ...]]:
    """Groups of modules that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> Iterator[tuple[str, ...]]:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for other in sorted(graph.get(module, ())):
            if other not in order:
                yield from visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            group = path[path.index(module) :]
            del path[path.index(module) :]
            if len(group) > 1:
                yield tuple(sorted(group))

    for module in sorted(graph):
        if module not in order:
            yield from visit(module)
