"""The Grafana dashboard of a hub, as a few rows of panels: jobs, GPUs, members, the operator itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _PER_ROW = 8, 8, 3


@dataclass(frozen=True)
class Panel:
    """One graph: legend -> PromQL."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    stacked: bool = False


_ALL = "max by (cluster, sku) (tuneyard_gpus)"
_FREE = "max by (cluster, sku) (tuneyard_free_gpus)"

ROWS: dict[str, tuple[Panel, ...]] = {
    "Jobs": (
        # Followers count nothing or what they last saw: the largest is the leader's.
        Panel("Jobs by phase", {"{{phase}}": "max by (phase) (tuneyard_jobs)"}, stacked=True),
        Panel("Oldest job in the queue", {"age": "max(tuneyard_queue_age_seconds)"}, unit="s"),
        Panel("Attempts ended per hour", {"{{outcome}}": "sum by (outcome) (increase(tuneyard_attempts_total[1h]))"}, stacked=True),
        Panel("Failures per hour", {"{{kind}}": "sum by (kind) (increase(tuneyard_attempt_failures_total[1h]))"}, stacked=True),
        Panel(
            "Waiting for data",
            {"{{namespace}}/{{job}}": "topk(10, max by (namespace, job) (tuneyard_data_wait_ratio))"},
            unit="percentunit",
        ),
    ),
    "GPUs": (
        Panel("GPUs in use", {"{{cluster}} {{sku}}": f"{_ALL} - {_FREE}"}),
        Panel("Free GPUs", {"{{cluster}} {{sku}}": _FREE}, stacked=True),
        Panel(
            "Share in use",
            {"{{sku}}": f"1 - sum by (sku) ({_FREE}) / sum by (sku) ({_ALL})"},
            unit="percentunit",
        ),
    ),
    "Members": (
        Panel("Reachable", {"{{cluster}}": "max by (cluster) (tuneyard_member_up)"}),
        Panel("Age of heartbeat", {"{{cluster}}": "min by (cluster) (tuneyard_member_heartbeat_age_seconds)"}, unit="s"),
        Panel(
            "Refused or failed requests",
            {"{{cluster}} {{code}}": 'sum by (cluster, code) (rate(tuneyard_api_requests_total{code!~"2.."}[5m]))'},
        ),
    ),
    "Operator": (
        Panel("Leaders (is to be 1)", {"leaders": "sum(tuneyard_leader)"}),
        Panel("Reconciliations per second", {"{{result}}": "sum by (result) (rate(tuneyard_reconcile_total[5m]))"}, unit="ops"),
        Panel(
            "Time of a reconciliation",
            {
                "p50": "histogram_quantile(0.5, sum by (le) (rate(tuneyard_reconcile_seconds_bucket[5m])))",
                "p99": "histogram_quantile(0.99, sum by (le) (rate(tuneyard_reconcile_seconds_bucket[5m])))",
            },
            unit="s",
        ),
        Panel(
            "Requests per second", {"{{cluster}} {{verb}}": "sum by (cluster, verb) (rate(tuneyard_api_requests_total[5m]))"}, unit="reqps"
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"h": 1, "w": 24, "x": 0, "y": top}})
        top += 1
        for index, panel in enumerate(row):
            place = {"h": _HEIGHT, "w": _WIDTH, "x": index % _PER_ROW * _WIDTH, "y": top + index // _PER_ROW * _HEIGHT}
            panels.append(_time_series(panel, place))
        top += -(-len(row) // _PER_ROW) * _HEIGHT
    return {
        "uid": "tuneyard-hub",
        "title": "Tuneyard hub",
        "tags": ["tuneyard"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }


def _time_series(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    custom = {"fillOpacity": 20, "stacking": {"mode": "normal"}} if panel.stacked else {"fillOpacity": 5}
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }
