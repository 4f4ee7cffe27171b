"""The rows of `tuneyard plan`: one per task and placement, as DESIGN 16 has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuneyard.api import CPU, BadInput, JobSpec, RankTask, Task, WorkerRange, check_task
from tuneyard.api.worker_counts import worker_counts
from tuneyard.catalog import ModelShape, rules_device
from tuneyard.catalog.cpu import usable_cores
from tuneyard.cli.plan.data import Feeding
from tuneyard.cli.plan.length import Known, known_length
from tuneyard.cli.plan.mixture import mixture_fields
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
from tuneyard.cli.plan.plan_fields import plan_fields
from tuneyard.cli.plan.program import program_row
from tuneyard.cli.plan.ranker import known_steps
from tuneyard.cli.plan.score_rows import score_rows
from tuneyard.cli.plan.sweep import sweep_rows
from tuneyard.planning import (
    Plan,
    RankerShape,
    Site,
    Speed,
    best,
    paced,
    plan_of_ranker,
    plans,
    resolve,
    room_gb,
)

_AUTO_WORKERS = (1, 2, 4, 8)


def rows_of(job: JobSpec, base_dir: Path, placements: Placements) -> Iterator[dict[str, Any]]:
    """The rows of all tasks; for a sweep, those of train tasks."""
    for task in job.spec.tasks:
        if task.train is not None:
            yield from _train_rows(job, task, base_dir, placements)
        elif placements.sweep:
            continue
        elif task.score is not None:
            yield from score_rows(job, task, base_dir, placements)
        elif task.rank is not None:
            for sku in skus_of(job, task, placements):
                for count in [placements.workers] if placements.workers else _worker_counts(task, sku):
                    yield _ranker_row(task, task.rank, sku, count, placements, known_steps(task.rank, base_dir))


def _train_rows(job: JobSpec, task: Task, base_dir: Path, placements: Placements) -> Iterator[dict[str, Any]]:
    assert task.train is not None
    if task.train.program is not None:
        for sku in skus_of(job, task, placements):
            for count in [placements.workers] if placements.workers else _worker_counts(task, sku):
                yield program_row(job, task, sku, count, placements)
        return
    made_by = maker_of(job, task)
    if made_by is not None:
        yield {"task": task.name, "kind": "train", "fits": None, "reason": not_made_yet(task, made_by)}
        return
    shape = shape_of_task(job, task, base_dir)
    known = known_length(task, name_of_model(job, task), base_dir, placements.probes.get(task.name))
    for sku in skus_of(job, task, placements):
        for count in [placements.workers] if placements.workers else _worker_counts(task, sku):
            yield from _placed(task, shape, sku, count, placements, known)


def _ranker_row(task: Task, rank: RankTask, sku: str, workers: int, placements: Placements, steps: int | None) -> dict[str, Any]:
    """The layout of a ranker with its memory, speed, duration and cost. `steps` None: the number of rows is unknown."""
    head = {"task": task.name, "kind": "rank", "sku": sku, "workers": workers}
    try:
        kind = kind_of(sku)
        found = plan_of_ranker(
            rank,
            kind,
            workers,
            libraries_gb=placements.libraries_gb,
            gpus_per_node=placements.gpus_per_node,
            network_gb_s=placements.network_gb_s,
            calibration=placements.calibration,
        )
    except BadInput as error:
        return {**head, "fits": False, "reason": f"{sku}: {error.cause}; {error.next_step}"}
    shape, total_gb = RankerShape.of(rank), found.memory.total_gb
    room = room_gb(kind, workers)
    fits = total_gb <= room
    layout = f"{workers} x {sku}, zero {found.zero}, {found.precision}, micro-batch {found.micro_batch} x {found.grad_accum}"
    tables = f"tables of {shape.table_elements / 1e6:,.1f} M weights over {workers}, {shape.parameters / 1e6:,.2f} M dense parameters"
    lack = "" if fits else f"; {total_gb:,.1f} GB do not fit into {room:,.1f} GB: take {_less_of_ranker(shape, found, is_cpu=kind.is_cpu)}"
    priced = _ranker_price_fields(found, steps, placements.prices)
    return {**head, **plan_fields(found), **priced, "fits": fits, "reason": f"{task.name}: {layout}; {tables}{lack}"}


def _less_of_ranker(shape: RankerShape, found: Plan, *, is_cpu: bool) -> str:
    """The change that saves memory, by the largest term of the memory."""
    memory = found.memory
    if memory.activations_gb > max(memory.weights_gb, memory.optimizer_gb):
        return "a smaller batch.micro, model.width or model.outputs, or strategy.recompute: true"
    if shape.parameters > shape.table_elements:
        return "a smaller model.width or model.outputs, or fewer layers"
    return "fewer table rows, or tables.rows: fp16" if is_cpu else "more workers, tables.rows: fp16, or tables.offload: cpu"


def _ranker_price_fields(found: Plan, steps: int | None, prices: Mapping[str, float]) -> dict[str, Any]:
    """Speed, duration and cost of a ranker, with rows in place of tokens."""
    speed, price = found.speed, prices.get(found.sku)
    assert speed is not None
    per_hour = price * (1 if found.sku == CPU.sku else found.workers) if price is not None else None
    duration_s = speed.step_s * steps if steps is not None else None
    return {
        "tokens_per_s": None,
        "rows_per_s": speed.tokens_per_s,
        "steps": {"likely": steps, "low": steps, "high": steps} if steps is not None else None,
        "duration_s": duration_s,
        "cost": duration_s / 3600 * per_hour if duration_s is not None and per_hour is not None else None,
        "cost_per_hour": per_hour,
        "cost_per_million_rows": 1e6 / speed.tokens_per_s / 3600 * per_hour if per_hour is not None else None,
    }


def _placed(task: Task, shape: ModelShape, sku: str, workers: int, placements: Placements, counted: Known) -> Iterator[dict[str, Any]]:
    """The rows of one placement: its plans, or the reason why it has none."""
    assert task.train is not None
    head = {"task": task.name, "kind": "train", "sku": sku, "workers": workers}
    broken = check_task(placed_on(task, sku, workers), device=rules_device(sku), model_type=shape.model_type)
    if broken:
        yield {**head, "fits": False, "reason": f"{sku}: {broken[0].reason}"}
        return
    try:
        kind = kind_of(sku)
        site: Site = {"gpus_per_node": placements.gpus_per_node, "network_gb_s": placements.network_gb_s}
        site["calibration"] = placements.calibration
        site["libraries_gb"] = placements.libraries_gb
        site["liger_available"] = not kind.is_cpu  # the GPU image and the lock file have it
        if placements.sweep:
            yield from sweep_rows(placements.sweep, task, shape, kind, workers, site)
            return
        ranked = plans(task.train, shape, kind, workers, **site) or [resolve(task.train, shape, kind, workers, **site)]
    except BadInput as error:
        yield {**head, "fits": False, "reason": f"{sku}: {error.cause}; {error.next_step}"}
        return
    for found in ranked if placements.every else [best(ranked)]:
        train = task.train.with_rows(found.global_batch)
        known = counted.over(train)
        tokens = known.length.padded(found.micro_batch, task.train.data.max_length) if known.length else task.train.data.max_length
        speed = paced(found, task.train, shape, kind, tokens, **site) if found.fits else found.speed
        decided = {**plan_fields(found), "global_batch_from": "placement" if task.train.batch.is_open else "file"}
        decided["epochs"] = (train.epochs or 1.0) if train.steps is None else None
        fields = {**decided, **_length_fields(known, tokens, train.batch.rows), **_price_fields(found, speed, known, placements.prices)}
        feeding = Feeding(rates=placements.data_rates, core_price=placements.core_price, gpus_per_node=placements.gpus_per_node)
        yield {**head, **fields, **feeding.fields(train, found, speed, known), **assumed_fields(task, shape)}


def _length_fields(known: Known, tokens: int, batch: int) -> dict[str, Any]:
    steps = known.length.steps if known.length is not None else None
    return {
        "steps": {"likely": round(steps.likely), "low": round(steps.low), "high": round(steps.high)} if steps is not None else None,
        "tokens_per_row": tokens if known.length is not None else None,
        "length_from": known.how or None,
        "length_unknown": known.why or None,
        **mixture_fields(known.parts(batch)),
    }


def _price_fields(found: Plan, speed: Speed | None, known: Known, prices: Mapping[str, float]) -> dict[str, Any]:
    """Seconds of the whole task, where its steps are known, and their cost, where the price is known. `speed`: for rows of real length."""
    steps = known.length.steps if known.length is not None else None
    price = prices.get(found.sku)
    rented = 1 if found.sku == "cpu" else found.workers
    per_hour = price * rented if price is not None else None
    counts = (steps.likely, steps.low, steps.high) if steps is not None else ()
    taken = [speed.compile_s + speed.step_s * each for each in counts] if speed else []
    return {
        "rented": rented,
        "duration_s": taken[0] if taken else None,
        "duration_range_s": taken[1:] or None,
        "cost": taken[0] / 3600 * per_hour if taken and per_hour is not None else None,
        "cost_per_hour": per_hour,
        "cost_per_million_tokens": 1e6 / found.speed.tokens_per_s / 3600 * per_hour if found.speed and per_hour is not None else None,
    }


def _worker_counts(task: Task, sku: str) -> list[int]:
    """The numbers of workers to plan. For an open number on `cpu`: numbers for which this machine has cores."""
    asked = task.resources.workers
    counts = worker_counts(task, usual=usable_cores() if sku == CPU.sku else max(_AUTO_WORKERS))
    if isinstance(asked, WorkerRange):
        return sorted({counts[-1], counts[0]} if counts else {asked.min, asked.max})
    return [count for count in counts[::-1] if count in _AUTO_WORKERS or asked != "auto"]
