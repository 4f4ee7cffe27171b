"""Past score runs in the history of this platform: what corrects predicted speeds of engines, and how long answers were."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import CPU, BadInput, JobSpec, ScoreTask, StorageError, Task, TrainTask
from tuneyard.catalog.cpu import machine_key
from tuneyard.planning.engines import UNCORRECTED, Correction, EngineTime, ScoreRun, corrected_by

_CUT_OFF = 0.5
"""Share of answers that were cut off from which a run no longer tells how long answers are."""


@dataclass(frozen=True)
class PastScores:
    """Ended runs with engines, oldest first: `job`, `task`, `spec` of the job, `speed` as `predicted.speed_of` writes it, and `cut_off`,
    the share of answers that ended at their limit.
    """

    runs: tuple[Mapping[str, Any], ...] = ()

    def correction(self, sku: str) -> Correction:
        """The correction for a kind of GPU; on `cpu` for this machine."""
        machine = machine_of(sku)
        here = [run["speed"] for run in self.runs if (run["speed"].get("sku"), run["speed"].get("machine", "")) == (sku, machine)]
        return corrected_by([_run(speed) for speed in here]) if here else UNCORRECTED

    def answers(self, job: JobSpec, task: Task) -> PastAnswers:
        """The answers of the latest run of a task with the same model and generation settings, of which fewer than half were cut off."""
        own = [run for run in reversed(self.runs) if (run["job"], run["task"]) == (job.metadata.name, task.name)]
        whys = []
        for run in own:
            if not run["speed"].get("answer_tokens"):
                continue
            whys.append(_difference(run, job, task))
            if not whys[-1]:
                return PastAnswers(float(run["speed"]["answer_tokens"]))
        return PastAnswers(None, whys[0] if whys else "")


@dataclass(frozen=True)
class PastAnswers:
    """Tokens of an answer in a past run, on average. None: no run tells them; `why`, where there are runs."""

    tokens: float | None = None
    why: str = ""


def _difference(run: Mapping[str, Any], job: JobSpec, task: Task) -> str:
    """Why the answers of a run do not tell the lengths of the next ones; empty: they do."""
    assert task.score is not None
    try:
        then = JobSpec.model_validate(run["spec"])
    except ValueError:
        return "the JobSpec of the latest run of this task cannot be read"
    earlier = next((each for each in then.spec.tasks if each.name == task.name), None)
    if earlier is None or earlier.score is None:
        return "the JobSpec of the latest run of this task cannot be read"
    if _recipe(then, earlier) != _recipe(job, task):
        return "the latest run of this task had another model"
    if _sampling(earlier.score) != _sampling(task.score):
        return "the latest run of this task had other generation settings"
    if run["cut_off"] >= _CUT_OFF:
        return f"in the latest run of this task {run['cut_off']:.0%} of the answers were cut off at their limit"
    return ""


def _recipe(job: JobSpec, task: Task) -> list[Any]:
    """What makes the model of a score task: its reference, and the tasks that it comes from."""
    here = {each.name: each for each in job.spec.tasks}
    body: TrainTask | ScoreTask | None = task.score
    assert body is not None
    found: list[Any] = [body.model.model_dump(mode="json")]
    while body is not None and body.model.from_task in here:
        source = here[body.model.from_task]
        body = source.train or source.score
        made = source.model_dump(mode="json", exclude={"resources"}) if source.score is None else source.score.model.model_dump(mode="json")
        found.append(made)
    return found


def _sampling(score: ScoreTask) -> dict[str, Any]:
    return score.generation.model_dump(mode="json", exclude={"seed"})


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
            result = attempt["result"]
            answered = max(1, result.get("rows", 0) - result.get("errors", 0))
            cut_off = result.get("cut_off", 0) / answered
            yield {"job": attempt["job"], "task": attempt["task"], "spec": attempt["spec"], "speed": speed, "cut_off": cut_off}


def _run(speed: Mapping[str, Any]) -> ScoreRun:
    terms = {name: float(speed["terms_s"].get(name.removesuffix("_s"), 0.0)) for name in EngineTime.__dataclass_fields__}
    return ScoreRun(
        predicted=EngineTime(**terms),
        predicted_ready_s=float(sum(speed["ready_terms_s"].values())),
        generation_s=float(speed["measured_s"]),
        ready_s=float(speed["measured_ready_s"]),
    )
