"""YAML text as plain values with the place of each value, so that a complaint can name a line.

The values are those that `kubectl` sends: YAML 1.1 booleans, but dates stay text and `2e-4` is a number. Content that a Kubernetes object
cannot hold (duplicate keys, custom tags, a value that contains itself) is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]
MAX_DEPTH = 64
MAX_VALUES = 100_000
_MERGE = "tag:yaml.org,2002:merge"
_FLOAT = re.compile(r"^[-+]?(?:(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
_INT = re.compile(r"^[-+]?(?:0b[01_]+|0o?[0-7_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*)$")


@dataclass(frozen=True)
class Place:
    """Line and column, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Problem:
    """One problem of a file. `path` is empty if the text itself cannot be read."""

    place: Place
    path: Path
    reason: str

    def line(self, filename: str) -> str:
        where = f"{filename}:{self.place.line}:{self.place.column}: "
        return f"{where}{show_path(self.path)}: {self.reason}" if self.path else where + self.reason


@dataclass
class Tree:
    """One YAML document: its value, the place of each key, and the problems found so far."""

    value: Any
    places: dict[Path, Place]
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path) -> Place:
        """The place of `path`; for an absent path, that of the nearest group around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.places[()]


def show_path(path: Path) -> str:
    """`("spec", "tasks", 0, "name")` -> `spec.tasks[0].name`."""
    parts: list[str] = []
    for part in path:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", part):
            parts.append(f".{part}" if parts else part)
        else:
            parts.append(f"[{part!r}]")
    return "".join(parts)


def read_trees(text: str) -> tuple[list[Tree], list[Problem]]:
    """All non-empty documents of `text`, or the one syntax error that prevents reading it."""
    try:
        too_deep = _too_deep(text)
        if too_deep is not None:
            return [], [Problem(too_deep, (), f"nested deeper than {MAX_DEPTH} levels")]
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if not _is_empty(node)]
    except yaml.MarkedYAMLError as error:
        return [], [_syntax_problem(error, text)]
    except yaml.reader.ReaderError as error:
        return [], [Problem(_place_of_offset(text, error.position), (), f"the character {error.character!r} is not allowed in YAML")]
    return [_Builder().tree(node) for node in nodes], []


class _Loader(yaml.CSafeLoader):
    """Scalars by YAML 1.1 as kubectl reads them: no dates, no base-60 numbers, exponents without a dot."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in ("timestamp", "int", "float")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def _too_deep(text: str) -> Place | None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return _start(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None


def _is_empty(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"))


def _place_of_offset(text: str, offset: int) -> Place:
    before = text[:offset]
    return Place(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
    lines = text.split("\n")
    around = lines[place.line - 1] if place.line <= len(lines) else ""
    if re.match(r"^ *\t", around):
        return Problem(Place(place.line, around.index("\t") + 1), (), "a tab indents this line: YAML is indented with spaces")
    if error.problem and error.problem.startswith("mapping values are not allowed"):
        reason = "a second `:` where a value should be: check the indentation of this line, or quote the value"
    elif error.problem and error.problem.startswith("found undefined alias"):
        reason = "an alias (*name) without an anchor (&name) before it"
    else:
        reason = f"not valid YAML: {error.problem or 'cannot be parsed'}" + (f" ({error.context})" if error.context else "")
    return Problem(place, (), reason)


class _Builder:
    """Builds the value of one document from its nodes. It continues after a problem, so that all problems are found at once."""

    def __init__(self) -> None:
        self._places: dict[Path, Place] = {}
        self._problems: list[Problem] = []
        self._open: set[int] = set()
        self._values = 0

    def tree(self, node: yaml.Node) -> Tree:
        self._places[()] = _start(node)
        value = self._build(node, ())
        return Tree(value, self._places, self._problems)

    def _build(self, node: yaml.Node, path: Path) -> Any:
        self._values += 1
        if id(node) in self._open:
            return self._refuse(node, path, "an alias inside the value that it stands for")
        if self._values > MAX_VALUES:
            return (
                self._refuse(node, path, f"aliases expand to more than {MAX_VALUES:,} values") if self._values == MAX_VALUES + 1 else None
            )
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag.endswith(":map"):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode) and node.tag.endswith(":seq"):
                return [self._item(item, (*path, index)) for index, item in enumerate(node.value)]
            if isinstance(node, yaml.ScalarNode):
                return self._scalar(node, path)
            return self._refuse(node, path, f"the tag {node.tag} is not supported")
        finally:
            self._open.discard(id(node))

    def _item(self, node: yaml.Node, path: Path) -> Any:
        self._places.setdefault(path, _start(node))
        return self._build(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for source in self._merge_sources(value_node, path):
                    merged = {**source, **merged}
                continue
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                self._refuse(key_node, path, "a key must be plain text")
                continue
            if key in own:
                first = self._places[(*path, key)].line
                self._refuse(key_node, (*path, key), f"given twice; the first one is on line {first}")
                continue
            self._places[(*path, key)] = _start(key_node)
            own[key] = self._build(value_node, (*path, key))
        return {**merged, **own}

    def _merge_sources(self, node: yaml.Node, path: Path) -> Iterator[dict[str, Any]]:
        """The mappings that `<<` names, each built at `path`. The first one wins."""
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(source, yaml.MappingNode):
                self._refuse(node, path, "`<<` needs a mapping, or a list of mappings")
                return
            outer, self._places = self._places, {}
            value = self._build(source, path)
            self._places = {**self._places, **outer}
            if isinstance(value, dict):
                yield value

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        text: str = node.value
        try:
            match kind:
                case "str":
                    return text
                case "null":
                    return None
                case "bool":
                    return text.lower() in ("true", "yes", "on")
                case "int":
                    return _parse_int(text)
                case "float":
                    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            return self._refuse(node, path, f"{text!r} is not a number")
        return self._refuse(node, path, f"the tag {node.tag} is not supported")

    def _refuse(self, node: yaml.Node, path: Path, reason: str) -> None:
        self._problems.append(Problem(_start(node), path, reason))


def _start(node: yaml.Node | yaml.Event) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1) if node.start_mark else Place(1, 1)


def _parse_int(text: str) -> int:
    """YAML 1.1 integers: decimal, 0b, 0x, 0o and a bare leading 0 for octal."""
    digits = text.replace("_", "")
    if re.fullmatch(r"[-+]?0[0-7]+", digits):
        return int(digits, 8)
    return int(digits, 0)
