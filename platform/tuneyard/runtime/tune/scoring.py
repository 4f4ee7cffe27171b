"""A score task in a search: settings of its engines, what the roofline of engines expects of them, and trials on a sample of its rows.

Each trial starts engines anew and answers the same rows. Its speed is that of its answers, without the start of the engines, which a whole
data set pays once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tuneyard.admission import check_instances
from tuneyard.api import BadInput, ScoreTask, Task, check_task
from tuneyard.api.tuned_settings import ENGINE_BATCH, INSTANCES, apply_settings
from tuneyard.catalog import gpu
from tuneyard.metrics import METRICS, needing
from tuneyard.planning import engine_length
from tuneyard.planning.engines import RowLengths, row_lengths
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.references import resolved
from tuneyard.runtime.score.past import past_scores
from tuneyard.runtime.score.predicted import promise_of, speed_of, time_of, tokenizer_of
from tuneyard.runtime.score.run import EnginePlaces, needs_vllm, score_request
from tuneyard.runtime.task_context import TaskContext
from tuneyard.runtime.tune.trials import Conditions, Outcome, leaving_nothing, observe
from tuneyard.runtime.tune.tuned import PLANNED
from tuneyard.scoring.request import ScoreRequest
from tuneyard.tracking import Event, TaskEvent, Warned
from tuneyard.tuning import Expectation, PlannedExpectation, Point, Space, Trial, default_settings_of_engines

_PARTS_OF_ENGINE = 4
"""Parts of a trial for each engine, so that all engines have rows to its end."""
_ANY_LENGTH = 1 << 20
_KEPT = ("rows", "errors", "cut_off", "output_tokens_per_s", "wall_s")
"""What history keeps of a trial's result: figures, and none of its rows."""


class TunedScoring:
    """See `Tuned`."""

    def __init__(self, search: Task, tuned: Task, context: TaskContext) -> None:
        """Raises BadInput if the task has no engines or no rows, cannot run here, or if a listed setting cannot matter."""
        from tuneyard.data import count_score_rows

        assert search.tune is not None
        self._search, self._context = search, context
        self._device = gpu(context.machine.sku)
        task, self._start = resolved(tuned, context.base_dir, context.results)
        self._task = _on_sample(task, search.tune.rows_per_trial)
        own = score_request(self._task, self._start, context)
        if not needs_vllm(own):
            raise BadInput(f"task {tuned.name} has no engines of a language model", "name a task whose model is a language model")
        self._count = count_score_rows(own.task, tokenizer=tokenizer_of(own.model_uri))
        past = past_scores(self._without_history)
        self._answer_tokens = past.answers(context.job, tuned).tokens
        self._promise = promise_of(own, past, self._answer_tokens)
        self.guess = PLANNED
        self.known = self._promise.correction.runs if self._promise is not None else 0
        # Engines of tasks without answers only measure likelihoods of texts.
        self.unit = "tokens" if row_lengths(own.task, self._count, max_length=_ANY_LENGTH).output else "rows"
        self._check(self._task)
        self._heard: set[str] = set()
        self.space = self._space({path: tuple(values) for path, values in search.tune.space.items()})

    def why_not(self, point: Point) -> str:
        try:
            self._check(self._with(point))
        except BadInput as error:
            return error.cause
        return ""

    def devices(self, point: Point) -> int:
        task = self._with(point)
        assert task.score is not None
        return task.resources.instances * task.score.engine.tensor_parallel

    def plan(self) -> dict[str, Any]:
        score = self._task.score
        assert score is not None
        engine = score.engine
        return {"instances": self._task.resources.instances, "tensor_parallel": engine.tensor_parallel, "batch": engine.batch}

    def row(self, point: Point) -> None:
        """None: history keeps the times of engines, and no rows of settings."""

    def predicted(self, point: Point) -> float | None:
        if self._promise is None:
            return None
        request = self._request(point)
        lengths = self._lengths(request.task)
        try:
            time = time_of(request, self._promise.shape, lengths, self._rows, self._promise.correction)
        except BadInput:
            return None
        return time.output_tokens_per_s if self.unit == "tokens" else self._rows / time.generation_s

    def expectation(self, points: Sequence[Point], share: Callable[[Point], float]) -> Expectation:
        def worth(point: Point) -> float | None:
            speed = self.predicted(point)
            return speed * share(point) if speed is not None else None

        return PlannedExpectation(points, worth)

    def measure(self, _gang: int, point: Mapping[str, Any], number: int, limit_s: float, should_stop: ShouldStop) -> Trial:
        name = self._search.name
        request = replace(
            self._request(point),
            name=f"{name}-{number}",
            output=f"{self._context.output.task_uri(name)}/trials/{number}",
            scratch=str(self._context.scratch / f"{name}-{number}"),
            resume=False,
        )
        machines = self._context.machines
        plan = {"sku": request.sku, "workers": self.devices(point)}
        return observe(
            number,
            point,
            lambda stop: self._scored(request, number, stop),
            TaskEvent(task=f"{name}/{number}", state="started", kind="score", plan=plan),
            Conditions(
                emit=self._context.emit,
                limit_s=limit_s,
                should_stop=should_stop,
                transient=machines.transient,
                secrets=self._context.secrets,
            ),
        )

    @property
    def _rows(self) -> int:
        """Rows of a trial."""
        return self._count.rows

    def _scored(self, request: ScoreRequest, number: int, should_stop: ShouldStop) -> Outcome:
        """Score the sample once, with engines of its own, and delete the answers."""
        from tuneyard.runtime.score.engine import EngineLogs
        from tuneyard.runtime.score.pool import score

        machines = self._context.machines

        def stop() -> bool:
            machines.check_living()
            return should_stop()

        places = EnginePlaces(request.name, self._context, of=self._search.name, prefix=f"trial-{number}-engine")
        with leaving_nothing(request.output, request.scratch):
            found = score(
                request,
                emit=self._pass_on,
                should_stop=stop,
                logs=EngineLogs(machines.logs, places),
                server=machines.warm.engines(),
            )
        result = asdict(found)
        seconds = result["details"]["generation_s"]
        if result["status"] == "stopped" or not seconds:
            return Outcome(rate=None)
        speed = speed_of(request, result, self._promise) if self._promise is not None else None
        kept = {name: result[name] for name in _KEPT} | {"details": {"speed": speed} if speed is not None else {}}
        scored = result["rows"] - result["errors"]
        return Outcome(rate=(result["output_tokens"] if self.unit == "tokens" else scored) / seconds or None, result=kept)

    def _pass_on(self, event: Event) -> None:
        """Warnings of a trial's engines are the search's, each once. Its progress is of no interest."""
        if isinstance(event, Warned) and event.message not in self._heard:
            self._heard.add(event.message)
            self._context.emit(replace(event, task=self._search.name))

    def _with(self, point: Point) -> Task:
        return apply_settings(self._task, point)

    def _request(self, point: Point) -> ScoreRequest:
        task = self._with(point)
        assert task.score is not None
        parts = _PARTS_OF_ENGINE * task.resources.instances
        score = task.score.model_copy(update={"rows_per_part": max(1, -(-self._rows // parts))})
        return score_request(task.model_copy(update={"score": score}), self._start, self._context)

    def _lengths(self, task: ScoreTask) -> RowLengths:
        assert self._promise is not None
        longest = engine_length(task, self._promise.shape)
        return row_lengths(task, self._count, max_length=longest, output_tokens=self._answer_tokens)

    def _check(self, task: Task) -> None:
        """Raises BadInput for settings with which engines cannot run here."""
        machine = self._context.machine
        here = task.model_copy(update={"resources": task.resources.model_copy(update={"sku": [self._device.sku]})})
        if broken := check_task(here, device=self._device.device):
            raise BadInput(broken[0].reason, "take one of the combinations that work")
        check_instances(task, machine)
        if self._promise is not None:
            assert task.score is not None
            request = score_request(task, self._start, self._context)
            time_of(request, self._promise.shape, self._lengths(task.score), self._rows, self._promise.correction)

    def _space(self, listed: Mapping[str, tuple[Any, ...]]) -> Space:
        score = self._task.score
        assert score is not None
        held = self._rows * score.generation.samples  # answers of all engines at once
        for batch in listed.get(ENGINE_BATCH, ()):
            if isinstance(batch, int) and batch > held:
                raise BadInput(
                    f"engine.batch {batch} cannot be told from a smaller one in trials of {self._rows} rows of task {self._task.name}",
                    f"set rowsPerTrial to {batch} or more, or leave {batch} out of the space",
                )
        own = self._facts(self._task)
        devices = self.devices({})
        settings = dict(listed) or default_settings_of_engines(
            self._task, devices=devices, is_cpu=self._device.is_cpu, most_in_flight=held // 2
        )

        def legal(point: Point) -> bool:
            """Whether a point can work, and differs from the file: the file must not be compared with itself."""
            if self.why_not(point):
                return False
            task = self._with(point)
            # A usual space compares layouts of the same devices.
            return self._facts(task) != own and (bool(listed) or self.devices(point) == devices or INSTANCES not in settings)

        return Space(settings, legal)

    def _facts(self, task: Task) -> str:
        """What a search can change of a score task, for comparisons."""
        assert task.score is not None
        engine = task.score.engine.model_dump(mode="json")
        engine["prefix_cache"] = engine["prefix_cache"] in (True, "auto")  # vLLM keeps caches of prompts, unless it is told not to
        return json.dumps([engine, task.resources.instances], sort_keys=True)

    def _without_history(self, why: str) -> None:
        self._context.emit(Warned(task=self._search.name, message=f"searching without history: {why}"))


def _on_sample(task: Task, rows: int) -> Task:
    """The task on a random sample of its rows, without metrics that need code or models of their own."""
    assert task.score is not None
    score = task.score
    given = score.data.sample
    fewer = given is not None and 1 <= given <= rows
    data = score.data if fewer else score.data.model_copy(update={"sample": float(rows)})
    similar = needing("similarity", [METRICS[name] for name in score.metrics])
    metrics = [name for name in score.metrics if name not in similar]
    changes = {"data": data, "metrics": metrics, "embedding": None, "own_metrics": [], "metrics_dir": None}
    return task.model_copy(update={"score": score.model_copy(update=changes)})
