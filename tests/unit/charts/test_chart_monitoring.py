"""Alerts and dashboards ask for metrics that the hub and the console have, by labels that these have."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase
from scripts.charts import CHARTS
from tests.servers.prometheus import rules
from tests.unit.charts.rendering import of_kind, render_variant

from tuneyard.console.hosted.metrics import ConsoleMetrics
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.metrics import FAMILIES


def declared() -> dict[str, tuple[str, ...]]:
    """Labels of every metric of the hub and the console, by the name that queries have."""
    metrics = Metrics()
    suffixes = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    parts = (metrics, metrics.history, metrics.traces, ConsoleMetrics())
    events = [each for part in parts for each in vars(part).values() if isinstance(each, MetricWrapperBase)]
    return {f"{each._name}{suffixes[each._type]}": tuple(each._labelnames) for each in events} | {
        each.name: each.labels for each in FAMILIES
    }


METRICS = {name: {*labels, *(["le"] if name.endswith("_bucket") else [])} for name, labels in declared().items()} | {
    "up": {"job", "namespace"}
}
ALERTS = rules()
DASHBOARDS = {file.name: json.loads(file.read_text()) for file in sorted((CHARTS / "tuneyard-hub/files/dashboards").glob("*.json"))}
QUERIES = {rule["alert"]: rule["expr"] for rule in ALERTS} | {
    f"{file} {panel['title']} {target['refId']}": target["expr"]
    for file, board in DASHBOARDS.items()
    for panel in board["panels"]
    for target in panel.get("targets", [])
}
DOCS = CHARTS.parent / "docs"


@pytest.mark.parametrize("name", QUERIES)
def test_the_query_asks_for_what_the_hub_has(name: str) -> None:
    query = QUERIES[name]
    asked = set(re.findall(r"\b(?:tuneyard_\w+|up)\b(?=[{)\[ ]|$)", query))

    assert asked
    assert asked <= set(METRICS)
    known = set().union(*(METRICS[metric] for metric in asked))
    for group in re.findall(r"by \(([^)]*)\)", query):
        assert {label.strip() for label in group.split(",")} <= known
    assert set(re.findall(r"(\w+)(?:=|!)[~\"]", query)) <= known


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_happened_and_where_to_look(rule: dict[str, dict[str, str]]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


def test_the_console_is_scraped_under_a_name_that_its_alert_knows() -> None:
    (rule,) = [rule for rule in ALERTS if rule["alert"] == "TuneyardConsoleDown"]
    (pattern,) = set(re.findall(r'job=~"([^"]*)"', rule["expr"]))
    services = [each["metadata"]["name"] for each in of_kind(render_variant("hub-with-console"), "Service")]
    assert [name for name in services if re.fullmatch(pattern, name)] == ["tuneyard-hub-console", "tuneyard-hub-console-metrics"]


def test_each_alert_has_its_runbook_and_each_runbook_its_alert() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert re.findall(r"^## (\w+)$", (DOCS / "runbooks.md").read_text(), re.MULTILINE) == names
    assert [rule["annotations"]["runbook_url"] for rule in ALERTS] == [f"RUNBOOKS#{name.lower()}" for name in names]
    told = re.findall(r"^\| \[(\w+)\]\(runbooks\.md#(\w+)\) \| (\w+) \| (\w*) \|", (DOCS / "monitoring.md").read_text(), re.MULTILINE)
    assert told == [(rule["alert"], rule["alert"].lower(), rule["labels"]["severity"], rule.get("for", "")) for rule in ALERTS]


def test_the_table_of_metrics_is_complete_and_true() -> None:
    rows = re.findall(r"^\| `(tuneyard_\w+)` \| (\w+) \| ([^|]*) \|", (DOCS / "monitoring.md").read_text(), re.MULTILINE)
    told = {f"{name}_bucket" if kind == "histogram" else name: set(re.findall(r"\w+", labels)) for name, kind, labels in rows}
    assert told == {name: set(labels) for name, labels in declared().items()}


@pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)
def test_panels_do_not_overlap_and_have_units_and_the_source_that_a_person_chooses(board: dict[str, Any]) -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in board["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    graphs = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in graphs)
    assert {panel["datasource"]["uid"] for panel in graphs} == {"${datasource}"}
    variables = {each["name"] for each in board["templating"]["list"]}
    asked = {name for panel in graphs for target in panel["targets"] for name in re.findall(r"\$(\w+)", target["expr"])}
    assert asked - {"__rate_interval"} == variables - {"datasource"}, "beside Grafana's own"
    assert all(panel["description"] for panel in graphs)


@pytest.mark.usefixtures("helm_here")
def test_the_chart_carries_them_whole() -> None:
    objects = render_variant("hub-observed")

    (rule,) = of_kind(objects, "PrometheusRule")
    rendered = [alert for group in rule["spec"]["groups"] for alert in group["rules"]]
    assert yaml.safe_dump(rendered) == yaml.safe_dump(ALERTS).replace("RUNBOOKS#", "docs/runbooks.md#")
    (dashboard,) = [each for each in of_kind(objects, "ConfigMap") if "dashboard" in each["metadata"]["name"]]
    assert {name: json.loads(text) for name, text in dashboard["data"].items()} == {
        f"tuneyard-{name}": each for name, each in DASHBOARDS.items()
    }
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    (monitor,) = of_kind(objects, "ServiceMonitor")
    (service,) = [each for each in of_kind(objects, "Service") if each["metadata"]["name"].endswith("-metrics")]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
