"""The text of `tuneyard plan` for a score task: the best choice in sentences, a table, and output tokens a second by batch as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from tuneyard.cli.output import duration_text, money_text, rounded_text
from tuneyard.cli.plan.text import best_choices, cost_cells, narrow_table

Row = Mapping[str, Any]
_BAR = 50
_STYLES = (("█", "blue"), ("▒", "yellow"), ("▓", "magenta"), ("░", "green"), ("▚", "red"), ("▪", "cyan"))
"""Characters differ as well as colours, so that a file or a pipe shows the same."""


def score_sentences(task: str, rows: Sequence[Row]) -> list[str]:
    """The fastest engines, and the cheapest (or those with the fewest GPU-hours) where they are others; and the source of the lengths."""
    said = best_choices(task, rows, _seconds, _choice)
    return [*said, *dict.fromkeys(row["length_from"] for row in rows), *(rows[0]["error_notes"] if rows else ())]


def score_table(rows: Sequence[Row]) -> list[str]:
    """The engines of each SKU, with their speed at the batch of the task."""
    cells = [
        {
            "engines": f"{row['engines']} x {_devices(row)}",
            "weights_gb": rounded_text(row["memory_gb"]["weights"]),
            "cache_gb": rounded_text(row["memory_gb"]["kv_cache"]),
            "kv_tokens": rounded_text(row["kv_tokens"]),
            "max_length": f"{row['max_length']:,}",
            "batch": f"{row['batch']:,}",
            "ttft": _moment(row["ttft_s"]),
            "tpot": _moment(row["tpot_s"]),
            "tokens_per_s": rounded_text(row["tokens_per_s"]) if row["tokens_per_s"] else None,
            "rows_per_s": rounded_text(row["rows_per_s"]) if not row["tokens_per_s"] else None,
            **cost_cells(row),
        }
        for row in rows
    ]
    return narrow_table(cells, left=("engines",))


def show_speed(rows: Sequence[Row], console: Console | None = None) -> None:
    """Output tokens a second of one engine by batch: a bar for each SKU, all of one scale."""
    shown = [row for row in rows if row["tokens_per_s"]]
    if not shown:
        return
    console = console or Console(highlight=False, soft_wrap=True)
    legend = Text("\noutput tokens/s of one engine by batch: ")
    for row, (character, style) in zip(shown, _cycled(len(shown)), strict=True):
        legend.append(f"{character} ", style=style).append(f"{_devices(row)}  ")
    console.print(legend)
    by_batch = [{each["batch"]: each["output_tokens_per_s"] for each in row["speed_by_batch"]} for row in shown]
    most = max(max(found.values()) for found in by_batch)
    batches = sorted({batch for found in by_batch for batch in found})
    width = len(f"{batches[-1]:,}")
    for batch in batches:
        label = f"{batch:>{width},}"
        for found, (character, style) in zip(by_batch, _cycled(len(shown)), strict=True):
            if batch in found:
                line = Text(f"{label} ").append(character * max(1, round(_BAR * found[batch] / most)), style=style)
                console.print(line.append(f" {rounded_text(found[batch])}"))
                label = " " * width


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else duration_text(seconds) if seconds >= 1 else f"{rounded_text(1000 * seconds)} ms"


def _cycled(count: int) -> list[tuple[str, str]]:
    return [_STYLES[i % len(_STYLES)] for i in range(count)]


def _seconds(row: Row) -> float:
    """Seconds of the data set, or of one row where their number is unknown."""
    return float(row["duration_s"]) if row["duration_s"] is not None else 1 / float(row["rows_per_s"])


def _devices(row: Row) -> str:
    return str(row["sku"]) if row["tensorParallel"] == 1 else f"{row['tensorParallel']} x {row['sku']}"


def _choice(row: Row) -> str:
    count = row["engines"]
    parts = [f"{count} engine{'' if count == 1 else 's'} of {_devices(row)}, batch {row['batch']:,}"]
    if row["duration_s"] is not None:
        parts.append(f"{row['scored_rows']:,} row{'' if row['scored_rows'] == 1 else 's'} in about {duration_text(row['duration_s'])}")
    elif row["tokens_per_s"]:
        parts.append(f"{rounded_text(row['tokens_per_s'])} tokens/s")
    if row["cost"] is not None:
        parts.append(f"for {money_text(row['cost'])}")
    elif row["cost_per_million_tokens"] is not None:
        parts.append(f"{money_text(row['cost_per_million_tokens'])} for a million tokens")
    return ", ".join(parts)
