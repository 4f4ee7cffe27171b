"""A job whose ranks are forks: the losses of a cold start, one gang for all its train tasks, and nothing left whatever is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from tests.integration.runtime.conftest import STEPS, TUNEYARD, WriteJob, environment, read_report, train, tuneyard
from tests.integration.runtime.test_run_trains import wait_for

from tuneyard.runtime.gang.mailbox import is_alive
from tuneyard.warm import temporary_folder

OWN = {"TUNEYARD_WARM_SERVERS": ""}
COLD = {"TUNEYARD_WARM_SERVERS": "off"}


def two_tasks(**changes: Any) -> list[dict[str, Any]]:
    first, second = ({"name": name, "train": train(**changes), "resources": {"workers": 2}} for name in ("first", "second"))
    return [first, {**second, "dependsOn": ["first"]}]


def begun(job: Path, out: Path, **changes: str) -> subprocess.Popen[str]:
    command = [*TUNEYARD, "run", str(job), "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(**changes))


def servers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    below = psutil.Process(process.pid).children(recursive=True)
    return [each for each in below if "tuneyard.warm.server" in each.cmdline() and each.ppid() == process.pid]


def test_losses_are_those_of_a_cold_start(write_job: WriteJob, tmp_path: Path) -> None:
    job = write_job(*two_tasks(steps=6))
    warm = tuneyard("run", job, "--out", tmp_path / "warm", **OWN)
    assert warm.returncode == 0, warm.stderr
    assert "starts cold" not in warm.stderr
    assert "start cold" not in warm.stderr
    cold = tuneyard("run", write_job(two_tasks(steps=6)[0]), "--out", tmp_path / "cold", **COLD)
    assert cold.returncode == 0, cold.stderr
    losses = [read_report(tmp_path / "cold")["tasks"]["first"]["losses"]]
    losses += [task["losses"] for task in read_report(tmp_path / "warm")["tasks"].values()]
    assert losses[0] == losses[1] == losses[2]
    log = (tmp_path / "warm/logs/warm-training.log").read_text()
    assert "Traceback" not in log


def test_a_server_that_is_killed_costs_a_cold_start_and_no_step(write_job: WriteJob, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begun(write_job(*two_tasks()), out, **OWN)
    wait_for(out / "first/checkpoints/step-5.1/manifest.json", process)
    (server,) = servers_of(process)
    server.kill()
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert said.count("ranks start cold: no fork server answers") == 1
    report = read_report(out)
    assert [len(task["attempts"]) for task in report["tasks"].values()] == [1, 1]
    assert report["tasks"]["first"]["losses"] == report["tasks"]["second"]["losses"]


def test_an_agent_that_is_killed_costs_an_attempt_and_no_step(write_job: WriteJob, tmp_path: Path) -> None:
    """Its rank goes with it: the gang is made anew, and goes on from the last checkpoint."""
    out = tmp_path / "out"
    process = begun(write_job(two_tasks()[0]), out, **OWN)
    wait_for(out / "first/checkpoints/step-5.1/manifest.json", process)
    below = psutil.Process(process.pid).children(recursive=True)
    agent = next(each for each in below if "RayTrainWorker" in " ".join(each.cmdline()))
    agent.kill()
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    task = read_report(out)["tasks"]["first"]
    assert [attempt.get("failure") for attempt in task["attempts"]] == ["NodeLost", None]
    assert task["resumed_from"] >= 5
    assert len(task["losses"]) == STEPS


def test_nothing_is_left_of_a_job_whose_driver_is_killed(write_job: WriteJob, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begun(write_job(*two_tasks(steps=50 * STEPS)), out, **OWN)
    wait_for(out / "first/checkpoints/step-5.1/manifest.json", process)
    below = psutil.Process(process.pid).children(recursive=True)
    commands = [each.cmdline() for each in below]
    assert any("tuneyard.warm.server" in command for command in commands)
    folders = {Path(found) for command in commands for found in re.findall(r"/tmp/ty-(?:ray|warm)-\w{8}", " ".join(command))}
    assert len(folders) == 2, "Ray's and the server's"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 300
    while left := [each.pid for each in below if is_alive(each.pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    for prefix in ("ty-ray-", "ty-warm-"):  # as the next job does
        with temporary_folder(prefix, Path("/tmp")):
            pass
    assert not any(folder.exists() for folder in folders)


def test_a_server_that_refused_is_no_failure_and_the_job_says_its_reason(write_job: WriteJob, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "tuneyard.warm.server", "--socket", tmp_path / "training", "--modules", "ray"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert refused.returncode == 1
    assert not (tmp_path / "training").exists()
    job = write_job({"name": "first", "train": train(steps=2), "resources": {"workers": 1}})
    done = tuneyard("run", job, "--out", tmp_path / "out", TUNEYARD_WARM_SERVERS=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ranks start cold: the fork server refused: Ray is loaded") == 1
