"""Remarks of a report on a task: the reason for an early end, the bottleneck, what was proven of its model, and its predicted time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WITH_SENTENCE = ("best", "early_stop", "bottleneck", "bound", "proof", "speed")
"""Keys of a task's details that hold a sentence."""


def remarks_of(task: Mapping[str, Any], *, also_expected: bool = True) -> list[str]:
    """Remarks on a task of report.json; a report of an earlier version may have none. `also_expected`: include that the trainer sets the
    speed of streamed data, and that compute bounds the task."""
    found = [(task.get("details") or {}).get(name) or {} for name in _WITH_SENTENCE]
    return [each["sentence"] for each in found if "sentence" in each and (also_expected or each.get("cause") not in ("trainer", "compute"))]
