"""The text of `tuneyard plan` for one task: the best choice in a sentence, and a table that fits a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from tuneyard.catalog.gpu_facts import OF_PEAK
from tuneyard.cli.output import duration_text, money_text, rounded_text, table_lines
from tuneyard.cli.plan.layout import layout_text
from tuneyard.cli.plan.picture import device_gb

WIDTH = 100
_LEFT_OUT_FIRST = ("mfu", "max_length", "weights_gb", "cache_gb", "batch", "gb_per_rank", "layout", "wait", "kv_tokens")
"""Columns that are left out, one after the other, where the table would be wider than a terminal."""
_LAYOUT_WIDTHS = (60, 50, 40, 30, 22)
"""Widths of the column `layout`, tried from the widest to the narrowest before a column is left out."""
_FEW_STEPS = 100
"""Optimizer steps in the epochs of a task with an open batch below which a warning follows."""
_AS_CHEAP = 1.02
"""Plans within this factor of the cheapest count as equally cheap: predictions are not more precise. The fastest of them is named."""
Row = Mapping[str, Any]


def train_sentences(task: str, rows: Sequence[Row]) -> list[str]:
    """The best choice: the fastest plan, and the cheapest plan (or the one with the fewest GPU-hours) where it differs."""
    return best_choices(task, rows, _seconds, _choice)


def best_choices(task: str, rows: Sequence[Row], seconds: Callable[[Row], float], choice: Callable[[Row], str]) -> list[str]:
    """The fastest of the rows, and the cheapest where it differs, in sentences. `seconds`: of the task, or of a fixed part of it."""
    if not rows:
        return [f"{task}: no plan fits"]
    fastest = min(rows, key=seconds)
    priced = all(row["cost_per_hour"] is not None for row in rows)
    spent = [seconds(row) * (row["cost_per_hour"] if priced else row["rented"]) for row in rows]
    cheapest = min((row for row, each in zip(rows, spent, strict=True) if each <= _AS_CHEAP * min(spent)), key=seconds)
    if len(rows) == 1:
        return [f"{task}: {choice(fastest)}"]
    saves = "cheapest" if priced else "fewest GPU-hours"
    if cheapest is fastest:
        return [f"{task}: fastest, and {saves}: {choice(fastest)}"]
    return [f"{task}: {saves}: {choice(cheapest)}", f"{task}: fastest: {choice(fastest)}"]


def peak_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each basis of peaks other than a data sheet."""
    skus = {basis: dict.fromkeys(row["sku"] for row in rows if row["peak_from"] == basis) for basis in OF_PEAK}
    return [f"{', '.join(skus[basis])}: mfu is {words}" for basis, words in OF_PEAK.items() if skus[basis]]


def open_batch_lines(rows: Sequence[Row]) -> list[str]:
    """What `batch.global: auto` means on these placements; empty where the file names the rows of a step."""
    if not any(row["global_batch_from"] == "placement" for row in rows):
        return []
    counts = {f"{row['global_batch']:,} on {row['workers']} x {row['sku']}": None for row in rows}
    kept = "a resume on other workers keeps its number. The learning rate is not scaled with it"
    lines = [f"rows of a step (batch.global: auto) follow from where the run begins: {', '.join(counts)}; {kept}"]
    fewest = min((row["steps"]["likely"] for row in rows if row["steps"] and row["epochs"] is not None), default=_FEW_STEPS)
    if fewest < _FEW_STEPS:
        lines.append(f"warning: {fewest} step{'s are' if fewest != 1 else ' is'} few to learn from: set batch.global to a smaller number")
    return lines


def note_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each reason why a usual kernel is not taken, with its SKUs where they differ."""
    skus: dict[str, dict[str, None]] = {}
    for row in rows:
        for note in row["notes"]:
            skus.setdefault(note, {})[row["sku"]] = None
    every = len({row["sku"] for row in rows})
    return [note if len(found) == every else f"on {', '.join(found)}: {note}" for note, found in skus.items()]


def _seconds(row: Row) -> float:
    """Seconds of the task, or of one token where the duration of the task is unknown."""
    return float(row["duration_s"]) if row["duration_s"] is not None else 1 / row["tokens_per_s"]


def _choice(row: Row) -> str:
    parts = [f"{row['workers']} x {row['sku']}, {layout_text(row)}, micro-batch {row['micro_batch']}"]
    if row["duration_s"] is not None:
        steps = row["steps"]
        amount = f"{steps['likely']:,} step{'s' if steps['likely'] != 1 else ''}"
        parts.append(f"{amount} in {'about ' if steps['low'] < steps['high'] else ''}{duration_text(row['duration_s'])}")
    else:
        parts.append(f"{rounded_text(row['tokens_per_s'])} tokens/s")
    if row["cost"] is not None:
        parts.append(f"for {money_text(row['cost'])}")
    elif row["cost_per_million_tokens"] is not None:
        parts.append(f"{money_text(row['cost_per_million_tokens'])} for a million tokens")
    return ", ".join(parts)


def train_table(rows: Sequence[Row]) -> list[str]:
    """A table of at most `WIDTH` characters. A long layout takes several lines. Then the least important columns are left out."""
    cells = [
        {
            "on": f"{row['workers']} x {row['sku']}",
            "layout": layout_text(row),
            "batch": f"{row['micro_batch']} x {row['grad_accum']}",
            "gb_per_rank": f"{rounded_text(row['memory_gb']['total'])} of {device_gb(row):.0f}",
            "host_gb": rounded_text(row["host_memory_gb"]) if row["host_memory_gb"] else None,
            "tokens_per_s": rounded_text(row["tokens_per_s"]),
            "mfu": f"{row['mfu']:.0%}",
            "wait": f"{row['data']['asked']['stall']:.0%}" if row["data"] is not None else None,
            **cost_cells(row),
        }
        for row in rows
    ]
    return narrow_table(cells, left=("on", "layout", "batch"))


def rank_table(rows: Sequence[Row]) -> list[str]:
    """The layouts of a ranker, with rows in place of tokens."""
    cells = [
        {
            "on": f"{row['workers']} x {row['sku']}",
            "layout": layout_text(row),
            "batch": f"{row['micro_batch']} x {row['grad_accum']}",
            "gb_per_rank": f"{rounded_text(row['memory_gb']['total'])} of {device_gb(row):.0f}",
            "rows_per_s": rounded_text(row["rows_per_s"]),
            **cost_cells(row),
        }
        for row in rows
    ]
    return narrow_table(cells, left=("on", "layout", "batch"))


def cost_cells(row: Row) -> Row:
    """Time and cost of a row, as text."""
    return {
        "time": duration_text(row["duration_s"]) if row["duration_s"] is not None else None,
        "cost": money_text(row["cost"]) if row["cost"] is not None else None,
        "cost_per_hour": money_text(row["cost_per_hour"]) if row["cost_per_hour"] is not None else None,
    }


def narrow_table(cells: Sequence[Row], left: Sequence[str]) -> list[str]:
    """A table of at most `WIDTH` characters, as `train_table` says, without columns that say nothing. `left`: columns of words."""
    columns = [name for name in cells[0] if any(cell[name] is not None for cell in cells)] if cells else []
    if "cost" in columns:
        columns.remove("cost_per_hour")
    right = [name for name in columns if name not in left]
    left_out = iter(_LEFT_OUT_FIRST)
    whole = cells
    for width in _LAYOUT_WIDTHS if "layout" in columns else ():
        if max(map(len, table_lines(columns, cells, right)), default=0) <= WIDTH:
            break
        cells = [line for each in whole for line in _wrapped(each, width)]
    while True:
        lines = table_lines(columns, cells, right)
        if max(map(len, lines), default=0) <= WIDTH or (name := next(left_out, None)) is None:
            return lines
        columns = [column for column in columns if column != name]


def _wrapped(cells: Row, width: int) -> list[Row]:
    """The row, and a line below it for each further line of its layout."""
    first, *rest = wrap(cells["layout"], width, subsequent_indent="  ")
    return [{**cells, "layout": first}, *({**dict.fromkeys(cells, ""), "layout": line} for line in rest)]
