"""A simulated week of a Schedule on one machine: its runner is a process that is killed at random moments, and its runs are real."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from tests.clusters.clocked_hub import set_clock
from tests.servers.openai_server import MODEL, OpenAIServer

from tuneyard.api.moments import moment_of
from tuneyard.api.schedule_status import ScheduledRun
from tuneyard.cli import main
from tuneyard.runtime.scheduled import ScheduleFolder
from tuneyard.schedules import times_between

LINE, ZONE = "30 2 * * *", "Europe/Amsterdam"
BEGIN = datetime(2027, 3, 26, 12, tzinfo=UTC)
NIGHTS = times_between(LINE, ZONE, BEGIN, BEGIN + timedelta(days=6), 6)
"""The second is the night on which clocks go forward."""
_ALONE = "exec 9>> lock; flock -n 9 || exit 7; sleep 1 9>&-; echo done > $TUNEYARD_OUTPUT/out.txt"
"""Fails where another process of the Schedule runs at the same time."""


@dataclass
class LocalWeek:
    """A Schedule of the file `nightly.yaml` in the working folder."""

    chance: random.Random
    kills: int = 0
    said: list[str] = field(default_factory=list)

    def follow(self, until: datetime) -> int:
        """Follow the Schedule until then. Its runner is killed again and again, each time later, so that it comes to its end."""
        while True:
            command = [sys.executable, "-m", "tests.clusters.clocked_runner", "nightly.yaml", until.isoformat(), "clock"]
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as process:
                try:
                    self.said.append(process.communicate(timeout=self.chance.uniform(1, 6 + 3 * self.kills))[0])
                except subprocess.TimeoutExpired:
                    process.kill()
                    self.said.append(process.communicate()[0])
                    self.kills += 1
                else:
                    return process.returncode

    @property
    def runs(self) -> Sequence[ScheduledRun]:
        return ScheduleFolder(Path("runs/nightly")).status().runs


@pytest.mark.long
def test_a_week_on_one_machine_whose_runner_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")
    monkeypatch.chdir(tmp_path)
    rows = [f"question {number}" for number in range(100)]
    Path("rows.jsonl").write_text("".join(json.dumps({"prompt": row, "answer": f"answer to {row}"}) + "\n" for row in rows))
    set_clock(Path("clock"), BEGIN)
    wrong: set[str] = set()
    with OpenAIServer(key=None, answer=lambda prompt: "no" if prompt in wrong else f"answer to {prompt}") as server:
        Path("nightly.yaml").write_text(yaml.safe_dump(nightly(server.url)))
        week = LocalWeek(random.Random(1))
        assert week.follow(NIGHTS[0] + timedelta(hours=1)) == 0, "".join(week.said)
        wrong |= set(rows[:30])
        week.follow(NIGHTS[1] + timedelta(hours=1))
        (_, second) = week.runs
        assert (second.verdict, second.figures[0].value) == ("regressed", 0.7), "".join(week.said)
        assert main(["schedule", "accept", "nightly", "--local", "runs"]) == 0
        week.follow(NIGHTS[2] + timedelta(hours=1))
        set_clock(Path("clock"), NIGHTS[5] + timedelta(minutes=10))  # the machine was off for three nights
        week.follow(NIGHTS[5] + timedelta(hours=1))
    assert [moment_of(run.due) for run in week.runs] == NIGHTS
    assert [run.verdict for run in week.runs] == ["good", "accepted", "good", "missed", "missed", "good"], "".join(week.said)
    assert second.due == "2027-03-28T01:30:00Z", "half past two does not exist on this night"
    assert week.runs[2].compared_with == week.runs[2].rows_compared_with == second.name
    started = {run.name for run in week.runs if run.verdict != "missed"}
    assert {file.stem for file in Path("runs/nightly/jobs").iterdir()} == started
    assert {each.name for each in Path("evals").iterdir()} == started
    assert week.kills >= 3


def nightly(url: str) -> dict[str, object]:
    score = {
        "data": {"source": "rows.jsonl", "reference": "answer"},
        "engine": {"endpoint": {"url": url, "model": MODEL, "atOnce": 16}},
        "metrics": ["exact_match"],
    }
    tasks = [
        {"name": "alone", "process": {"command": ["bash", "-c", _ALONE]}},
        {"name": "judge", "score": score},
    ]
    template = {"spec": {"tasks": tasks, "storage": {"output": "evals"}}}
    spec = {"cron": LINE, "timeZone": ZONE, "regression": {"exact_match": {"worseBy": "2%"}}, "template": template}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": "nightly"}, "spec": spec}
