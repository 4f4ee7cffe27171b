"""The Grafana dashboards of a hub: for the platform, a team, a job, a cluster, and for the hub itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _PER_ROW = 8, 8, 3
_METRIC = re.compile(r"\btuneyard_\w+|\bup\b(?=\{)")


@dataclass(frozen=True)
class Panel:
    """One graph: legend -> PromQL. `unit`: as Grafana names it."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    stacked: bool = False


@dataclass(frozen=True)
class Dashboard:
    """`choices`: variable -> the query of its values. A person chooses several of them, or all."""

    name: str
    title: str
    rows: dict[str, tuple[Panel, ...]]
    choices: dict[str, str] = field(default_factory=dict)


_TEAM, _CLUSTER = 'team=~"$team"', 'cluster=~"$cluster"'
_JOB = 'namespace=~"$namespace",job=~"$job"'
_ON_ALL_MEMBERS = f"sum by (team, sku) (max by (team, cluster, sku) ({{}}{{{{{_TEAM}}}}}))"
_BY_JOB = "max by (namespace, job)"


def _rate_p(share: float, metric: str, by: str = "", window: str = "", where: str = "") -> str:
    """A percentile of a histogram. `window`: of rare events; without it, the time between two points of the graph."""
    growth, window = ("increase", window) if window else ("rate", "$__rate_interval")
    return f"histogram_quantile({share:g}, sum by ({by + ', ' if by else ''}le) ({growth}({metric}_bucket{where}[{window}])))"


def _of_job(title: str, metric: str, unit: str = "percentunit") -> Panel:
    return Panel(title, {"{{namespace}}/{{job}}": f"{_BY_JOB} ({metric}{{{_JOB}}})"}, unit=unit)


# A replica that does not lead has no series of the hub's state: `max` chooses the leader's, also while Prometheus remembers the one before.
DASHBOARDS = (
    Dashboard(
        name="platform",
        title="Tuneyard: platform",
        rows={
            "Jobs": (
                Panel("Jobs by phase", {"{{phase}}": "max by (phase) (tuneyard_jobs)"}, stacked=True),
                Panel("Queued jobs by team", {"{{team}}": "max by (team) (tuneyard_queued_jobs)"}, stacked=True),
                Panel("Oldest job in the queue, by team", {"{{team}}": "max by (team) (tuneyard_queue_age_seconds)"}, unit="s"),
                Panel("Attempts ended per hour", {"{{outcome}}": "sum by (outcome) (increase(tuneyard_attempts_total[1h]))"}, stacked=True),
                Panel("Failures per hour", {"{{kind}}": "sum by (kind) (increase(tuneyard_attempt_failures_total[1h]))"}, stacked=True),
                Panel(
                    "Wait of placed tasks",
                    {
                        "p50": _rate_p(0.5, "tuneyard_queue_wait_seconds", window="1h"),
                        "p90": _rate_p(0.9, "tuneyard_queue_wait_seconds", window="1h"),
                    },
                    unit="s",
                ),
            ),
            "GPUs": (
                Panel(
                    "GPUs: all, allocated, used",
                    {
                        "all {{sku}}": "sum by (sku) (max by (cluster, sku) (tuneyard_gpus))",
                        "allocated {{sku}}": "sum by (sku) (max by (team, cluster, sku) (tuneyard_allocated_gpus))",
                        "used {{sku}}": "sum by (sku) (max by (team, cluster, sku) (tuneyard_used_gpus))",
                    },
                ),
                Panel(
                    "Allocated, as a share of all",
                    {
                        "{{sku}}": "sum by (sku) (max by (team, cluster, sku) (tuneyard_allocated_gpus))"
                        " / sum by (sku) (max by (cluster, sku) (tuneyard_gpus))"
                    },
                    unit="percentunit",
                ),
                Panel("Idle GPUs", {"{{cluster}} {{sku}}": "max by (cluster, sku) (tuneyard_idle_gpus)"}, stacked=True),
                Panel(
                    "Cost per hour, by team",
                    {"{{team}}": "sum by (team) (rate(tuneyard_cost_total[$__rate_interval])) * 3600"},
                    stacked=True,
                ),
                Panel("Waiting for data", {"{{namespace}}/{{job}}": f"topk(10, {_BY_JOB} (tuneyard_data_wait_ratio))"}, unit="percentunit"),
                Panel("Lowest MFU", {"{{namespace}}/{{job}}": f"bottomk(10, {_BY_JOB} (tuneyard_job_mfu_ratio))"}, unit="percentunit"),
            ),
            "Schedules and history": (
                Panel(
                    "Schedules in trouble",
                    {
                        "regressed": "sum(max by (namespace, schedule) (tuneyard_schedule_regressed))",
                        "cannot run": "sum(max by (namespace, schedule) (tuneyard_schedule_stalled))",
                        "missed": "sum(max by (namespace, schedule) (tuneyard_schedule_missed))",
                    },
                ),
                Panel("Messages to webhooks per hour", {"{{outcome}}": "sum by (outcome) (increase(tuneyard_webhooks_total[1h]))"}),
                Panel("Age of what is not in history", {"lag": "max(tuneyard_history_lag_seconds)"}, unit="s"),
            ),
        },
    ),
    Dashboard(
        name="team",
        title="Tuneyard: team",
        choices={"team": "label_values(tuneyard_team_quota_gpus, team)"},
        rows={
            "Queue": (
                Panel("Queued jobs", {"{{team}}": f"max by (team) (tuneyard_queued_jobs{{{_TEAM}}})"}),
                Panel("GPUs that they ask for", {"{{team}}": f"max by (team) (tuneyard_queued_gpus{{{_TEAM}}})"}),
                Panel(
                    "Wait of placed tasks, p90",
                    {"{{team}}": _rate_p(0.9, "tuneyard_queue_wait_seconds", "team", "1h", f"{{{_TEAM}}}")},
                    unit="s",
                ),
            ),
            "GPUs": (
                Panel(
                    "Allocated and used",
                    {
                        "allocated {{team}} {{sku}}": _ON_ALL_MEMBERS.format("tuneyard_allocated_gpus"),
                        "used {{team}} {{sku}}": _ON_ALL_MEMBERS.format("tuneyard_used_gpus"),
                    },
                ),
                Panel(
                    "Quota and borrowed",
                    {
                        "quota {{team}} {{sku}}": f"max by (team, sku) (tuneyard_team_quota_gpus{{{_TEAM}}})",
                        "borrowed {{team}} {{sku}}": f"max by (team, sku) (tuneyard_team_borrowed_gpus{{{_TEAM}}})",
                    },
                ),
                Panel("Preemptions per hour", {"{{team}}": f"sum by (team) (increase(tuneyard_preemptions_total{{{_TEAM}}}[1h]))"}),
            ),
            "Usage": (
                Panel("GPU-hours per hour", {"{{team}}": f"sum by (team) (rate(tuneyard_gpu_seconds_total{{{_TEAM}}}[$__rate_interval]))"}),
                Panel("Cost of this month", {"{{team}}": f"max by (team) (tuneyard_team_month_cost{{{_TEAM}}})"}),
                Panel(
                    "GPU-hours of this month, and the limit",
                    {
                        "used {{team}}": f"max by (team) (tuneyard_team_month_gpu_hours{{{_TEAM}}})",
                        "limit {{team}}": f"max by (team) (tuneyard_team_month_gpu_hours_limit{{{_TEAM}}})",
                    },
                ),
            ),
        },
    ),
    Dashboard(
        name="job",
        title="Tuneyard: job",
        choices={
            "namespace": "label_values(tuneyard_job_gpus, namespace)",
            "job": 'label_values(tuneyard_job_gpus{namespace=~"$namespace"}, job)',
        },
        rows={
            "Pace": (
                _of_job("Progress", "tuneyard_job_progress_ratio"),
                _of_job("Tokens per second", "tuneyard_job_tokens_per_second", "short"),
                Panel(
                    "MFU, and by plan",
                    {
                        "{{namespace}}/{{job}}": f"{_BY_JOB} (tuneyard_job_mfu_ratio{{{_JOB}}})",
                        "plan of {{namespace}}/{{job}}": f"{_BY_JOB} (tuneyard_job_planned_mfu_ratio{{{_JOB}}})",
                    },
                    unit="percentunit",
                ),
            ),
            "Losses of time": (
                _of_job("Waiting for data", "tuneyard_data_wait_ratio"),
                _of_job("Standing still for checkpoints", "tuneyard_job_checkpoint_wait_ratio"),
                _of_job("Last checkpoint: step to commit", "tuneyard_job_checkpoint_seconds", "s"),
                _of_job("Age of the last checkpoint", "tuneyard_job_checkpoint_age_seconds", "s"),
                _of_job("Restarts", "tuneyard_job_restarts_total", "short"),
            ),
            "Machines": (
                _of_job("Busy GPUs", "tuneyard_job_gpu_utilization_ratio"),
                _of_job("Busy processors", "tuneyard_job_cpu_utilization_ratio"),
                _of_job("Sent by a machine", "tuneyard_job_network_bytes_per_second", "Bps"),
                _of_job("Memory of the fullest machine", "tuneyard_job_host_memory_bytes", "bytes"),
            ),
            "Usage": (
                _of_job("GPUs", "tuneyard_job_gpus", "short"),
                Panel("GPU-hours", {"{{namespace}}/{{job}}": f"{_BY_JOB} (tuneyard_job_gpu_seconds_total{{{_JOB}}}) / 3600"}),
                _of_job("Cost", "tuneyard_job_cost_total", "short"),
            ),
        },
    ),
    Dashboard(
        name="cluster",
        title="Tuneyard: cluster",
        choices={"cluster": "label_values(tuneyard_member_up, cluster)"},
        rows={
            "GPUs": (
                Panel("All GPUs", {"{{cluster}} {{sku}}": f"max by (cluster, sku) (tuneyard_gpus{{{_CLUSTER}}})"}),
                Panel("Free of pods of others", {"{{cluster}} {{sku}}": f"max by (cluster, sku) (tuneyard_free_gpus{{{_CLUSTER}}})"}),
                Panel("Idle", {"{{cluster}} {{sku}}": f"max by (cluster, sku) (tuneyard_idle_gpus{{{_CLUSTER}}})"}),
                Panel(
                    "Allocated by team",
                    {"{{cluster}} {{sku}} {{team}}": f"max by (cluster, sku, team) (tuneyard_allocated_gpus{{{_CLUSTER}}})"},
                    stacked=True,
                ),
                Panel(
                    "Used by team",
                    {"{{cluster}} {{sku}} {{team}}": f"max by (cluster, sku, team) (tuneyard_used_gpus{{{_CLUSTER}}})"},
                    stacked=True,
                ),
                Panel(
                    "Placements per hour, by reason",
                    {"{{cluster}} {{reason}}": f"sum by (cluster, reason) (increase(tuneyard_placements_total{{{_CLUSTER}}}[1h]))"},
                    stacked=True,
                ),
            ),
            "Reachability": (
                Panel("Reachable", {"{{cluster}}": f"max by (cluster) (tuneyard_member_up{{{_CLUSTER}}})"}),
                Panel(
                    "Age of heartbeat", {"{{cluster}}": f"min by (cluster) (tuneyard_member_heartbeat_age_seconds{{{_CLUSTER}}})"}, unit="s"
                ),
                Panel(
                    "Credentials are valid for",
                    {"{{cluster}}": f"min by (cluster) (tuneyard_member_credentials_expiry_timestamp_seconds{{{_CLUSTER}}}) - time()"},
                    unit="s",
                ),
                Panel(
                    "Refused or failed requests",
                    {
                        "{{cluster}} {{code}}": "sum by (cluster, code) "
                        f'(rate(tuneyard_api_requests_total{{{_CLUSTER},code!~"2.."}}[$__rate_interval]))'
                    },
                    unit="reqps",
                ),
                Panel(
                    "Time of requests, p90",
                    {"{{cluster}}": _rate_p(0.9, "tuneyard_api_request_seconds", "cluster", "5m", f"{{{_CLUSTER}}}")},
                    unit="s",
                ),
                Panel(
                    "Age of the hub's copies",
                    {"{{cluster}} {{resource}}": f"max by (cluster, resource) (tuneyard_cache_lag_seconds{{{_CLUSTER}}})"},
                    unit="s",
                ),
            ),
        },
    ),
    Dashboard(
        name="hub",
        title="Tuneyard: hub",
        rows={
            "Scheduler": (
                Panel("Leaders (is to be 1)", {"leaders": "sum(tuneyard_leader)"}),
                Panel(
                    "Time of a cycle",
                    {"p50": _rate_p(0.5, "tuneyard_scheduling_cycle_seconds"), "p99": _rate_p(0.99, "tuneyard_scheduling_cycle_seconds")},
                    unit="s",
                ),
                Panel("Placements per hour", {"{{reason}}": "sum by (reason) (increase(tuneyard_placements_total[1h]))"}, stacked=True),
            ),
            "Reconciliation": (
                Panel("Jobs to reconcile", {"jobs": "max(tuneyard_workqueue_depth)"}),
                Panel(
                    "Reconciliations per second",
                    {"{{result}}": "sum by (result) (rate(tuneyard_reconcile_total[$__rate_interval]))"},
                    unit="ops",
                ),
                Panel(
                    "Time of a reconciliation",
                    {"p50": _rate_p(0.5, "tuneyard_reconcile_seconds"), "p99": _rate_p(0.99, "tuneyard_reconcile_seconds")},
                    unit="s",
                ),
            ),
            "API servers": (
                Panel(
                    "Requests per second",
                    {"{{cluster}} {{verb}}": "sum by (cluster, verb) (rate(tuneyard_api_requests_total[$__rate_interval]))"},
                    unit="reqps",
                ),
                Panel(
                    "Refused or failed requests",
                    {"{{cluster}} {{code}}": 'sum by (cluster, code) (rate(tuneyard_api_requests_total{code!~"2.."}[$__rate_interval]))'},
                    unit="reqps",
                ),
                Panel(
                    "Age of copies", {"{{cluster}} {{resource}}": "max by (cluster, resource) (tuneyard_cache_lag_seconds) > 0"}, unit="s"
                ),
                Panel(
                    "Answers of the API of logs",
                    {"{{code}}": "sum by (code) (rate(tuneyard_log_requests_total[$__rate_interval]))"},
                    unit="reqps",
                ),
            ),
            "History": (
                Panel("Rows per second", {"rows": "sum(rate(tuneyard_history_rows_total[$__rate_interval]))"}, unit="ops"),
                Panel("Failures per hour", {"{{reason}}": "sum by (reason) (increase(tuneyard_history_failures_total[1h]))"}),
                Panel(
                    "Not on record",
                    {"changed jobs": "max(tuneyard_history_waiting_jobs)", "deleted JobSpecs that wait": "max(tuneyard_history_held_jobs)"},
                ),
                Panel("Jobs without series of their own", {"jobs": "max(tuneyard_jobs_without_series)"}),
            ),
        },
    ),
)


def dashboard(made: Dashboard, helps: Mapping[str, str]) -> dict[str, Any]:
    """A dashboard as Grafana imports it. `helps`: what each metric is, by its name without endings; panels show it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in made.rows.items():
        panels.append({"type": "row", "title": title, "gridPos": {"h": 1, "w": 24, "x": 0, "y": top}})
        top += 1
        for index, panel in enumerate(row):
            place = {"h": _HEIGHT, "w": _WIDTH, "x": index % _PER_ROW * _WIDTH, "y": top + index // _PER_ROW * _HEIGHT}
            panels.append(_time_series(panel, place, helps))
        top += -(-len(row) // _PER_ROW) * _HEIGHT
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"tuneyard-{made.name}",
        "title": made.title,
        "tags": ["tuneyard"],
        "editable": False,
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "links": [{"title": "Tuneyard", "type": "dashboards", "tags": ["tuneyard"], "asDropdown": True, "keepTime": True}],
        "templating": {"list": [source, *(_choice(name, query) for name, query in made.choices.items())]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }


def _choice(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _description(panel: Panel, helps: Mapping[str, str]) -> str:
    """What the metrics of a panel are."""
    asked = dict.fromkeys(_METRIC.findall(" ".join(panel.queries.values())))
    names = dict.fromkeys(name.removesuffix("_bucket").removesuffix("_total") for name in asked)
    return "\n\n".join(f"{name}: {helps[name]}" for name in names)


def _time_series(panel: Panel, place: dict[str, int], helps: Mapping[str, str]) -> dict[str, Any]:
    custom = {"fillOpacity": 20, "stacking": {"mode": "normal"}} if panel.stacked else {"fillOpacity": 5}
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": _description(panel, helps),
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }
