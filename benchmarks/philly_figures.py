"""The figures of the Philly replay: standalone SVG that follows light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuneyard.tracking.charts import HEIGHT, LEFT, WIDTH, Line, line_chart

COLOURS = ("#c2500a", "#8f5bb5", "#6d7682", "#1f6fc9")
_LEGEND_HEIGHT = 24
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#5b6472}.grid{stroke:#8884}.axis{stroke:#888}.line{fill:none;stroke-width:1.8}"
    ".hover rect{fill:transparent}.hover .dot{opacity:0}"
)


def draw(folder: Path, courses: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """philly_queue.svg and philly_utilisation.svg. `courses`: samples by policy; the last is drawn on top."""
    for name, key, factor, title in (
        ("philly_queue", "queued_jobs", 1, "Jobs that wait"),
        ("philly_utilisation", "utilisation", 100, "GPUs in use, %"),
    ):
        lines = [
            Line(policy, [(day, factor * value) for day, value in zip(course["day"], course[key], strict=True)], f"s{number}")
            for number, (policy, course) in enumerate(courses.items())
        ]
        (folder / f"{name}.svg").write_text(standalone(lines, title), encoding="utf-8")


def standalone(lines: Sequence[Line], title: str, over: str = "day") -> str:
    """A file of its own, with a legend."""
    drawing: Any = line_chart(lines, title=title, from_zero=True, over=over)
    inside = drawing.partition(">")[2].removesuffix("</svg>")
    colours = "".join(f".s{number}{{stroke:{colour}}}" for number, colour in enumerate(COLOURS))
    legend = "".join(
        f'<text x="{LEFT + 118 * number}" y="14" style="fill:{COLOURS[number]}">{line.name}</text>' for number, line in enumerate(lines)
    )
    size = f'viewBox="0 0 {WIDTH} {HEIGHT + _LEGEND_HEIGHT}" width="780"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}"><style>{_STYLE}{colours}</style>{legend}'
        f'<g transform="translate(0 {_LEGEND_HEIGHT})">{inside}</g></svg>\n'
    )
