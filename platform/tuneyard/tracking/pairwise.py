"""What a judge of two answers has found, for people: wins, ties and losses, and its biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.tracking.formats import number, percent


def pairwise_words(task: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Title, value and note of each count of a score task with `judge.against`; empty for any other task."""
    found = (task.get("details") or {}).get("pairwise")
    if not found:
        return []
    flipped, rows, same = found["order_dependent"], found["rows"], found.get("identical", 0)
    asked = rows - same
    sides = [
        (f"win rate where it is {name}", number(each["win_rate"], 4), f"{each['rows']:,} rows") for name, each in found["by_length"].items()
    ]
    return [
        ("won, tied, lost", f"{found['wins']:,} / {found['ties']:,} / {found['losses']:,}", f"of {rows:,} rows"),
        (
            "order-dependent",
            f"{flipped:,}",
            f"{percent(flipped / max(1, asked))} of the {asked:,} pairs that the judge was asked about; ties",
        ),
        *([("the same answer twice", f"{same:,}", "rows, counted as ties, and not judged")] if same else []),
        ("first answer preferred", percent(found["first_preferred"]), f"the second in {percent(found['second_preferred'])} of verdicts"),
        *sides,
    ]
