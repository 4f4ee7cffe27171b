"""`tuneyard schedule run`: nights of a clock that is handed in, each run a real process of `tuneyard run`; and runners that are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders.schedules import MONDAY, at_hour
from tests.servers.openai_server import MODEL, OpenAIServer

from tuneyard.api.templates import no_template
from tuneyard.cli import main
from tuneyard.cli.schedule.follow import read_schedule
from tuneyard.runtime.interrupt import never
from tuneyard.runtime.scheduled import Runner, ScheduleFolder
from tuneyard.schedules import LastGood

TUNEYARD = str(Path(sys.executable).parent / "tuneyard")


class HandedIn:
    """A clock that moves when everybody waits: it jumps to the next event, unless processes are under way."""

    def __init__(self, now: datetime = MONDAY) -> None:
        self.moment = now

    def now(self) -> datetime:
        return self.moment

    def wait(self, until: datetime, *, busy: bool) -> None:
        if busy:
            time.sleep(0.05)
        else:
            self.moment = max(self.moment, until)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")
    monkeypatch.chdir(tmp_path)


def write(folder: Path, command: str = "cat data/{{ run.date }}.txt > $TUNEYARD_OUTPUT/out.txt", **spec: Any) -> Path:
    task = {"name": "count", "process": {"command": ["bash", "-c", command]}}
    goal = {"cron": "0 2 * * *", "timeZone": "Europe/Amsterdam", "template": {"spec": {"tasks": [task]}}, **spec}
    schedule = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": "nightly"}, "spec": goal}
    file = folder / "nightly.yaml"
    file.write_text(yaml.safe_dump(schedule))
    return file


def runner(file: Path, clock: HandedIn, said: list[str]) -> Runner:
    folder = ScheduleFolder(Path("runs/nightly"))
    return Runner(lambda: read_schedule(file, no_template), folder, file.parent, clock, said.append)


def runs() -> list[dict[str, Any]]:
    return list(json.loads(Path("runs/nightly/schedule.json").read_text())["status"]["runs"])


def test_nights_on_this_machine_with_dates_waits_and_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for day in (23, 25):
        (data / f"2026-11-{day}.txt").write_text(str(day))
    file = write(
        tmp_path, waitFor={"path": "data/{{ run.date }}.txt", "timeout": "4h"}, regression={"wall_s": {"above": 0, "better": "lower"}}
    )
    clock, said = HandedIn(), list[str]()
    assert not runner(file, clock, said).run(never, at_hour(24 + 12))
    file.write_text(file.read_text().replace("above: 0", "above: 1000"))
    assert runner(file, clock, said).run(never, at_hour(24 * 2 + 12))
    assert [(run["due"][8:13], run["verdict"]) for run in runs()] == [
        ("23T01", "regressed"),
        ("24T01", "missed"),
        ("25T01", "good"),
    ]
    for run in (run for run in runs() if run["verdict"] != "missed"):
        (made,) = Path("runs/nightly", run["name"]).rglob("out.txt")
        assert made.read_text() == run["due"][8:10]
    assert main(["schedule", "history", "nightly", "--local", "runs"]) == 0
    assert "data/2026-11-24.txt did not exist" in capsys.readouterr().out


def test_a_runner_that_is_killed_goes_on_without_a_second_run(tmp_path: Path) -> None:
    command = f"echo $$ >> {tmp_path}/begun; sleep ${{PAUSE:-4}}; echo done > $TUNEYARD_OUTPUT/out.txt"
    file = write(tmp_path, command, cron="0 0 1 1 *")
    with subprocess.Popen([TUNEYARD, "schedule", "run", str(file)], stderr=subprocess.PIPE, text=True) as process:
        _until(lambda: Path("runs/nightly/schedule.json").exists(), "the runner follows the Schedule")
        assert main(["schedule", "run-now", "nightly", "--local", "runs/nightly"]) == 0
        _until(lambda: (tmp_path / "begun").exists(), "the run begins")
        process.send_signal(signal.SIGKILL)
    _until(lambda: not _lives(int((tmp_path / "begun").read_text())), "the run ends with its runner")
    again = subprocess.run(
        [TUNEYARD, "schedule", "run", str(file), "--until", "now"], check=False, capture_output=True, text=True, timeout=100, env=_fast()
    )
    assert again.returncode == 0, again.stderr
    assert "goes on" in again.stderr
    assert [(run["kind"], run["verdict"]) for run in runs()] == [("now", "good")]
    third = subprocess.run([TUNEYARD, "schedule", "run", str(file), "--until", "now"], check=False, capture_output=True, timeout=100)
    assert (third.returncode, len(runs())) == (0, 1)


def test_ctrl_c_ends_a_runner_cleanly_and_two_runners_never_follow_one_folder(tmp_path: Path) -> None:
    file = write(tmp_path, cron="0 0 1 1 *")
    with subprocess.Popen([TUNEYARD, "schedule", "run", str(file)], stderr=subprocess.PIPE, text=True) as process:
        _until(lambda: Path("runs/nightly/schedule.json").exists(), "the runner follows the Schedule")
        assert main(["schedule", "run", str(file)]) == 2
        assert main(["schedule", "run", str(file), "--until", "now"]) == 0
        assert main(["schedule", "run", str(file), "--until", "2020-01-01T00:00Z"]) == 2
        assert main(["schedule", "pause", "nightly", "--local", "runs"]) == 0
        _until(lambda: json.loads(Path("runs/nightly/schedule.json").read_text())["status"]["message"] == "suspended", "it is paused")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_a_run_whose_job_is_wrong_fails_and_the_next_night_runs(tmp_path: Path) -> None:
    file = write(tmp_path, "exit 3")
    clock, said = HandedIn(), list[str]()
    assert not runner(file, clock, said).run(never, at_hour(6))
    (run,) = runs()
    assert run["verdict"] == "failed"
    assert any("exited" in line or "exit" in line for line in said), said


def test_two_data_folders_with_one_output_take_no_results_of_each_other(tmp_path: Path) -> None:
    """The same Schedule on two machines: the run of the second cannot write, and is no run of the first."""
    task = {"name": "count", "process": {"command": ["bash", "-c", f"echo run | tee -a {tmp_path}/marks > $TUNEYARD_OUTPUT/out.txt"]}}
    file = write(tmp_path, template={"spec": {"tasks": [task], "storage": {"output": str(tmp_path / "outs")}}})
    said: list[str] = []
    assert runner(file, HandedIn(), said).run(never, at_hour(6))
    Path("runs/nightly").rename("runs/first")
    assert not runner(file, HandedIn(), said).run(never, at_hour(6))
    (run,) = runs()
    assert (run["verdict"], run["figures"]) == ("failed", [])
    assert "holds a job already" in run["message"], said
    assert (tmp_path / "marks").read_text() == "run\n"


def test_a_drop_is_found_over_the_same_rows_and_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """400 rows, of which 5 in 100 turn wrong: as two samples of rows, the two nights do not differ."""
    rows = [f"question {number}" for number in range(400)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"prompt": each, "answer": f"answer to {each}"}) + "\n" for each in rows))
    wrong = set(rows[:120])
    with OpenAIServer(key=None, answer=lambda prompt: "no" if prompt in wrong else f"answer to {prompt}") as server:
        score = {
            "data": {"source": "rows.jsonl", "reference": "answer"},
            "engine": {"endpoint": {"url": server.url, "model": MODEL, "atOnce": 16}},
            "metrics": ["exact_match"],
        }
        template = {"spec": {"tasks": [{"name": "judge", "score": score}], "storage": {"output": "evals"}}}
        file = write(tmp_path, template=template, regression={"exact_match": {"worseBy": "2%"}})
        clock, said = HandedIn(), list[str]()
        assert runner(file, clock, said).run(never, at_hour(12))
        wrong |= set(rows[120:140])
        assert not runner(file, clock, said).run(never, at_hour(24 + 12))
    first, second = runs()
    assert (second["verdict"], second["rowsComparedWith"]) == ("regressed", first["name"]), said
    assert "exact_match of judge is 0.65 over the same 400 rows, 7.1% worse than 0.7" in second["message"]
    last = LastGood.of(ScheduleFolder(Path("runs/nightly")).job(second["name"])["metadata"]["annotations"])
    assert last == LastGood(first["name"], str(tmp_path / "evals" / first["name"])), "it is found from any folder"
    assert main(["schedule", "accept", "nightly", "--local", "runs", "--run", first["name"]]) == 2
    assert main(["schedule", "accept", "nightly", "--local", "runs"]) == 0
    assert runner(file, clock, said).run(never, at_hour(24 + 13))
    assert [run["verdict"] for run in runs()] == ["good", "accepted"], said
    capsys.readouterr()
    assert main(["schedule", "history", "nightly", "--local", "runs"]) == 0
    assert f"{first['name']}, same rows" in capsys.readouterr().out


def _fast() -> dict[str, str]:
    import os

    return {**os.environ, "PAUSE": "0"}


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _until(condition: Any, what: str, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"not within {limit_s:g} s: {what}")
