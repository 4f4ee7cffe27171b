"""What `make test` consists of, and how much processor time each part may take.

Tests that share servers or clusters are one part: session fixtures start once. Long parts come first, so that none is left over at the end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

BUDGET_CPU_MIN = 52
"""Processor minutes of all parts together. Both processors are busy throughout, so half of it and the waits are the minutes of a run."""
_HANGS_AFTER_MIN = 50.0
"""No measure of speed. A part that CI ran in 13 minutes has taken 26 where other machines used the same processors."""
_LONG_HANGS_AFTER_MIN = 150.0
"""Of a part in the long suite, whose single tests may take an hour."""
_BUILDS_HANG_AFTER_MIN = 80.0
"""Of what runs beside the parts: Go has taken 20 minutes from nothing, and here it has the lower priority."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """`paths`: what pytest runs, or else `command`. `after`: parts that must have ended before.

    `cpu_min`: processor minutes that it may take, with all that it starts. `programs` and `reads` tell `touched` what its tests use without
    naming it: modules that run in other processes, and folders of files.
    """

    name: str
    cpu_min: float
    paths: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    beside: bool = False
    """Takes no processor of the others: it runs beside them at a lower priority, and has no budget."""
    long: bool = False
    """Repetition that only adds confidence, in place of the part's other tests; without a budget."""

    @property
    def limit_s(self) -> float:
        return 60 * (_BUILDS_HANG_AFTER_MIN if self.beside else _LONG_HANGS_AFTER_MIN if self.long else _HANGS_AFTER_MIN)

    def command_line(self, results: Path, *, again: bool = False) -> list[str]:
        """What is started. pytest writes `results`, a JUnit XML file, and remembers beside it what failed; `again` runs just that."""
        if self.command:
            return [*(("nice", "-n", "2") if self.beside else ()), *self.command]
        memory = f"cache_dir={results.parent.absolute() / 'failed' / self.name}"
        options = ["-o", memory, "--durations=20", "--durations-min=5", f"--junitxml={results}"]
        if self.long:
            options += ["-m", "long or hypothesis", "--hypothesis-profile=long"]
        if again:
            options += ["--last-failed", "--last-failed-no-failures=none"]
        return [sys.executable, "-m", "pytest", "-q", "-p", "tests.suite.processor", *options, *self.paths]


BUILD = "servers"
_RUN = ("tuneyard.cli.entry", "tuneyard.cli.run", "tuneyard.runtime.stack_server")
_HUB = ("tuneyard_operators.__main__",)
_MEMBER = ("tuneyard.cli.attempt",)
PARTS = (
    Part(name=BUILD, cpu_min=0, command=(sys.executable, "-m", "tests.suite.servers_built"), beside=True),
    Part(name="lint", cpu_min=0.7, command=("make", "--no-print-directory", "--assume-old=setup", "lint")),
    Part(name="unit", cpu_min=7, paths=("tests/unit",)),
    Part(
        name="runs",
        cpu_min=7,
        paths=(
            "tests/integration/runtime/test_run_trains.py",
            "tests/integration/runtime/test_run_fails.py",
            "tests/integration/runtime/test_run_refuses.py",
            "tests/integration/runtime/test_schedule_run.py",
            "tests/integration/runtime/test_run_scores.py",
            "tests/integration/runtime/test_local_week.py",
            "tests/integration/runtime/test_run_layouts.py",
            "tests/integration/runtime/test_open_batch.py",
            "tests/integration/runtime/test_tune.py",
            "tests/integration/runtime/test_warm_jobs.py",
            "tests/integration/warm",
            "tests/integration/quickstart",
        ),
        programs=(*_RUN, "tuneyard.cli.from_python"),
        reads=("jobspecs",),
    ),
    Part(
        name="training",
        cpu_min=6,
        paths=("tests/integration/training", "tests/gpu"),
        programs=("tuneyard.training.provenance.rank",),
    ),
    Part(
        name="attempts",
        cpu_min=5.5,
        paths=("tests/integration/runtime/test_attempts.py", "tests/integration/runtime/test_ingestion.py"),
        programs=(*_RUN, *_MEMBER),
    ),
    Part(
        name="stores",
        cpu_min=4,
        paths=(
            "tests/integration/data",
            "tests/integration/storage",
            "tests/integration/tracking",
            "tests/integration/catalog",
            "tests/integration/install",
            "tests/browser",
        ),
        programs=("tuneyard.cli.entry",),
    ),
    Part(
        name="hub",
        cpu_min=3.5,
        paths=(
            "tests/cluster/test_hub.py",
            "tests/cluster/test_hub_scheduling.py",
            "tests/cluster/test_hub_survives.py",
            "tests/cluster/test_attempt_report.py",
            "tests/cluster/test_door.py",
            "tests/integration/monitoring",
            "tests/cluster/test_scheduled_week.py",
        ),
        after=(BUILD,),
        programs=(*_HUB, *_MEMBER),
        reads=("charts",),
    ),
    Part(name="scoring", cpu_min=5, paths=("tests/integration/scoring",), programs=_RUN),
    Part(name="parallel", cpu_min=4.5, paths=("tests/integration/parallel",), reads=("jobspecs/programs",)),
    Part(
        name="client",
        cpu_min=3,
        paths=("tests/cluster/client", "tests/cluster/test_charts.py", "tests/cluster/logs_api"),
        after=(BUILD,),
        programs=(*_HUB, "tuneyard.cli.entry", "tuneyard.console.__main__"),
        reads=("charts",),
    ),
    Part(name="ranking", cpu_min=3, paths=("tests/integration/ranking",)),
    Part(
        name="pods",
        cpu_min=1.4,
        paths=(
            "tests/cluster/test_harness.py",
            "tests/cluster/test_chart_runs_a_job.py",
            "tests/cluster/test_endpoint_on_a_member.py",
            "tests/cluster/test_chart_database.py",
            "tests/cluster/test_console_in_pods.py",
            "tests/cluster/test_data_pods.py",
            "tests/cluster/test_search_on_gangs.py",
            "tests/cluster/test_served_in_pods.py",
            "tests/cluster/test_upgrades.py",
        ),
        after=(BUILD,),
        programs=(*_HUB, *_MEMBER, "tuneyard.cli.entry", "tuneyard.cli.submit.from_python", "tuneyard.console.__main__"),
        reads=("charts", "docker"),
    ),
    Part(
        name="stacks",
        cpu_min=1.4,
        paths=("tests/integration/stacks",),
        programs=_RUN,
        reads=("benchmarks/gpu", "benchmarks/gpu_check.py", "scripts/gpu_check.sh", "scripts/gpu_wheels.sh"),
    ),
)


def long_parts(parts: Iterable[Part]) -> list[Part]:
    """The same parts with their long tests, and property tests with all examples; those that run no tests are left out."""
    return [part if part.beside else replace(part, long=True, cpu_min=math.inf) for part in parts if part.beside or part.paths]
