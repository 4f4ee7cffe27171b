"""The driver's side of a score task with tasks of lm-evaluation-harness, for a pool of workers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from tuneyard.api import JobFailed
from tuneyard.catalog.built import model_shape_of
from tuneyard.catalog.config_reader import config_in
from tuneyard.metrics import figure_name
from tuneyard.metrics.aggregates import LEAST_ROWS, Z
from tuneyard.planning import engine_length
from tuneyard.scoring.engine_work import EngineWork
from tuneyard.scoring.harness.answers import collect
from tuneyard.scoring.harness.process import Order, run_harness
from tuneyard.scoring.harness.rows import PROMPT, REFERENCE
from tuneyard.scoring.job import Figures, Measured
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.model_folder import small_files_of
from tuneyard.scoring.plan import REQUESTS, clear
from tuneyard.scoring.request import ScoreRequest, ScoreResult
from tuneyard.scoring.settings import tokenizer_folder
from tuneyard.storage import AlreadyExists, fetch_folder, join, open_store

_ENGINES_NEED = 2
"""Positions beyond a context: vLLM evaluates the last token too, and generates at least one."""


class HarnessWork(EngineWork):
    """See `scoring.work.Work`. Rows are the different requests of all tasks."""

    def __init__(self, request: ScoreRequest) -> None:
        """Build the requests. Raises BadInput: tasks that cannot be had or scored; or as `EngineWork`."""
        self._scratch = Path(request.scratch) / "lm-eval"
        self._order, self._files = _order_of(request, self._scratch), self._scratch / "requests.parquet"
        self._built = run_harness("build", replace(self._order, requests=str(self._files)), self._scratch, open_store(request.output))
        super().__init__(self._with_rows(request))

    def _with_rows(self, request: ScoreRequest) -> ScoreRequest:
        """The request with the file of requests as its data. The file is written once, under the hash of its content."""
        harness, store = request.task.data.lm_eval, open_store(request.output)
        assert harness is not None
        if not request.resume:
            clear(store)
        contents = self._built["contents"]
        content = hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16]
        place = f"{REQUESTS}/{content}.parquet"
        with suppress(AlreadyExists):
            store.create(place, self._files.read_bytes())
        rows = {"source": join(request.output, place), "prompt": PROMPT, "reference": REFERENCE, "chat": harness.chat}
        task = request.task.model_copy(update={"data": request.task.data.model_copy(update=rows)})
        asked = harness.model_dump(mode="json", by_alias=True, include={"tasks", "fewshot", "limit", "chat"})
        known = {"lmEval": {**asked, "version": self._built["version"], "requests": contents}}
        return replace(request, task=task, harness=known, resume=True)

    def finish(self, measured: Measured) -> ScoreResult:
        """As `EngineWork`, with the harness's figures of all requests. A request without an answer would change them: then there are none.

        Raises JobFailed where a request has an error.
        """
        total = Sums()
        for sums in [*self._job.committed.values(), *self._new]:
            total.add(sums)
        figures = None
        if not measured.stopped and not total.errors:
            figures = self._figures()
        result = self._finished(measured, figures)
        if total.errors and not measured.stopped:
            commonest = "".join(f"\n    {count} x {reason}" for reason, count in total.reasons.most_common(3))
            raise JobFailed(
                f"{total.errors} of {total.rows} requests of lm-evaluation-harness have no answer, so there are no figures:{commonest}",
                f"see the column error in {result.output}; committed parts are kept",
            )
        return result

    def _figures(self) -> Figures:
        answers = self._scratch / "answers.parquet"
        store = open_store(self.request.output)
        collect(store, self.layout.parts, answers)
        order = replace(self._order, requests=str(self._files), answers=str(answers))
        found = run_harness("measure", order, self._scratch, store)
        values, intervals, errors, strange = _figures_in(found["results"])
        directions = {
            figure_name(name, metric, "none"): higher
            for name, metrics in found["higher_is_better"].items()
            for metric, higher in metrics.items()
            if isinstance(higher, bool)
        }
        documents = {name: counts["effective"] for name, counts in found["n-samples"].items()}
        details = {
            "version": self._built["version"],
            "requests": self._built["asked"],
            "versions": found["versions"],
            "shots": found["n-shot"],
            "documents": documents,
            "higher_is_better": directions,
            "standard_errors": errors,
            "no_number": strange,
        }
        return Figures(values=values, intervals=intervals, details={"lm_eval": details})

    def warnings(self, result: ScoreResult) -> list[str]:
        """Notes of the harness, one sentence each."""
        strange = result.details.get("lm_eval", {}).get("no_number", [])
        said = [f"lm-evaluation-harness gives no number for {', '.join(strange)}, which the figures leave out"] if strange else []
        return [*self._built["notes"], *said]


def _order_of(request: ScoreRequest, scratch: Path) -> Order:
    """Raises BadInput or NotFound where the model or the folder of own tasks cannot be had."""
    task, harness = request.task, request.task.data.lm_eval
    assert harness is not None
    model = small_files_of(request.model_uri, scratch / "model", task.model.revision)
    adapter = fetch_folder(request.adapter_uri, scratch) if request.adapter_uri else None
    folder = fetch_folder(harness.folder, scratch / "tasks") if harness.folder is not None else None
    return Order.of(
        harness,
        folder,
        tokenizer=str(tokenizer_folder(model, adapter)),
        model=str(model),
        trust_remote_code=task.model.trust_remote_code,
        max_length=engine_length(task, model_shape_of(config_in(model))) - _ENGINES_NEED,
    )


def _figures_in(
    results: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, float], dict[str, tuple[float, float]], dict[str, float], list[str]]:
    """Values, intervals at 95 %, the harness's standard errors, and names of figures that are no number.

    `results`: of the harness: name of a task or group -> `METRIC,FILTER` and `METRIC_stderr,FILTER` -> value, `sample_len` documents.
    """
    values: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    errors: dict[str, float] = {}
    strange = []
    for name, found in results.items():
        for key, value in found.items():
            metric, comma, of = key.partition(",")
            if not comma or metric.endswith("_stderr"):
                continue
            figure = figure_name(name, metric, of)
            if not _is_number(value):
                strange.append(figure)
                continue
            values[figure], error = float(value), found.get(f"{metric}_stderr,{of}")
            if _is_number(error):
                errors[figure] = float(error)
                if found.get("sample_len", 0) >= LEAST_ROWS:
                    intervals[figure] = (value - Z * error, value + Z * error)
    return values, intervals, errors, strange


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
