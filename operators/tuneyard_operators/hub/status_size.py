"""Cuts a status to a size that an API server accepts: every text to its limit, and the whole to a budget. Pure and idempotent.

etcd accepts objects of 1.5 MB, spec and status together. All text from a job's own processes passes here on its way into the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tuneyard.api import Attempt, JobStatus
from tuneyard.api.limits import LONGEST_MESSAGE
from tuneyard.api.status import MOST_STAGES, StageTime
from tuneyard.api.templates import LARGEST_BYTES

BUDGET_BYTES = 400_000
MOST_ATTEMPTS = 200
"""Older attempts are removed from the status once they are cleaned up. Their numbers are never used again."""
_TOLD_IN_FULL = 3
_LONGEST_NAME = 100
_MOST_LOSSES = 20
_MOST_PARTS = 4
_MOST_TRIALS = 64
_FIGURES_OF_TRIAL = 20
_COLUMNS = 60
"""Settings of a row of history."""
_CUT = " … (cut)"


@dataclass(frozen=True)
class _Limits:
    """`text`: characters of a message; `older`: the same for attempts before the last few; `items`: metrics, and artifacts, of a task."""

    text: int
    older: int
    items: int


_STEPS = (_Limits(LONGEST_MESSAGE, LONGEST_MESSAGE, 100), _Limits(LONGEST_MESSAGE, 200, 100), _Limits(500, 100, 10), _Limits(200, 50, 2))


def fitted(status: JobStatus) -> JobStatus:
    """`status`, cut in place by the first of `_STEPS` that fits the budget. Parts that it shares with other statuses are replaced."""
    status.attempts = _lately(status.attempts)
    for limits in _STEPS:
        _cut(status, limits)
        if (not _has_unknown(status) and _bound(status) <= BUDGET_BYTES) or size_of(status) <= BUDGET_BYTES:
            return status
    return JobStatus.model_validate(status.model_dump(by_alias=True), extra="ignore")


def _has_unknown(status: JobStatus) -> bool:
    """Whether the status has fields of a newer hub, which may have any size."""
    return any(each.model_extra for each in (status, *status.tasks, *status.attempts, *status.conditions))


def _cut(status: JobStatus, limits: _Limits) -> None:
    status.message = shortened(status.message, limits.text)
    status.artifacts = _uris(status.artifacts, limits.items)
    status.conditions = [
        each if len(each.message) <= limits.text else each.model_copy(update={"message": shortened(each.message, limits.text)})
        for each in status.conditions
    ]
    for task in status.tasks:
        task.message = shortened(task.message, limits.text)
        task.waits = task.waits if limits.items > 10 else []
        task.metrics = _figures(task.metrics, limits.items) | (_search(task.metrics) if limits.items > 10 else {})
        task.artifacts = _uris(task.artifacts, limits.items)
    for attempt in status.attempts[:-_TOLD_IN_FULL]:
        _shorten(attempt, limits.older)
        attempt.settings, attempt.plan, attempt.summary = {}, {}, None
        attempt.stages = _stages(attempt.stages, MOST_STAGES if limits.older == limits.text else 0)
        if limits.older < limits.text and attempt.cleaned and attempt.placement is not None:
            attempt.placement = attempt.placement.model_copy(update={"nodes": {}})  # its nodes are free again: their number is enough
    for attempt in status.attempts[-_TOLD_IN_FULL:]:
        _shorten(attempt, limits.text)
        attempt.settings = _figures(attempt.settings, limits.items)
        attempt.plan = _plan(attempt.plan, limits.items)
        if attempt.summary is not None and len(attempt.summary.losses) > _MOST_LOSSES:
            attempt.summary = attempt.summary.model_copy(update={"losses": attempt.summary.losses[-_MOST_LOSSES:]})
        attempt.stages = _stages(attempt.stages, MOST_STAGES)


def _bound(status: JobStatus) -> int:
    """An upper bound in bytes: a character takes at most six. It is cheap, and enough for most statuses, which are far below the budget."""
    characters = (
        len(status.message) + len(status.output) + sum(map(len, status.artifacts)) + sum(len(each.message) for each in status.conditions)
    )
    others = (
        2_000
        + (2 * LARGEST_BYTES if status.template is not None else 0)
        + 1_000 * (len(status.tasks) + len(status.conditions))
        + 1_500 * len(status.attempts)
    )
    for task in status.tasks:
        others += sum(100 + 6 * len(wait.reason) for wait in task.waits)
        characters += len(task.message) + sum(map(len, task.artifacts)) + 2 * _LONGEST_NAME * len(task.metrics)
        characters += sum(map(_characters, _search(task.metrics).get("trials", ())))
        learned = _learned(task.metrics).get("learned", {"settings": {}, "trials": ()})
        characters += _characters(learned["settings"]) + sum(map(_characters, learned["trials"]))
    for attempt in status.attempts:
        characters += (
            len(attempt.message) + len(attempt.next_step) + len(attempt.stopped_for) + len(attempt.failed_node) + len(attempt.log_tail)
        )
        others += 2 * _LONGEST_NAME * 6 * len(attempt.settings)
        characters += _characters(attempt.plan)
        others += (300 + 60 * len(attempt.summary.losses)) if attempt.summary is not None else 0
        others += 6 * 2 * _LONGEST_NAME * len(attempt.stages)
        others += 300 * len(attempt.placement.nodes if attempt.placement is not None else ())
    return others + 6 * characters


def size_of(status: JobStatus) -> int:
    """Bytes of a status as JSON."""
    return len(msgspec.json.encode(status.model_dump(mode="json", by_alias=True)))


def shortened(text: str, most: int = LONGEST_MESSAGE) -> str:
    """The text, cut to `most` characters with a mark at the cut."""
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def _shorten(attempt: Attempt, most: int) -> None:
    attempt.message = shortened(attempt.message, most)
    attempt.next_step = shortened(attempt.next_step, most)
    attempt.stopped_for = shortened(attempt.stopped_for, most)
    attempt.failed_node = attempt.failed_node[:253]
    attempt.log_tail = attempt.log_tail[-most:]


def _lately(attempts: list[Attempt]) -> list[Attempt]:
    """The attempts without the oldest that are cleaned up, if there are more than `MOST_ATTEMPTS`."""
    spare = max(0, len(attempts) - MOST_ATTEMPTS)
    return [each for index, each in enumerate(attempts) if index >= spare or each.ended_at is None or not each.cleaned or each.door]


def _figures(metrics: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The metrics that are numbers or texts, cut to `most`; nested values are left out."""
    plain = {name: value for name, value in metrics.items() if len(name) <= _LONGEST_NAME and isinstance(value, int | float | str | bool)}
    return {name: value[:_LONGEST_NAME] if isinstance(value, str) else value for name, value in list(plain.items())[:most]}


def _search(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The trials and the winner of a search, which the pages of the hub show, and its runs for run history. Empty for other tasks."""
    trials, best = metrics.get("trials"), metrics.get("best")
    if not isinstance(trials, list) or not isinstance(best, Mapping):
        return {}
    told = [_parts(trial, _FIGURES_OF_TRIAL, 2) for trial in trials[:_MOST_TRIALS] if isinstance(trial, Mapping)]
    return {"trials": told, "best": _figures(best, _FIGURES_OF_TRIAL), **_learned(metrics)}


def _learned(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of a search as rows of history (`tuning.passed_on.told`). Empty before its end."""
    given = metrics.get("learned")
    if not isinstance(given, Mapping) or not isinstance(given.get("settings"), Mapping) or not isinstance(given.get("trials"), list):
        return {}
    told = [_parts(trial, _FIGURES_OF_TRIAL, 2) for trial in given["trials"][:_MOST_TRIALS] if isinstance(trial, Mapping)]
    return {"learned": {"settings": _figures(given["settings"], _COLUMNS), "trials": told}}


def _plan(plan: Mapping[str, Any], most: int) -> dict[str, Any]:
    """A plan whose parts (memory, speed, and its terms) are cut as figures are, three levels deep."""
    return _parts(plan, most, 3)


def _parts(values: Mapping[str, Any], most: int, levels: int) -> dict[str, Any]:
    nested = {
        name: _parts(value, most, levels - 1)
        for name, value in values.items()
        if levels > 1 and isinstance(value, Mapping) and len(name) <= _LONGEST_NAME
    }
    return {**_figures(values, most), **dict(list(nested.items())[:_MOST_PARTS])}


def _characters(values: Mapping[str, Any]) -> int:
    """An upper bound of the characters of nested figures; a number takes at most 25."""
    return sum(
        len(name) + 6 + (_characters(value) if isinstance(value, Mapping) else len(value) if isinstance(value, str) else 25)
        for name, value in values.items()
    )


def _stages(stages: list[StageTime], most: int) -> list[StageTime]:
    """The first `most` stages, with short names."""
    return [each.model_copy(update={"name": shortened(each.name, _LONGEST_NAME)}) for each in stages[:most]]


def _uris(artifacts: list[str], most: int) -> list[str]:
    return artifacts if len(artifacts) <= most else artifacts[:most]
