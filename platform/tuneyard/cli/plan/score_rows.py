"""The rows of score tasks in `tuneyard plan`: engines, their memory, their speed by batch, and the time and cost of the data set."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuneyard.api import CPU, BadInput, Endpoint, JobSpec, ScoreTask, Task, TuneyardError, check_task
from tuneyard.api.secrets import redact
from tuneyard.catalog import GeneratesNothing, ModelShape, rules_device
from tuneyard.cli.plan.length import tokenizer_of
from tuneyard.cli.plan.placements import (
    Placements,
    assumed_fields,
    kind_of,
    maker_of,
    name_of_model,
    not_made_yet,
    placed_on,
    shape_of_task,
    skus_of,
)
from tuneyard.cli.plan.score_errors import RowErrors
from tuneyard.planning import EnginePlan, engine_length, keeps_no_cache, resolve_engine_plan
from tuneyard.planning.engines import ScoreCount, ScorePlan, row_lengths, rows_at_most, uncounted
from tuneyard.runtime.references import source_of
from tuneyard.runtime.score.past import PastAnswers
from tuneyard.runtime.score.rankers import ranker_of
from tuneyard.storage import is_local


def score_rows(job: JobSpec, task: Task, base_dir: Path, placements: Placements) -> Iterator[dict[str, Any]]:
    """A row for each SKU; a single one where the task has no engine, or the model none that can be planned."""
    assert task.score is not None
    head = {"task": task.name, "kind": "score"}
    if task.endpoint is not None:
        yield {**head, "sku": CPU.sku, "fits": None, "reason": f"{task.name}: {_endpoint_words(task.endpoint)}"}
        return
    if ranker_of(job.spec, task, base_dir) is not None:
        reason = f"{task.name}: a ranker on {task.resources.instances} instances; its speed is not predicted"
        yield {**head, "fits": None, "reason": reason}
        return
    made_by = maker_of(job, task)
    if made_by is not None:
        yield {**head, "fits": None, "reason": not_made_yet(task, made_by)}
        return
    try:
        shape = shape_of_task(job, task, base_dir)
        longest = engine_length(task.score, shape)
    except BadInput as error:
        lacks = "no KV cache, and no engine that generates with it: " if isinstance(error, GeneratesNothing) else ""
        yield {**head, "fits": False, "reason": f"{task.name}: {lacks}{error.cause}; {error.next_step}"}
        return
    if keeps_no_cache(shape):
        yield {**head, "fits": None, "reason": f"{task.name}: {_without_cache(shape)}"}
        return
    known = _known_rows(job, task, base_dir, placements.past_scores.answers(job, task))
    errors = RowErrors(known.count, longest)
    if failure := errors.failure(task.score):
        yield {**head, "fits": False, **errors.fields(), "reason": f"{task.name}: {failure}"}
        return
    for sku in skus_of(job, task, placements):
        yield {**head, "sku": sku, "engines": task.resources.instances, **_on_sku(task, shape, sku, placements, known, errors)}


def _on_sku(task: Task, shape: ModelShape, sku: str, placements: Placements, known: _Known, errors: RowErrors) -> dict[str, Any]:
    """The engines on one SKU with their speed, or the reason why there are none."""
    assert task.score is not None
    broken = check_task(placed_on(task, sku), device=rules_device(sku), head_size=shape.kernel_head_size)
    if broken:
        return {"fits": False, "reason": f"{sku}: {broken[0].reason}"}
    try:
        kind = kind_of(sku)
        found = resolve_engine_plan(task.score, shape, kind, instances=task.resources.instances, gpus_per_node=placements.gpus_per_node)
    except BadInput as error:
        return {"fits": False, "reason": f"{sku}: {error.cause}; {error.next_step}"}
    lengths = row_lengths(task.score, known.count or uncounted(0), max_length=errors.longest, output_tokens=known.answers.tokens)
    plan = ScorePlan.of(
        task.score,
        shape,
        kind,
        found,
        lengths,
        instances=task.resources.instances,
        rows=errors.scored,
        calibration=placements.calibration,
        correction=placements.past_scores.correction(sku),
    )
    return {
        **_engine_fields(found),
        **_speed_fields(plan, errors.scored, placements.prices),
        **errors.fields(),
        **known.fields(task.score, plan),
        **assumed_fields(task, shape),
        **_degree_to_set(found, task.score.engine.tensor_parallel),
    }


@dataclass(frozen=True)
class _Known:
    """The rows of a task. `count` None: their number is unknown."""

    count: ScoreCount | None
    why: str = ""
    """Why the rows are not read before the task runs; empty: they are."""
    answers: PastAnswers = field(default_factory=PastAnswers)

    def fields(self, task: ScoreTask, plan: ScorePlan) -> dict[str, Any]:
        lengths = plan.lengths
        return {
            "prompt_tokens": lengths.prompt,
            "output_tokens": lengths.output,
            "evaluated_tokens": lengths.evaluated * lengths.evaluations,
            "length_from": self._words(task, plan),
        }

    def _words(self, task: ScoreTask, plan: ScorePlan) -> str:
        """The source of the lengths, for people."""
        lengths = plan.lengths
        if self.count is None:
            prompts = f"the time of the data set is unknown: {self.why}. Prompts are taken to have {_tokens(lengths.prompt)}"
        elif self.why:
            at_most = f"{self.count.rows:,} rows are taken, the most that data.limit and data.sample allow: {self.why}"
            prompts = f"{at_most}. Prompts are taken to have {_tokens(lengths.prompt)}"
        else:
            by = ", taken to have 4 characters a token" if self.count.assumed_tokens else ""
            counted = f"{self.count.rows:,} row{' was' if self.count.rows == 1 else 's were'} counted"
            prompts = f"{counted}: prompts of {_tokens(lengths.prompt)}{by}"
        if not lengths.output:
            return f"{prompts}; no answers, as metrics compare likelihoods"
        if self.answers.tokens is not None:
            return f"{prompts}; answers of {_tokens(lengths.output)}, as in the latest run of this task with this model and these settings"
        why = f": {self.answers.why}" if self.answers.why else ""
        if lengths.output < task.generation.max_tokens:
            return f"{prompts}; answers of {_tokens(lengths.output)}, up to engine.maxLength{why}"
        return f"{prompts}; answers of {_tokens(lengths.output)} (generation.maxTokens), the most they can have{why}"


def _known_rows(job: JobSpec, task: Task, base_dir: Path, answers: PastAnswers) -> _Known:
    """The rows of a task, where they can be read. `answers`: of an earlier run."""
    from tuneyard.data import count_score_rows

    assert task.score is not None
    named = rows_at_most(task.score)
    at_most = uncounted(named) if named is not None else None
    if task.score.data.lm_eval is not None:
        return _Known(None, "lm-evaluation-harness makes its requests when the task runs", answers)
    if task.score.data.from_task is not None:
        return _Known(at_most, f"task {task.score.data.from_task} makes its data", answers)
    data = source_of(task.score.data, base_dir, {})
    if not is_local(data.source or ""):
        return _Known(at_most, f"{redact(data.source or '')} would have to be read over the network", answers)
    print(f"counting {redact(data.source or '')}", file=sys.stderr)
    model = name_of_model(job, task)
    tokenizer = tokenizer_of(model, task.score.model.revision, base_dir) if model else None
    try:
        count = count_score_rows(task.score.model_copy(update={"data": data}), tokenizer=tokenizer)
        return _Known(count, answers=answers)
    except TuneyardError as error:
        return _Known(None, error.cause.splitlines()[0], answers)


def _tokens(number: float) -> str:
    return f"{number:,.0f} token{'' if round(number) == 1 else 's'}"


def _without_cache(shape: ModelShape) -> str:
    kind = shape.model_type
    return (
        f"a {kind} model keeps no KV cache: its layers carry a state of fixed size, so that neither memory nor speed of its engines are "
        "predicted; run it on a sample of the rows (data.sample) to see both"
    )


def _endpoint_words(endpoint: Endpoint) -> str:
    price = endpoint.price
    cost = f"; {price.input:g} and {price.output:g} per million tokens of prompts and answers" if price is not None else ""
    return f"{endpoint.model} at {endpoint.url} answers, so the task needs no GPU (sku cpu){cost}"


def _engine_fields(found: EnginePlan) -> dict[str, Any]:
    return {
        "sku": found.sku,
        "tensorParallel": found.tensor_parallel,
        "engines_per_node": found.engines_per_node,
        "precision": found.precision,
        "max_length": found.max_length,
        "memory_gb": {"weights": found.weights_gb, "kv_cache": found.kv_gb, "other": found.other_gb, "total": found.total_gb},
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "step_tokens": found.step_tokens,
        "kv_tokens": found.kv_tokens,
        "sequences": found.max_sequences,
        "fits": True,
    }


def _speed_fields(plan: ScorePlan, rows: int | None, prices: Mapping[str, float]) -> dict[str, Any]:
    """Speed by batch of one engine; of all engines, the rate at the batch of the task, the time of the rows, and their cost. `rows`: those
    that are scored; None: their number is unknown."""
    speeds = plan.speeds()
    engine, gpu = plan.engine, plan.engine.gpu
    last = speeds[-1]
    rented = 1 if gpu.is_cpu else plan.engines * engine.tensor_parallel
    price = prices.get(gpu.sku)
    per_hour = price * rented if price is not None else None
    time = plan.time(rows) if rows is not None else None
    per_s, rows_per_s = plan.busy * last.output_tokens_per_s, plan.busy * last.rows_per_s
    return {
        "batch": plan.batch,
        "corrected_by_runs": plan.correction.runs,
        "tokens_per_s": per_s,
        "rows_per_s": rows_per_s,
        "ttft_s": last.ttft_s,
        "tpot_s": last.tpot_s,
        "speed_by_batch": [
            {
                "batch": each.batch,
                "output_tokens_per_s": each.output_tokens_per_s,
                "rows_per_s": each.rows_per_s,
                "ttft_s": each.ttft_s,
                "tpot_s": each.tpot_s,
            }
            for each in speeds
        ],
        "rented": rented,
        "duration_s": time.total_s if time is not None else None,
        "duration_terms_s": {
            "start": time.start_s,
            "load": time.load_s,
            **{name.removesuffix("_s"): value for name, value in asdict(time.time).items()},
        }
        if time is not None
        else None,
        "cost": time.total_s / 3600 * per_hour if time is not None and per_hour is not None else None,
        "cost_per_hour": per_hour,
        "cost_per_million_tokens": 1e6 / per_s / 3600 * per_hour if per_s and per_hour is not None else None,
        "cost_per_1000_rows": 1000 / rows_per_s / 3600 * per_hour if per_hour is not None else None,
    }


def _degree_to_set(found: EnginePlan, given: int) -> dict[str, str]:
    """The advice to set a larger degree, where the degree of the file is too small for the model. The default of a file is 1."""
    if found.tensor_parallel == given:
        return {}
    needed = found.tensor_parallel
    return {"reason": f"{found.sku}: an engine needs {needed} GPUs for weights and cache; set engine.tensorParallel to {needed}"}
