"""A table of numbers as shaded cells, in inline SVG: the load of experts, a row for each layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from tuneyard.tracking.charts import WIDTH

MOST_ROWS, MOST_COLUMNS = 64, 64
_LEFT, _BOTTOM = 56, 22
_MOST_CELL_HEIGHT = 18.0
_HEIGHT = 230


def heat_map(
    rows: Sequence[Sequence[float]],
    *,
    title: str,
    row_name: str,
    column_name: str,
    value_label: Callable[[float], str],
    darkest: float,
) -> Markup:
    """Cells from 0 (empty) to `darkest` and above (full). Beyond MOST_ROWS x MOST_COLUMNS neighbours share a cell, which shows the largest.
    Empty without values."""
    if not rows or not rows[0]:
        return Markup("")
    height, width = math.ceil(len(rows) / MOST_ROWS), math.ceil(len(rows[0]) / MOST_COLUMNS)
    cells = [
        [max(value for row in rows[y : y + height] for value in row[x : x + width]) for x in range(0, len(rows[0]), width)]
        for y in range(0, len(rows), height)
    ]
    cell_height = min(_MOST_CELL_HEIGHT, (_HEIGHT - _BOTTOM) / len(cells))
    cell_width = (WIDTH - _LEFT) / len(cells[0])
    drawn = []
    for y, row in enumerate(cells):
        for x, value in enumerate(row):
            place = f"{row_name} {_span(y, height, len(rows))} · {column_name} {_span(x, width, len(rows[0]))}"
            drawn.append(
                f'<rect class="cell" x="{_LEFT + x * cell_width:.2f}" y="{y * cell_height:.2f}" width="{cell_width:.2f}" '
                f'height="{cell_height:.2f}" fill-opacity="{min(value / darkest, 1):.3f}">'
                f"<title>{escape(place)}: {escape(value_label(value))}</title></rect>"
            )
    bottom = len(cells) * cell_height
    drawn += [
        f'<text class="tick" x="{_LEFT - 8}" y="{min(12.0, cell_height):.0f}" text-anchor="end">{escape(row_name)} 1</text>',
        f'<text class="tick" x="{_LEFT - 8}" y="{bottom:.0f}" text-anchor="end">{len(rows)}</text>' if len(rows) > 1 else "",
        f'<text class="tick" x="{_LEFT}" y="{bottom + 16:.0f}">{escape(column_name)} 1</text>',
        f'<text class="tick" x="{WIDTH}" y="{bottom + 16:.0f}" text-anchor="end">{len(rows[0])}</text>',
    ]
    whole = bottom + _BOTTOM
    return Markup(f'<svg viewBox="0 0 {WIDTH} {whole:.0f}" role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg>')


def _span(index: int, size: int, count: int) -> str:
    """Numbers that a cell covers, from 1."""
    first, last = index * size + 1, min((index + 1) * size, count)
    return f"{first}" if first == last else f"{first} to {last}"
