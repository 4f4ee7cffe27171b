"""Runs of history as a short text: what a hub gives to an attempt, which cannot reach its database, and what a search gives back.

Both hold figures alone: settings by the columns that a predictor reads, the end of a run, its speed and memory. No job, team, model or
path is named.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from tuneyard.api import BadInput

PAST_RUNS = "TUNEYARD_PAST_RUNS"
"""Variable of an attempt's head pod with the runs that its hub gives to a search."""
MOST_BYTES = 64 * 1024
"""Linux takes variables of 128 KiB."""
_RESULT = ("tokens_per_s_per_gpu", "peak_memory_gb")
_LONGEST_TEXT = 100
_ENDS = ("succeeded", "failed")


def packed(runs: Sequence[Mapping[str, Any]], most_bytes: int = MOST_BYTES) -> str:
    """The newest of `runs` (newest first, as `History.training_page` has them) in at most `most_bytes`; empty for none."""
    figures = [found for run in runs if (found := _figures(run)) is not None]
    while figures:
        text = base64.b64encode(gzip.compress(json.dumps(figures, separators=(",", ":")).encode(), mtime=0)).decode()
        if len(text) <= most_bytes:
            return text
        figures = figures[: int(len(figures) * min(0.9, most_bytes / len(text)))]
    return ""


def unpacked(text: str) -> list[dict[str, Any]]:
    """The runs in a text of `packed`, oldest first, as `History.training_runs` has them. Raises BadInput."""
    try:
        runs = json.loads(gzip.decompress(base64.b64decode(text, validate=True)))
        return [{**_known(run), "origin": "hub"} for run in reversed(runs)]
    except (binascii.Error, OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"the runs that the hub has given cannot be read: {error}", "use the same version on hub and members") from error


def told(rows: Iterable[tuple[int, Mapping[str, Any], Mapping[str, Any]]], base: Mapping[str, Any]) -> dict[str, Any]:
    """Trials of a search in few bytes: the settings that all share, and of each what differs. `rows`: number, settings, and outcome
    (`status`, `failure`, `tokens_per_s_per_gpu`). `base`: settings of the file."""
    trials = [
        {"number": number, "settings": {name: value for name, value in settings.items() if value != base.get(name)}, **outcome}
        for number, settings, outcome in rows
    ]
    return {"settings": dict(base), "trials": trials}


def trials_in(given: Any) -> list[tuple[int, dict[str, Any]]]:
    """The numbers and runs (`settings`, `status`, `failure`, `result`) in a text of `told`, as far as it is one: jobs write it."""
    if not isinstance(given, Mapping) or not isinstance(given.get("settings"), Mapping) or not isinstance(given.get("trials"), list):
        return []
    found = []
    for trial in given["trials"]:
        if not isinstance(trial, Mapping) or not isinstance(trial.get("number"), int) or not isinstance(trial.get("settings"), Mapping):
            continue
        if trial.get("status") not in _ENDS:
            continue
        run = {**trial, "settings": {**given["settings"], **trial["settings"]}, "result": {name: trial.get(name) for name in _RESULT}}
        if (figures := _figures(run)) is not None:
            found.append((trial["number"], figures))
    return found


def _figures(run: Mapping[str, Any]) -> dict[str, Any] | None:
    """The figures of a run; None: it has no settings."""
    if not run.get("settings"):
        return None
    result = dict(run.get("result") or {})
    settings = {str(name): value for name, value in run["settings"].items() if _is_figure(value)}
    per_gpu, gpus = result.get("tokens_per_s_per_gpu"), settings.get("gpus")
    if per_gpu is None and _is_number(result.get("tokens_per_s")) and _is_number(gpus) and gpus:
        result["tokens_per_s_per_gpu"] = result["tokens_per_s"] / gpus / (1 - _stall(result))
    peaks = result.get("peak_memory_gb")
    result["peak_memory_gb"] = max(peaks, default=None) if isinstance(peaks, list) else peaks
    return {
        "settings": settings,
        "status": str(run["status"])[:_LONGEST_TEXT],
        "failure": str(run.get("failure") or "")[:_LONGEST_TEXT],
        "result": {name: result[name] for name in _RESULT if _is_number(result.get(name))},
    }


def _stall(result: Mapping[str, Any]) -> float:
    """As in `history._stall`: the share of time that ranks waited for rows says nothing about their settings."""
    stall = ((result.get("details") or {}).get("bottleneck") or {}).get("stall")
    return min(0.99, max(0.0, float(stall))) if _is_number(stall) else 0.0


def _known(run: Mapping[str, Any]) -> dict[str, Any]:
    return {"settings": dict(run["settings"]), "status": run["status"], "failure": run["failure"], "result": dict(run["result"])}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_figure(value: Any) -> bool:
    return value is None or isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) <= _LONGEST_TEXT)
