"""`plan.json`: the settings of all parts of an output. It is written once; an attempt with other settings is refused."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from tuneyard.api import BadInput, JobFailed
from tuneyard.scoring.charges import CHARGED
from tuneyard.scoring.parts import FOLDER, Layout, committed_parts
from tuneyard.scoring.request import ScoreRequest
from tuneyard.storage import AlreadyExists, Store, open_store

PLAN = "plan.json"
REQUESTS = "requests"
"""Folder of the requests of lm-evaluation-harness."""
FORMAT = 7
"""Version of plan.json, of the sums and columns in parts, of words in metrics, of the rendering of prompts, and of the ends of answers."""


def clear(store: Store) -> None:
    """Remove the parts of earlier attempts, their plan, their requests, and the record of their charges."""
    store.delete_prefix(FOLDER)
    store.delete_prefix(REQUESTS)
    store.delete(PLAN)
    store.delete(CHARGED)


def agree(store: Store, layout: Layout, settings: dict[str, Any], chosen: dict[str, Any] | None = None) -> tuple[Layout, dict[str, Any]]:
    """Write plan.json, or return the layout and the choices of an existing one.

    `settings`: all settings that change the content of a part. `chosen`: choices of the first attempt, which hold for all attempts. Raises
    BadInput if the existing plan has other settings.
    """
    plan = {"version": FORMAT, "rowsPerPart": layout.rows_per_part, "settings": settings, **({"chosen": chosen} if chosen else {})}
    try:
        store.create(PLAN, json.dumps(plan, indent=2).encode())
    except AlreadyExists:
        earlier = json.loads(store.get(PLAN))
        if earlier["version"] != FORMAT:
            raise BadInput(
                f"{store.uri} holds parts of another version of Tuneyard, whose sums this version cannot read",
                "write to another output with --out, or score again without --resume",
            ) from None
        changes = _changes(earlier["settings"], settings)
        if changes:
            raise BadInput(
                f"{store.uri} holds parts that were made with other settings: {'; '.join(changes)}",
                "write to another output with --out, or score again without --resume",
            ) from None
        return Layout(layout.rows, earlier["rowsPerPart"]), earlier.get("chosen", {})
    if committed_parts(store):
        store.delete(PLAN)
        raise BadInput(f"{store.uri} holds parts, but no {PLAN} with their settings", "write to another output with --out")
    return layout, chosen or {}


def identity(uri: str) -> str:
    """A hash of the files of a folder: names, sizes and versions (modification times on local disks)."""
    files = open_store(uri).list()
    return hashlib.sha256("\n".join(f"{f.path} {f.size_bytes} {f.version}" for f in files).encode()).hexdigest()[:16]


def rows_per_part(request: ScoreRequest, by_default: int) -> int:
    """Rows of a part: the task's setting, or `by_default`."""
    asked = request.task.rows_per_part
    return by_default if asked == "auto" else asked


def check_errors(request: ScoreRequest, errors: int, rows: int, reasons: Counter[str]) -> None:
    """Raises JobFailed if the share of rows with errors is above the task's `maxErrorFraction`."""
    tolerated = request.task.max_error_fraction
    if errors <= tolerated * rows:
        return
    commonest = "".join(f"\n    {count} x {reason}" for reason, count in reasons.most_common(3))
    raise JobFailed(
        f"{errors} of {rows} rows have errors, more than maxErrorFraction {tolerated:g} tolerates:{commonest}",
        f"see the column error in {request.output}/{FOLDER}; repair the rows, or raise score.maxErrorFraction",
    )


def _changes(earlier: dict[str, Any], now: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for key in sorted(earlier.keys() | now.keys()):
        before, after = earlier.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += _changes(before, after, f"{path}{key}.")
        elif before != after:
            found.append(f"{path}{key} was {before}, is {after}")
    return found
