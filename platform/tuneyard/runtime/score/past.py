"""Past score runs in the history of this platform: what corrects predicted speeds of engines, and how long answers were."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import CPU, BadInput, StorageError
from tuneyard.catalog.cpu import machine_key
from tuneyard.planning.engines import UNCORRECTED, Correction, EngineTime, ScoreRun, corrected_by


@dataclass(frozen=True)
class PastScores:
    """Ended runs with engines, oldest first: `job`, `task`, and `speed` as `predicted.speed_of` writes it."""

    runs: tuple[Mapping[str, Any], ...] = ()

    def correction(self, sku: str) -> Correction:
        """The correction for a kind of GPU; on `cpu` for this machine."""
        machine = machine_of(sku)
        here = [run["speed"] for run in self.runs if (run["speed"].get("sku"), run["speed"].get("machine", "")) == (sku, machine)]
        return corrected_by([_run(speed) for speed in here]) if here else UNCORRECTED

    def answer_tokens(self, job: str, task: str) -> float | None:
        """Tokens of an answer of the latest run of a task, on average. None: it has not run, or its rows have no answers."""
        found = [run["speed"].get("answer_tokens") for run in self.runs if (run["job"], run["task"]) == (job, task)]
        return next((float(each) for each in reversed(found) if each), None)


def machine_of(sku: str) -> str:
    """The kind of this machine where a SKU does not name it; else empty."""
    return machine_key() if sku == CPU.sku else ""


def past_scores(warn: Callable[[str], object]) -> PastScores:
    """The past runs in history. None of them if TUNEYARD_HISTORY is off, or if history cannot be read, which is reported to `warn`."""
    from tuneyard.tracking.history import History, has_history

    try:
        if os.environ.get("TUNEYARD_HISTORY", "on") != "off" and has_history():
            history = History.open()
            found = PastScores(tuple(_with_speed(history.score_runs())))
            history.close()
            return found
    except (StorageError, BadInput) as error:
        warn(error.cause)
    return PastScores()


def _with_speed(attempts: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Attempts with a comparison that this version can read."""
    for attempt in attempts:
        speed = ((attempt["result"] or {}).get("details") or {}).get("speed") or {}
        if {"terms_s", "measured_s", "ready_terms_s", "measured_ready_s"} <= speed.keys():
            yield {"job": attempt["job"], "task": attempt["task"], "speed": speed}


def _run(speed: Mapping[str, Any]) -> ScoreRun:
    terms = {name: float(speed["terms_s"].get(name.removesuffix("_s"), 0.0)) for name in EngineTime.__dataclass_fields__}
    return ScoreRun(
        predicted=EngineTime(**terms),
        predicted_ready_s=float(sum(speed["ready_terms_s"].values())),
        generation_s=float(speed["measured_s"]),
        ready_s=float(speed["measured_ready_s"]),
    )
