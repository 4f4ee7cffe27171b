"""A real Prometheus server over the endpoints of a test, with the chart's rules."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from scripts.charts import CHARTS
from tests.servers.installed import free_port, running
from tests.testcluster.binaries import binary

RULES_FILE = CHARTS / "tuneyard-hub/files/alerts.yaml"


def rules() -> list[dict[str, Any]]:
    """The chart's alerts."""
    groups = yaml.safe_load(RULES_FILE.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready"):
                return True
        except OSError:  # an HTTPError is one: 503 while it starts
            return False

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}") as answer:
            return json.load(answer)["data"]

    def firing(self) -> dict[str, dict[str, Any]]:
        """The firing alerts by name: labels and annotations of one of each."""
        return {alert["labels"]["alertname"]: alert for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, list[int]], scaled: Mapping[str, tuple[str, str]]) -> Iterator[Prometheus]:
    """A server that scrapes ports of this machine every second, by the name of their scrape job.

    Alerts fire at once, without their `for`. `scaled`: alert -> a text of its expression, and the text in its place.
    """
    port, made = free_port(), []
    for rule in rules():
        before, after = scaled.get(rule["alert"], ("", ""))
        assert before in rule["expr"]
        made.append({**rule, "expr": rule["expr"].replace(before, after) if before else rule["expr"], "for": "0s"})
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "scaled", "rules": made}]}))
    scrapes = [
        {
            "job_name": job,
            "static_configs": [{"targets": [f"127.0.0.1:{each}" for each in ports], "labels": {"namespace": "tuneyard-system"}}],
        }
        for job, ports in targets.items()
    ]
    own = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"}
    for scrape in scrapes:
        scrape["honor_labels"] = True
    (folder / "prometheus.yaml").write_text(yaml.safe_dump({"global": own, "rule_files": ["rules.yaml"], "scrape_configs": scrapes}))
    command = [binary("prometheus"), f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    server = Prometheus(port)
    with running(command, port=port, log=folder / "prometheus.log", ready=server.ready):
        yield server
