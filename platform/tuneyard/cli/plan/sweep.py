"""`tuneyard plan --sweep`: what some settings of a train task are worth, together and alone, as a table with bars of MFU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuneyard.api import BadInput, Task, TrainTask, check_task
from tuneyard.catalog import Gpu, ModelShape, rules_device
from tuneyard.cli.output import rounded_text, table_lines
from tuneyard.cli.plan.layout import layout_text
from tuneyard.cli.plan.plan_fields import plan_fields
from tuneyard.planning import Site
from tuneyard.planning.sweep import SWEPT, sweep

_BAR = 30


def swept_names(given: str) -> tuple[str, ...]:
    """The settings that `--sweep offload,flash` names. Raises BadInput for an unknown one, and for none."""
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    unknown = [name for name in names if name not in SWEPT]
    if unknown or not names:
        what = f"--sweep {unknown[0]} is no setting to sweep" if unknown else "--sweep names no setting"
        raise BadInput(what, f"name some of {', '.join(SWEPT)}, separated by commas")
    return names


def sweep_rows(names: Sequence[str], task: Task, shape: ModelShape, kind: Gpu, workers: int, site: Site) -> Iterator[dict[str, Any]]:
    """A row for each combination, with the fields of a plan where one fits. `speedup`: tokens/s beside the first combination that fits."""
    assert task.train is not None

    def check(asked: TrainTask) -> None:
        if broken := check_task(task.model_copy(update={"train": asked}), device=rules_device(kind.sku), model_type=shape.model_type):
            raise BadInput(broken[0].reason)

    first: float | None = None
    for case in sweep(names, task.train, shape, kind, workers, check, **site):
        head = {"task": task.name, "kind": "train", "sku": kind.sku, "workers": workers, "sweep": dict(case.settings)}
        if case.plan is None or case.plan.speed is None:
            yield {**head, "fits": False, "reason": case.why}
            continue
        first = first or case.plan.speed.tokens_per_s
        yield {**head, **plan_fields(case.plan), "speedup": case.plan.speed.tokens_per_s / first, "fits": True}


def sweep_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of one placement. Bars of MFU have the scale of the largest."""
    most = max((row["mfu"] for row in rows if row["fits"]), default=0.0)
    names = list(rows[0]["sweep"])
    cells = [{**{name: _word(row["sweep"][name]) for name in names}, **_cells(row, most)} for row in rows]
    columns = [*names, "micro_batch", "gb_per_rank", "tokens_per_s", "times", "layout", "mfu"]
    head = f"{rows[0]['task']} on {rows[0]['workers']} x {rows[0]['sku']}: each at its largest micro-batch, without accumulation"
    whys: dict[str, list[str]] = {}
    for row in rows:
        if not row["fits"]:
            whys.setdefault(row["reason"], []).append(_settings(row))
    reasons = [f"{'; '.join(settings)}: {why}" for why, settings in whys.items()]
    return [head, "", *table_lines(columns, cells, ("micro_batch", "gb_per_rank", "tokens_per_s", "times")), *reasons]


def _cells(row: Mapping[str, Any], most: float) -> dict[str, Any]:
    if not row["fits"]:
        return {"mfu": "does not fit"}
    return {
        "micro_batch": row["micro_batch"],
        "gb_per_rank": rounded_text(row["memory_gb"]["total"]),
        "tokens_per_s": rounded_text(row["tokens_per_s"]),
        "times": f"{row['speedup']:.2f}",
        "layout": layout_text(row),
        "mfu": f"{row['mfu']:>4.0%} {'█' * max(1, round(_BAR * row['mfu'] / most))}",
    }


def _settings(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_word(value)}" for name, value in row["sweep"].items())


def _word(value: Any) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
