"""Groups of comparable score tasks, and a remark on their prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_OF_ROWS = ("source", "from", "lmEval", "path", "split", "fileType", "limit", "sample", "sampleSeed", "reference")
_DEFAULTS = {"prompt": "prompt"}
_OF_ANSWERS = ("judge", "answer", "ignore", "bleu", "numeric", "passAt", "choices")
"""Fields of a score task that say what its figures are of: a judge's score, or answers that are compared in one way."""


def comparable(spec: Mapping[str, Any] | None, names: Sequence[str]) -> list[list[str]]:
    """`names` of score tasks in groups of the same data, source, rows, prompt and reference column, whose answers are compared in the same
    way. Both orders are kept. Judges are in one group if they judge by the same rubric answers to the same data.

    `spec`: the JobSpec as a report holds it. All score tasks of a report without one are one group.
    """
    tasks = {task.get("name"): task.get("score") or {} for task in (spec or {}).get("spec", {}).get("tasks", [])}
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(json.dumps(_rows_of(tasks.get(name, {}), tasks)), []).append(name)
    return list(groups.values())


def _rows_of(score: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """What identifies the rows of a score task. `tasks`: bodies of all score tasks."""
    own = _DEFAULTS | (score.get("data") or {})
    judged = tasks.get(str(own.get("from"))) if score.get("judge") else None
    if judged:
        own = {**own, "from": _rows_of(judged, tasks)}
    return [*(score.get(field) or None for field in _OF_ANSWERS), *(own.get(field) for field in (*_OF_ROWS, *_DEFAULTS))]


def prompt_forms(tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence on score tasks with different forms of prompts, as of a base model and a tuned one; empty if all forms are the same."""
    forms = {name: str((task.get("details") or {}).get("prompts") or "") for name, task in tasks.items()}
    if len(set(forms.values()) - {""}) < 2:
        return ""
    by_form = [", ".join(name for name, form in forms.items() if form == wanted) for wanted in ("chats", "plain")]
    return f"prompts differ in form: as chats in {by_form[0]}, as plain text in {by_form[1]} (data.chat of a score task sets it)"
