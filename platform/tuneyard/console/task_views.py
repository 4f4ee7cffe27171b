"""Tasks as their report shows them, for pages over history. A part that cannot be read is left out, and the page says so."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tuneyard.tracking.report_page import task_view

_LOG = logging.getLogger(__name__)
_WRONG = (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError)
_FACTS = ("kind", "status", "failure", "message", "attempt", "wall_s")


def task_views(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Figures, drawings and tables by the name of the task. `tasks`: as in report.json."""
    return {name: _view(name, task) for name, task in tasks.items()}


def _view(name: str, task: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return task_view(name, _without_log(task))
    except _WRONG as error:
        _LOG.warning("task %r of a report cannot be shown: %s", name, error)
        facts = {key: task[key] for key in _FACTS if key in task}
        return {**task_view(name, facts), "warnings": ["the rest of this task's report cannot be read"]}


def _without_log(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """Attempts that wait for their first step have no losses to show."""
    return {key: value for key, value in task.items() if key != "losses" or value}
