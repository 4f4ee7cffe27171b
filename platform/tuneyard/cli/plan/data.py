"""Data workers in `tuneyard plan`: the workers that a task on streamed data needs, the time that its ranks wait for rows, and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuneyard.api import CPU, TrainTask
from tuneyard.catalog.cpu import usable_cores
from tuneyard.cli.output import duration_text, money_text, rounded_text
from tuneyard.cli.plan.length import Known
from tuneyard.planning import PACKED, SMALL_STALL, DataRate, Feed, Machines, Plan, Speed, Staff, feed_of, usual_rate


@dataclass(frozen=True)
class Feeding:
    """Facts about data workers for a plan. `rates`: of past runs, by format. `core_price`: price of a core for an hour."""

    rates: Mapping[str, DataRate]
    core_price: float | None
    gpus_per_node: int

    def fields(self, task: TrainTask, found: Plan, speed: Speed | None, known: Known) -> dict[str, Any]:
        """The field `data` of a row of `tuneyard plan`. None: the data are prepared before the first step, or the plan does not fit."""
        if known.streamed == "no" or speed is None or not found.fits:
            return {"data": None}
        feed = feed_of(task.data, _taken(task, speed, known), self._rate(task, known), self._machines(found))
        first_epoch_s = _first_epoch_steps(task, known) * speed.step_s if known.length else None
        staff = {name: self._priced(getattr(feed, name), feed, first_epoch_s) for name in ("alone", "asked", "needed")}
        return {
            "data": {
                "streamed": known.streamed,
                "workers_are": "of each machine" if feed.where == "beside" else "of a service",
                "tokens_per_s": feed.tokens_per_s,
                "worker_tokens_per_s": feed.rate.tokens_per_s,
                "rate_from": feed.rate.how,
                **staff,
                "wait_s": feed.wait_s(first_epoch_s) if first_epoch_s is not None else None,
                "first_epoch_s": first_epoch_s,
                "advice": feed.advice,
            }
        }

    def _rate(self, task: TrainTask, known: Known) -> DataRate:
        """The rate of the slowest data set. An unknown data set counts as chats or as text, by the objective."""
        kinds = known.kinds or ((task.data.format if task.data.format != "auto" else "text" if task.objective == "clm" else "chat", ""),)
        rates = [self.rates.get(format) or usual_rate(format, files) for format, files in kinds]
        return min(rates, key=lambda rate: rate.tokens_per_s)

    def _machines(self, found: Plan) -> Machines:
        if found.sku == CPU.sku:
            return Machines(count=1, ranks_of_each=found.workers, spare_cores=max(0, usable_cores() - found.workers))
        count = -(-found.workers // self.gpus_per_node)
        return Machines(count=count, ranks_of_each=-(-found.workers // count))

    def _priced(self, staff: Staff, feed: Feed, first_epoch_s: float | None) -> dict[str, Any]:
        """The staff with its price. Cores beside the ranks are paid with the machines of the ranks. Cores of a service are paid while the
        task runs."""
        free = feed.where == "beside" or not staff.workers
        per_hour = 0.0 if free else staff.cores * self.core_price if self.core_price is not None else None
        stalled_s = first_epoch_s / (1 - staff.stall) if first_epoch_s is not None else None
        cost = per_hour * stalled_s / 3600 if per_hour is not None and stalled_s is not None else None
        return {**asdict(staff), "cost_per_hour": per_hour, "cost_of_first_epoch": cost}


def _taken(task: TrainTask, speed: Speed, known: Known) -> float:
    """Tokens per second of rows without their padding."""
    lengths = known.length.sample_tokens if known.length else ()
    full = task.data.max_length * ((1 + PACKED) / 2 if task.data.pack else 1.0)
    tokens_of_row = sum(lengths) / len(lengths) if lengths else full
    return task.batch.rows * tokens_of_row / speed.step_s


def _first_epoch_steps(task: TrainTask, known: Known) -> float:
    assert known.length is not None
    steps, rows = known.length.steps.likely, known.length.rows
    return min(steps, rows.likely / task.batch.rows) if rows is not None else steps


def data_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Up to four sentences for people, about the plan that takes the most tokens a second. Empty where data are prepared."""
    streamed = [row for row in rows if row["data"] is not None]
    if not streamed:
        return []
    row = max(streamed, key=lambda each: float(each["data"]["tokens_per_s"]))
    data = row["data"]
    needed, waits = data["needed"], data["asked"]["stall"] >= SMALL_STALL
    if data["streamed"] == "maybe" and not waits:
        return []
    when = "data are streamed" if data["streamed"] == "yes" else "if the data take too long to prepare, they are streamed"
    taken = f"{row['workers']} x {row['sku']} take {rounded_text(data['tokens_per_s'])} tokens/s"
    made = f"a data worker makes {rounded_text(data['worker_tokens_per_s'])}, {data['rate_from']}"
    lines = [f"{when}: {taken}, and {made}", _needed_text(needed, data), _wait_text(data)]
    return [*lines, "no price of a core is known: give --core-price to see the cost"] if needed["cost_per_hour"] is None else lines


def _needed_text(needed: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    workers = f"{needed['workers']} data worker{'' if needed['workers'] == 1 else 's'} {data['workers_are']}"
    cost = f", for {money_text(needed['cost_per_hour'])} an hour" if needed["cost_per_hour"] else ""
    return f"{workers} suffice: {needed['cores']:g} cores and {rounded_text(needed['memory_gb'])} GB in all{cost}"


def _wait_text(data: Mapping[str, Any]) -> str:
    asked = data["asked"]
    if asked["stall"] < SMALL_STALL:
        return f"with the {asked['workers']} of the task, steps do not wait for rows"
    whole = f", {duration_text(data['wait_s'])} in all" if data["wait_s"] is not None else ""
    with_ = f"with {asked['workers']}" if asked["workers"] else "without any"
    alone = f" ({data['alone']['stall']:.0%} without any)" if asked["workers"] else ""
    return f"{with_}, steps of the first epoch wait for rows {asked['stall']:.0%} of the time{whole}{alone}: {data['advice']}"
