"""Prometheus' own judgement of the chart's rules and dashboards: syntax, and each alert with its near miss."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from scripts.charts import CHARTS
from tests.servers.prometheus import RULES_FILE, rules
from tests.testcluster import Unavailable
from tests.testcluster.binaries import binary
from tests.unit.charts.alert_cases import CASES


@pytest.fixture(scope="module")
def promtool() -> str:
    try:
        return binary("promtool")
    except Unavailable as reason:
        pytest.skip(str(reason))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case() -> None:
    assert set(CASES) == {rule["alert"] for rule in rules()}


def test_each_alert_fires_when_it_has_to_and_not_in_its_near_miss(promtool: str, tmp_path: Path) -> None:
    tests = []
    for alert, case in CASES.items():
        moments = [(case.fires, case.at, 1), (case.near, case.at + 10, 0), *([(case.fires, case.at - 1, 0)] if case.waits else [])]
        moments += [*((each, 119, 1) for each in case.also_fires), *((each, 119, 0) for each in case.also_near)]
        for series, minute, firing in moments:
            asked = f'sum(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
            wanted = [{"labels": "{}", "value": firing}]
            tests.append(
                {
                    "name": f"{alert} at {minute} min",
                    "interval": "1m",
                    "input_series": [{"series": name, "values": values} for name, values in series.items()],
                    "promql_expr_test": [{"expr": asked, "eval_time": f"{minute}m", "exp_samples": wanted}],
                }
            )
    file = tmp_path / "alerts_test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": tests}))
    _run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(RULES_FILE))
    _run(promtool, "test", "rules", str(file))


def test_every_panel_asks_what_prometheus_can_read(promtool: str, tmp_path: Path) -> None:
    queries = [
        target["expr"].replace("$__rate_interval", "5m")
        for file in sorted((CHARTS / "tuneyard-hub/files/dashboards").glob("*.json"))
        for panel in json.loads(file.read_text())["panels"]
        for target in panel.get("targets", [])
    ]
    assert queries
    file = tmp_path / "panels.yaml"
    group = {"name": "panels", "rules": [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]}
    file.write_text(yaml.safe_dump({"groups": [group]}))
    _run(promtool, "check", "rules", "--lint=none", str(file))
