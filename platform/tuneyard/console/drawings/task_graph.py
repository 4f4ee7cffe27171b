"""The tasks of a job and their order, as SVG of a fixed size that scrolls on a narrow screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from tuneyard.data.visible import visible

BOX_WIDTH, BOX_HEIGHT, COLUMN, ROW, MARGIN = 168, 46, 216, 60, 2
LONGEST_NAME = 20
MOST_DRAWN = 200
"""Tasks; a larger graph is not drawn, and the sections of the tasks list them all."""


@dataclass(frozen=True)
class Node:
    """A task. `state`: a CSS class, as of a status."""

    name: str
    kind: str
    state: str
    upstream: Sequence[str]


def task_graph(nodes: Sequence[Node]) -> Markup:
    """The graph, from left to right. Empty for one task, and for more than MOST_DRAWN."""
    if not 1 < len(nodes) <= MOST_DRAWN:
        return Markup("")
    columns = _columns(nodes)
    places: dict[str, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for node in nodes:
        column = columns[node.name]
        row = filled.get(column, 0)
        filled[column] = row + 1
        places[node.name] = (MARGIN + column * COLUMN, MARGIN + row * ROW)
    width = (max(columns.values())) * COLUMN + BOX_WIDTH + 2 * MARGIN
    height = (max(filled.values()) - 1) * ROW + BOX_HEIGHT + 2 * MARGIN
    lines = "".join(_line(places[source], places[node.name]) for node in nodes for source in node.upstream if source in places)
    boxes = "".join(_box(node, *places[node.name]) for node in nodes)
    title = "Tasks: " + ", ".join(f"{node.name} ({node.state})" for node in nodes)
    return Markup(
        f'<svg class="graph" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(visible(title))}">{lines}{boxes}</svg>'
    )


def _columns(nodes: Sequence[Node]) -> Mapping[str, int]:
    """Columns by name: a task stands right of all that it waits for. A circle, which admission refuses, ends the search."""
    found = {node.name: 0 for node in nodes}
    for _ in nodes:
        changed = False
        for node in nodes:
            least = max((found[source] + 1 for source in node.upstream if source in found), default=0)
            if least > found[node.name] and least < len(nodes):
                found[node.name], changed = least, True
        if not changed:
            break
    return found


def _line(source: tuple[int, int], target: tuple[int, int]) -> str:
    x1, y1 = source[0] + BOX_WIDTH, source[1] + BOX_HEIGHT // 2
    x2, y2 = target[0], target[1] + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f'<path class="edge" d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"/>'


def _box(node: Node, x: int, y: int) -> str:
    name = visible(node.name)
    shown = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return (
        f'<g class="node {escape(node.state)}"><title>{escape(name)}</title>'
        f'<rect class="box" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"/>'
        f'<circle class="mark" cx="{x + 16}" cy="{y + 17}" r="4"/>'
        f'<text class="name" x="{x + 28}" y="{y + 21}" unicode-bidi="isolate">{escape(shown)}</text>'
        f'<text class="tick" x="{x + 28}" y="{y + 37}">{escape(visible(node.kind))} · {escape(node.state)}</text></g>'
    )
