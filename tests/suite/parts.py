"""What `make test` consists of, and how long each part may take.

Tests that share servers or clusters are one part: session fixtures start once. Long parts come first, so that none is left over at the end.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

BUDGET_MIN = 45
"""All parts together; CONTRIBUTING.md has the table."""
_HANGS_AFTER = 7
"""No measure of speed: a part that takes this many times its budget on a busy machine has stopped doing anything."""
_HANGS_AFTER_AT_LEAST_MIN = 50.0
"""A part that CI ran in 13 minutes has taken 26 where other machines used the same processors."""
_BUILDS_HANG_AFTER_MIN = 80.0
"""Of what runs beside the parts: Go has taken 20 minutes from nothing, and here it has the lower priority."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """`paths`: what pytest runs, or else `command`. `after`: parts that must have ended before.

    `budget_min`: its share of the minutes of `make test`, which are its own minutes divided by the number of parts that run at once.
    """

    name: str
    budget_min: float
    paths: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    beside: bool = False
    """Takes no processor of the others: it runs beside them at a lower priority."""

    @property
    def limit_s(self) -> float:
        least = _BUILDS_HANG_AFTER_MIN if self.beside else _HANGS_AFTER_AT_LEAST_MIN
        return max(least, _HANGS_AFTER * self.budget_min) * 60

    def command_line(self, results: str) -> list[str]:
        """What is started; pytest writes `results`, a JUnit XML file."""
        if self.command:
            return [*(("nice", "-n", "2") if self.beside else ()), *self.command]
        told = ["--durations=20", "--durations-min=5", f"--junitxml={results}"]
        return [sys.executable, "-m", "pytest", "-q", "-p", "tests.suite.processor", *told, *self.paths]


BUILD = "servers"
PARTS = (
    Part(name=BUILD, budget_min=0, command=(sys.executable, "-m", "tests.suite.servers_built"), beside=True),
    Part(name="lint", budget_min=0.5, command=("make", "--no-print-directory", "--assume-old=setup", "lint")),
    Part(
        name="runs",
        budget_min=8.5,
        paths=(
            "tests/integration/runtime/test_run_trains.py",
            "tests/integration/runtime/test_run_fails.py",
            "tests/integration/runtime/test_run_refuses.py",
            "tests/integration/runtime/test_schedule_run.py",
            "tests/integration/runtime/test_local_week.py",
            "tests/integration/runtime/test_run_layouts.py",
            "tests/integration/runtime/test_tune.py",
            "tests/integration/runtime/test_warm_jobs.py",
            "tests/integration/warm",
            "tests/integration/quickstart",
        ),
    ),
    Part(
        name="pods",
        budget_min=5,
        paths=(
            "tests/cluster/test_harness.py",
            "tests/cluster/test_chart_runs_a_job.py",
            "tests/cluster/test_endpoint_on_a_member.py",
            "tests/cluster/test_chart_database.py",
            "tests/cluster/test_console_in_pods.py",
            "tests/cluster/test_data_pods.py",
            "tests/cluster/test_upgrades.py",
        ),
        after=(BUILD,),
    ),
    Part(name="parallel", budget_min=5.5, paths=("tests/integration/parallel",)),
    Part(name="unit", budget_min=3.5, paths=("tests/unit",)),
    Part(name="training", budget_min=6.5, paths=("tests/integration/training", "tests/gpu")),
    Part(
        name="hub",
        budget_min=3.5,
        paths=(
            "tests/cluster/test_hub.py",
            "tests/cluster/test_hub_scheduling.py",
            "tests/cluster/test_hub_survives.py",
            "tests/cluster/test_attempt_report.py",
            "tests/integration/monitoring",
            "tests/cluster/test_scheduled_week.py",
        ),
        after=(BUILD,),
    ),
    Part(
        name="stores",
        budget_min=2.5,
        paths=(
            "tests/integration/data",
            "tests/integration/storage",
            "tests/integration/tracking",
            "tests/integration/catalog",
            "tests/integration/install",
            "tests/browser",
        ),
    ),
    Part(name="ranking", budget_min=2, paths=("tests/integration/ranking",)),
    Part(name="scoring", budget_min=2, paths=("tests/integration/scoring",)),
    Part(
        name="attempts", budget_min=3.5, paths=("tests/integration/runtime/test_attempts.py", "tests/integration/runtime/test_ingestion.py")
    ),
    Part(
        name="client",
        budget_min=2,
        paths=("tests/cluster/client", "tests/cluster/test_charts.py", "tests/cluster/logs_api"),
        after=(BUILD,),
    ),
)
