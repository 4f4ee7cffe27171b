"""Alerts and the dashboard ask for metrics that the hub has, by labels that these have."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase
from scripts.charts import CHARTS
from tests.unit.charts.rendering import of_kind, render_variant

from tuneyard_operators.hub.metrics import Metrics

SUFFIXES = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
METRICS = {  # name -> labels
    f"{metric._name}{SUFFIXES[metric._type]}": {*metric._labelnames, *(["le"] if metric._type == "histogram" else [])}
    for metric in (*vars(Metrics()).values(), *vars(Metrics().history).values())
    if isinstance(metric, MetricWrapperBase)
}
ALERTS = [rule for group in yaml.safe_load((CHARTS / "tuneyard-hub/files/alerts.yaml").read_text())["groups"] for rule in group["rules"]]
PANELS = json.loads((CHARTS / "tuneyard-hub/files/dashboard.json").read_text())["panels"]
QUERIES = {rule["alert"]: rule["expr"] for rule in ALERTS} | {
    f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel.get("targets", [])
}


@pytest.mark.parametrize("name", QUERIES)
def test_the_query_asks_for_what_the_hub_has(name: str) -> None:
    query = QUERIES[name]
    asked = set(re.findall(r"tuneyard_\w+", query))

    assert asked
    assert asked <= set(METRICS)
    known = set().union(*(METRICS[metric] for metric in asked))
    for group in re.findall(r"by \(([^)]*)\)", query):
        assert {label.strip() for label in group.split(",")} <= known
    assert set(re.findall(r"(\w+)(?:=|!)[~\"]", query)) <= known


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_happened_and_where_to_look(rule: dict[str, dict[str, str]]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.usefixtures("helm_here")
def test_the_chart_carries_them_whole() -> None:
    objects = render_variant("hub-observed")

    (rule,) = of_kind(objects, "PrometheusRule")
    assert rule["spec"]["groups"][0]["rules"] == ALERTS
    (dashboard,) = [each for each in of_kind(objects, "ConfigMap") if "dashboard" in each["metadata"]["name"]]
    assert json.loads(dashboard["data"]["tuneyard.json"])["panels"] == PANELS
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    (monitor,) = of_kind(objects, "ServiceMonitor")
    (service,) = [each for each in of_kind(objects, "Service") if each["metadata"]["name"].endswith("-metrics")]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
