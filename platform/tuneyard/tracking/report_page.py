"""A Report as one HTML page, which contains its styles, charts and data. `report_parts` has a file per part of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from tuneyard.tracking.charts import Chart
from tuneyard.tracking.formats import duration
from tuneyard.tracking.judged_rows import slice_rows, window_charts
from tuneyard.tracking.paired_rows import paired_views
from tuneyard.tracking.remarks import remarks_of
from tuneyard.tracking.report import Report, json_safe
from tuneyard.tracking.report_parts.artifacts import artifacts_of
from tuneyard.tracking.report_parts.figures import comparisons_of, figures_of
from tuneyard.tracking.report_parts.samples import samples_of
from tuneyard.tracking.report_parts.search import effects_of, trials_of, tune_charts, tune_tiles
from tuneyard.tracking.report_parts.tiles import Tile, other_tiles, score_tiles, train_tiles
from tuneyard.tracking.report_parts.train_charts import train_charts

Task = Mapping[str, Any]


@dataclass(frozen=True)
class _Kind:
    """Key figures and charts of a kind of task."""

    tiles: Callable[[Task], list[Tile | None]] = other_tiles
    charts: Callable[[Task], list[Chart]] = lambda _task: []


_KINDS = {
    "train": _Kind(train_tiles, train_charts),
    "rank": _Kind(train_tiles, train_charts),
    "score": _Kind(score_tiles, window_charts),
    "tune": _Kind(tune_tiles, tune_charts),
}


def render(report: Report) -> str:
    """The page as HTML. All texts of people are escaped."""
    tasks = {name: json_safe(task) for name, task in report.tasks.items()}
    return _template().render(
        report=report,
        wall=duration(report.wall_s) if report.wall_s else "",
        spec=yaml.safe_dump(json_safe(report.spec), sort_keys=False, allow_unicode=True) if report.spec else "",
        tasks=[task_view(name, task, report.output) for name, task in tasks.items()],
        comparisons=comparisons_of(report.spec, tasks, report.comparisons),
        paired=paired_views(json_safe(report.comparisons)),
    )


@cache
def _template() -> Template:
    environment = Environment(loader=PackageLoader("tuneyard.tracking"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("report.html")


def task_view(name: str, task: Task, output: str = "") -> dict[str, Any]:
    """Figures, drawings and tables of a task of report.json, for the pages that show it. `output`: URI of the folder of the report."""
    kind = _KINDS.get(str(task.get("kind")), _Kind())
    return {
        "name": name,
        "kind": task.get("kind", ""),
        "status": task.get("status", ""),
        "failure": task.get("failure", ""),
        "message": task.get("message", ""),
        "tiles": [tile for tile in kind.tiles(task) if tile],
        "charts": [chart for chart in kind.charts(task) if chart.drawing],
        "remarks": remarks_of(task),
        "trials": trials_of(task),
        "effects": effects_of(task),
        "metrics": figures_of(task),
        "slices": slice_rows(task),
        "samples": samples_of(task),
        "warnings": task.get("warnings", []),
        "artifacts": artifacts_of(task, output, own_endpoint=_own_endpoint()),
        "progress": _progress(task),
    }


def _own_endpoint() -> bool:
    """Whether `s3://` leads to another service than Amazon's: MinIO, Ceph."""
    return any(os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"))


def _progress(task: Task) -> float | None:
    """Share done of a running task, in percent."""
    progress = task.get("progress") or {}
    done, of = next((progress[noun] for noun in ("step", "rows", "trial") if noun in progress), 0), progress.get("of", 0)
    return round(100 * done / of, 1) if task.get("status") == "running" and of else None
