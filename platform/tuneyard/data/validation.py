"""Training data with a data set of their own for evaluation (`data.validation`).

Its rows are made before the first step, or, where that takes long, until the first evaluation. They are the same rows in the same order.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuneyard.api import TrainData
from tuneyard.data.mix_parts import validation_data
from tuneyard.data.preparation import Prepared, located_source, prepare, row_settings
from tuneyard.data.report import DataReport
from tuneyard.data.samples import Objective
from tuneyard.data.stream.opening import open_evaluation
from tuneyard.data.stream.token_streams import EvaluatedTokens
from tuneyard.data.streaming import counts_of, stream_report
from tuneyard.data.way import VALIDATION, Way, Ways
from tuneyard.tracking import ROWS_OF_EVALUATION, Emit, Event, Stage, Warned

_NAME = "validation"
_TOLD_AFTER_S, _EVERY_S = 2.0, 0.5


def with_validation(
    spec: TrainData,
    tokenizer: Any,
    *,
    objective: Objective,
    seed: int,
    cache_dir: str | Path | None,
    service: Path | None,
    emit: Emit,
    task: str,
    steps: int | None,
    ways: Ways,
) -> Prepared:
    """As `prepare`, for data with `validation`. It is looked at first, so that it is refused before the training data are prepared."""
    how: Any = {"objective": objective, "seed": seed, "cache_dir": cache_dir}
    said = _Said(emit)
    if ways[VALIDATION].streamed:
        rows: Any = _opened(spec, tokenizer, said, task=task, **how)
    else:
        of_its_own: Any = {"steps": 1, "ways": {"": Way(False)}}  # no number of steps follows from its rows
        rows = prepare(validation_data(spec), tokenizer, emit=said.of_validation, task=task, **of_its_own, **how).train
    alone = spec.model_copy(update={"validation": None})
    prepared = prepare(alone, tokenizer, service=service, emit=said.of_training, task=task, steps=steps, ways=ways, **how)
    said.tell()
    streamed = isinstance(rows, EvaluatedTokens)
    report = replace(prepared.report, validation_rows=0 if streamed else len(rows), validation_streamed=streamed)
    return replace(prepared, validation=rows, report=report, ways=ways)


def _opened(
    spec: TrainData, tokenizer: Any, said: _Said, *, objective: Objective, seed: int, cache_dir: str | Path | None, task: str
) -> EvaluatedTokens:
    own = validation_data(spec)
    located = located_source(own)
    settings: Any = {"objective": objective, "seed": seed, "key": row_settings(own, tokenizer, objective), "cache_dir": cache_dir}
    said.of_validation(Stage(task=task, name="its rows are made until the first evaluation"))
    making = _Making(said, task)
    opened = open_evaluation(own, located, tokenizer, on_progress=making, **settings)
    report = stream_report(own, located, tokenizer, opened.found)
    making.made = (opened.rows, report)
    for message in report.warnings():
        said.of_validation(Warned(task=task, message=message))
    return opened.rows


class _Said:
    """Events of two data sets of a task. Those of validation name it, and repeat no warning of the training data."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._of_training, self._held = set[str](), list[Warned]()

    def of_training(self, event: Event) -> None:
        if isinstance(event, Warned):
            self._of_training.add(event.message)
        self._emit(event)

    def of_validation(self, event: Event) -> None:
        """Warnings wait for `tell`."""
        if isinstance(event, Stage):
            event = replace(event, name=f"{_NAME}: {event.name}")
        elif isinstance(event, Warned):
            self._held.append(event)
            return
        self._emit(event)

    def at_once(self, event: Event) -> None:
        self._emit(event)

    def tell(self) -> None:
        """Emit the warnings so far that tell something new."""
        for event in self._held:
            if event.message not in self._of_training:
                self._of_training.add(event.message)
                self._emit(replace(event, message=f"{_NAME}: {event.message}"))
        self._held.clear()


class _Making:
    """Tells of the rows that are made at the first evaluation: how far they are, and which were left out. `made`: the rows and the report
    of their sample.
    """

    def __init__(self, said: _Said, task: str) -> None:
        self._said, self._task = said, task
        self._began = self._told = 0.0
        self.made: tuple[EvaluatedTokens, DataReport] | None = None

    def __call__(self, done: int, of: int) -> None:
        now = time.monotonic()
        self._began = self._began or now
        if done == of:
            self._warn()
        elif now - self._began > _TOLD_AFTER_S and now - self._told > _EVERY_S:
            self._told = now
            left_s = (now - self._began) * (of - done) / done if done else None
            self._said.at_once(Stage(task=self._task, name=ROWS_OF_EVALUATION, done=done, of=of, unit="parts", left_s=left_s))

    def _warn(self) -> None:
        assert self.made is not None
        rows, report = self.made
        for message in replace(report, **counts_of(rows.facts)).warnings():
            self._said.of_validation(Warned(task=self._task, message=message))
        self._said.tell()
