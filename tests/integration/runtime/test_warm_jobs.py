"""A job whose ranks are forks: the losses of a cold start, one gang for all its train tasks, and nothing left whatever is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.clusters.machines import shared_warm_servers
from tests.integration.runtime.conftest import (
    STEPS,
    TUNEYARD,
    RunJoined,
    WriteJob,
    environment,
    read_report,
    short_train,
    train,
    wait_for,
    write_jobspec,
)

from tuneyard.cli import main
from tuneyard.runtime.gang.mailbox import is_alive
from tuneyard.warm import temporary_folder

OWN = {"TUNEYARD_WARM_SERVERS": ""}


@pytest.mark.long
def test_losses_are_those_of_a_cold_start_where_no_server_is_there(
    write_job: WriteJob, run_joined: RunJoined, one_worker: dict[str, Any], tmp_path: Path
) -> None:
    """Servers that are not there are no failure. In `make test`: `test_a_server_that_refused_is_no_failure_and_the_job_says_its_reason`,
    and `test_a_server_that_dies_while_it_is_asked_means_a_cold_start`, which asks where no server is."""
    job = write_job({"name": "short", "train": short_train(), "resources": {"workers": 1}})
    done = run_joined(job, tmp_path / "out", TUNEYARD_WARM_SERVERS=str(tmp_path / "nowhere"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ranks start cold: no fork server answers") == 1
    assert read_report(tmp_path / "out")["tasks"]["short"]["losses"] == one_worker["short"]["losses"]


@pytest.mark.long
def test_servers_may_be_off(write_job: WriteJob, run_joined: RunJoined, one_worker: dict[str, Any], tmp_path: Path) -> None:
    """In `make test`: `test_a_server_that_refused_is_no_failure_and_the_job_says_its_reason`."""
    job = write_job({"name": "short", "train": short_train(), "resources": {"workers": 1}})
    done = run_joined(job, tmp_path / "out", TUNEYARD_WARM_SERVERS="off")
    assert done.returncode == 0, done.stderr
    assert "start cold" not in done.stderr
    assert read_report(tmp_path / "out")["tasks"]["short"]["losses"] == one_worker["short"]["losses"]


def test_a_server_that_is_killed_costs_a_cold_start_and_no_step(write_job: WriteJob, run_joined: RunJoined, tmp_path: Path) -> None:
    tasks = [{"name": name, "train": train(steps=STEPS // 2), "resources": {"workers": 1}} for name in ("first", "second")]
    job, out, servers = write_job(*tasks), tmp_path / "out", tmp_path / "servers"
    servers.mkdir()

    def kill() -> None:
        wait_for(out / "first/checkpoints/step-5.1/manifest.json")
        (server,) = [each for each in psutil.Process().children() if str(servers / "training") in each.cmdline()]
        server.kill()

    with shared_warm_servers(servers, environment(), "training"), ThreadPoolExecutor(1) as beside:
        killed = beside.submit(kill)
        done = run_joined(job, out)
        killed.result()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ranks start cold: no fork server answers") == 1
    report = read_report(out)
    assert [len(task["attempts"]) for task in report["tasks"].values()] == [1, 1]
    assert report["tasks"]["first"]["losses"] == report["tasks"]["second"]["losses"]


@dataclass(frozen=True)
class Killed:
    """A job of two train tasks of two workers. An agent was killed in the first, and the command in the second."""

    out: Path
    processes: list[psutil.Process]
    """All that the command had started when it was killed."""
    commands: list[str]
    """Their command lines."""
    folders: set[Path]
    """Temporary folders of Ray and of the fork server."""


@pytest.fixture(scope="module")
def killed(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    bodies = {"first": train(), "second": train(steps=50 * STEPS, checkpoint={"everySteps": 5, "keep": 50})}
    tasks = [{"name": name, "train": body, "resources": {"workers": 2}} for name, body in bodies.items()]
    out = tmp_path_factory.mktemp("killed") / "out"
    command = [*TUNEYARD, "run", str(write_jobspec(inputs / "killed.yaml", *tasks)), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(**OWN))
    wait_for(out / "first/checkpoints/step-5.1/manifest.json", process)
    started = psutil.Process(process.pid).children(recursive=True)
    next(each for each in started if "RayTrainWorker" in " ".join(each.cmdline())).kill()
    wait_for(out / "second/checkpoints/step-5.1/manifest.json", process)
    started = psutil.Process(process.pid).children(recursive=True)
    commands = [" ".join(each.cmdline()) for each in started]
    assert any("tuneyard.warm.server" in command for command in commands)
    folders = {Path(found) for command in commands for found in re.findall(r"/tmp/ty-(?:ray|warm)-\w{8}", command)}
    assert len(folders) == 2, "Ray's and the server's"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return Killed(out, started, commands, folders)


def test_an_agent_that_is_killed_costs_an_attempt_and_no_step(killed: Killed) -> None:
    """The agent's rank ends too. A new gang resumes from the last checkpoint."""
    task = read_report(killed.out)["tasks"]["first"]
    assert task["status"] == "succeeded"
    assert [attempt.get("failure") for attempt in task["attempts"]] == ["NodeLost", None]
    assert task["resumed_from"] >= 5
    assert len(task["losses"]) == STEPS


def test_a_job_whose_driver_is_killed_is_called_killed(killed: Killed, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(killed.out)]) == 0
    assert ": killed: no process works on it any more" in capsys.readouterr().out.splitlines()[0]


def test_a_gang_has_none_of_ray_trains_helpers(killed: Killed) -> None:
    """Each would be a process that imports for two seconds."""
    assert any("RayTrainWorker" in command for command in killed.commands)
    helpers = ("SynchronizationActor", "DatasetManager", "PlacementGroupCleaner", "AutoscalingCoordinator")
    assert [command for command in killed.commands if any(helper in command for helper in helpers)] == []


def test_nothing_is_left_of_a_job_whose_driver_is_killed(killed: Killed) -> None:
    deadline = time.monotonic() + 300
    while left := [each.pid for each in killed.processes if is_alive(each.pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    for prefix in ("ty-ray-", "ty-warm-"):  # as the next job does
        with temporary_folder(prefix, Path("/tmp")):
            pass
    assert not any(folder.exists() for folder in killed.folders)


def test_a_server_that_refused_is_no_failure_and_the_job_says_its_reason(
    write_job: WriteJob, run_joined: RunJoined, one_worker: dict[str, Any], tmp_path: Path
) -> None:
    """The losses are those of a rank that was forked."""
    command = [sys.executable, "-P", "-m", "tuneyard.warm.server", "--socket", tmp_path / "training", "--modules", "ray"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert refused.returncode == 1
    assert not (tmp_path / "training").exists()
    job = write_job({"name": "short", "train": short_train(), "resources": {"workers": 1}})
    done = run_joined(job, tmp_path / "out", TUNEYARD_WARM_SERVERS=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ranks start cold: the fork server refused: Ray is loaded") == 1
    assert read_report(tmp_path / "out")["tasks"]["short"]["losses"] == one_worker["short"]["losses"]
