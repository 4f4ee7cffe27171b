"""Memory of a rank as a picture: one bar for each placement, a piece for each term, and the device's limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.text import Text

from tuneyard.catalog import gpu
from tuneyard.cli.plan.layout import layout_text
from tuneyard.planning.search import USABLE

_WIDTH = 60
"""The width of a bar, where its label leaves enough of the line."""
_LINE, _LEAST = 100, 20
_PIECES = {
    "weights": ("█", "blue"),
    "gradients": ("▓", "magenta"),
    "optimizer": ("▒", "yellow"),
    "optimizer_step": ("▚", "red"),
    "activations": ("░", "green"),
    "kv_cache": ("░", "green"),
    "libraries": ("▪", "cyan"),
    "other": ("·", "white"),
}
"""Characters differ as well as colours, so that a file or a pipe shows the same."""
_LIMIT = "|"


def show_memory(rows: Sequence[Mapping[str, Any]], console: Console | None = None) -> None:
    """A bar for each row that fits: the memory of a rank, and `|` at the limit of a plan. Bars of one SKU have one scale.

    A label stands before its bar, or above it where the line is too short for both.
    """
    if not rows:
        return
    console = console or Console(highlight=False, soft_wrap=True)
    width = max(len(_label(row)) for row in rows)
    room = _LINE - width - len("  100 of 100 GB") - 2
    above = room < _LEAST
    names = [name for name in _PIECES if any(row["memory_gb"].get(name) for row in rows)]
    legend = Text("\nmemory of a rank: ")
    for name in names:
        character, style = _PIECES[name]
        legend.append(f"{character} ", style=style).append(f"{name.replace('_', ' ')}  ")
    console.print(legend.append(f"{_LIMIT} limit"))
    for row in rows:
        drawn = bar(row["memory_gb"], *_limits(row), width=_WIDTH if above else min(_WIDTH, room))
        label = "\n".join(wrap(_label(row), _LINE, subsequent_indent="  ")) if above else f"{_label(row):<{width}}"
        console.print(Text(f"{label}\n  " if above else f"{label} ").append_text(drawn))


def bar(memory_gb: Mapping[str, float], usable_gb: float, device_gb: float, width: int = _WIDTH) -> Text:
    """A piece for each term of `memory_gb`, then free space and the limit. The ends of pieces are rounded, so that the pieces add up."""
    drawn, done, reached = Text(), 0, 0.0
    for name, (character, style) in _PIECES.items():
        reached += memory_gb.get(name, 0.0)
        end = min(width, round(reached / device_gb * width))
        drawn.append(character * (end - done), style=style)
        done = max(done, end)
    limit = min(width, round(usable_gb / device_gb * width))
    drawn.append(" " * max(0, limit - done) + _LIMIT + " " * (width - max(limit, done)))
    return drawn.append(f" {reached:.3g} of {device_gb:.3g} GB")


def device_gb(row: Mapping[str, Any]) -> float:
    """Memory of the device of a rank or an engine. On `cpu`, they share the memory of the machine."""
    return gpu(row["sku"]).memory_gb / (row.get("workers", row.get("engines", 1)) if row["sku"] == "cpu" else 1)


def _limits(row: Mapping[str, Any]) -> tuple[float, float]:
    """Usable memory and whole memory of a rank, in GB."""
    device = device_gb(row)
    return (device if row["kind"] == "score" else USABLE * device), device


def _label(row: Mapping[str, Any]) -> str:
    if row["kind"] == "score":
        return f"{row['task']} {row['sku']}"
    return f"{row['task']} {row['workers']} x {row['sku']}, {layout_text(row)}, micro-batch {row['micro_batch']}"
