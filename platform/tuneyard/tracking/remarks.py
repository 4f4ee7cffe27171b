"""Remarks of a report on a task: the reason for an early end, the bottleneck, what was proven of its model, and its predicted time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_WITH_SENTENCE = ("best", "early_stop", "bottleneck", "bound", "proof", "speed")
"""Keys of a task's details that hold a sentence."""
_SAME = 1e-6
"""Relative difference of losses that are the same."""


def remarks_of(task: Mapping[str, Any], *, also_expected: bool = True) -> list[str]:
    """Remarks on a task of report.json; a report of an earlier version may have none. `also_expected`: include that the trainer sets the
    speed of streamed data, and that compute bounds the task."""
    found: list[dict[str, str]] = [{"sentence": said} for said in _little_learned(task)]
    found += [(task.get("details") or {}).get(name) or {} for name in _WITH_SENTENCE]
    return [each["sentence"] for each in found if "sentence" in each and (also_expected or each.get("cause") not in ("trainer", "compute"))]


def _little_learned(task: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for a train task that has changed its model next to nothing: a green end alone would look like success."""
    losses = task.get("losses") or []
    if task.get("kind") not in ("train", "rank") or task.get("status", "succeeded") != "succeeded" or not losses:
        return
    if task.get("steps", len(losses)) == 1:
        yield "it made a single step, so the model has hardly changed: raise epochs or steps, or lower batch.global"
    elif len(losses) > 1 and max(losses) - min(losses) <= _SAME * abs(losses[0]):
        yield f"the loss stayed at {losses[0]:.4g} in all {len(losses):,} steps, so nothing was learned: look at optimizer.learningRate"
