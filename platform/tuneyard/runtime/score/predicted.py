"""The predicted speed of the engines of a score run: before it runs, and beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import ScoreTask, TuneyardError
from tuneyard.catalog import ModelShape, gpu, shape_from_config
from tuneyard.planning import engine_length, gpus_of_machine, resolve_engine_plan
from tuneyard.planning.engines import UNCORRECTED, Correction, DataSetTime, RowLengths, ScorePlan, row_lengths
from tuneyard.runtime.models import known_shape, read_config
from tuneyard.runtime.score.past import PastScores, machine_of
from tuneyard.scoring.request import ScoreRequest
from tuneyard.storage import is_local, local_path
from tuneyard.tracking.formats import duration

_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Promise:
    """What was predicted before a run. `expected_s`: of the whole task, with the start of its engines; None: its rows could not be
    counted."""

    shape: ModelShape
    correction: Correction
    expected_s: float | None


def promise_of(request: ScoreRequest, past: PastScores, answer_tokens: float | None = None) -> Promise | None:
    """The prediction before a run. `answer_tokens`: as in `row_lengths`. None: a model whose engines cannot be planned, or whose shape only
    transformers could build, which would delay the run."""
    try:
        shape = known_shape(request.model_uri) or shape_from_config(read_config(request.model_uri))
        engine_length(request.task, shape)
    except TuneyardError:
        return None
    if not shape.exact:
        return None
    correction = past.correction(request.sku)
    try:
        expected_s = _expected_s(request, shape, correction, answer_tokens)
    except TuneyardError:
        expected_s = None
    return Promise(shape, correction, expected_s)


def speed_of(request: ScoreRequest, result: Mapping[str, Any], promise: Promise) -> dict[str, Any] | None:
    """Predicted beside measured, for `details.speed` of a result. None: this attempt has scored no row with an engine.

    Predicted is the time of the rows as they turned out, with their real lengths, by what was known before the run. `terms_s` and
    `ready_terms_s` are predicted seconds without a correction, from which later corrections are made.
    """
    details = result["details"]
    rows = result["rows"] - result["rows_resumed"] - result["errors"]
    measured_s = details.get("generation_s") or 0.0
    if rows <= 0 or not measured_s or not details.get("engine"):
        return None
    try:
        plain, time = (
            time_of(request, promise.shape, _lengths(request.task, result), rows, each) for each in (UNCORRECTED, promise.correction)
        )
    except TuneyardError:
        return None
    if not plain.generation_s:  # all answers were empty, and nothing else was asked
        return None
    ready_s = details.get("load_s") or 0.0
    found = {
        "sku": request.sku,
        "machine": machine_of(request.sku),
        "runs": promise.correction.runs,
        "predicted_s": time.generation_s,
        "measured_s": measured_s,
        "predicted_tokens_per_s": time.output_tokens_per_s,
        "measured_tokens_per_s": result["output_tokens_per_s"],
        "predicted_ready_s": time.start_s + time.load_s,
        "measured_ready_s": ready_s,
        "expected_s": promise.expected_s,
        "took_s": result["wall_s"],
        "answer_tokens": time.output_tokens / rows / request.task.generation.samples,
        "terms_s": {name.removesuffix("_s"): value for name, value in asdict(plain.time).items()},
        "ready_terms_s": {"start": plain.start_s, "load": plain.load_s},
    }
    return {**found, "sentence": _sentence(found)}


def _expected_s(request: ScoreRequest, shape: ModelShape, correction: Correction, answer_tokens: float | None) -> float | None:
    from tuneyard.data import count_score_rows

    if request.task.data.lm_eval is not None or not is_local(request.task.data.source or ""):
        return None
    count = count_score_rows(request.task, tokenizer=tokenizer_of(request.model_uri))
    longest = engine_length(request.task, shape)
    scored = count.within(longest).rows
    if not scored:
        return None
    lengths = row_lengths(request.task, count, max_length=longest, output_tokens=answer_tokens)
    return time_of(request, shape, lengths, scored, correction).total_s


def tokenizer_of(model_uri: str) -> Path | None:
    """tokenizer.json of a model in a local folder; None: it is elsewhere, or has none."""
    folder = local_path(model_uri) if is_local(model_uri) else None
    return folder / _TOKENIZER if folder is not None and (folder / _TOKENIZER).is_file() else None


def time_of(request: ScoreRequest, shape: ModelShape, lengths: RowLengths, rows: float, correction: Correction) -> DataSetTime:
    """The predicted time of `rows` rows of these lengths. Raises BadInput for engines that do not fit."""
    kind = gpu(request.sku)
    found = resolve_engine_plan(request.task, shape, kind, instances=request.instances, gpus_per_node=gpus_of_machine(request.task))
    plan = ScorePlan.of(request.task, shape, kind, found, lengths, instances=request.instances, correction=correction)
    return plan.time(rows)


def _lengths(task: ScoreTask, result: Mapping[str, Any]) -> RowLengths:
    """Tokens of the rows as they turned out, on average."""
    rows = max(1, result["rows"] - result["errors"])
    output = result["output_tokens"] / rows / task.generation.samples
    return RowLengths(
        prompt=result["input_tokens"] / rows,
        output=output,
        longest_output=task.generation.max_tokens if result["cut_off"] else None,
        samples=task.generation.samples,
        evaluated=(result["details"].get("evaluated_tokens") or 0) / rows,
    )


def _sentence(found: Mapping[str, Any]) -> str:
    measured, predicted = found["measured_s"], found["predicted_s"]
    by = f", corrected by {found['runs']} earlier run{'' if found['runs'] == 1 else 's'}" if found["runs"] else ""
    said = f"the rows took {duration(measured)}; predicted for their lengths{by}: {duration(predicted)} ({predicted / measured - 1:+.0%})"
    if found["expected_s"] is None:
        return said
    return (
        f"{said}. Expected before the run, with the start of engines: {duration(found['expected_s'])}; it took {duration(found['took_s'])}"
    )
