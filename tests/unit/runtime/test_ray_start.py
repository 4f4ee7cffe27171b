"""A Ray that did not come up in time leaves no server beside the next try. An embedded Ray has a stand-in for the dashboard's agent."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

from tuneyard.runtime.sessions import agent_stand_in
from tuneyard.runtime.sessions.session import _end_processes_of


def test_servers_of_a_failed_start_are_ended_and_others_are_not(tmp_path: Path) -> None:
    wait = "import sys, time; time.sleep(600)"
    server, other = (
        subprocess.Popen([sys.executable, "-c", wait, f"--log_dir={folder}/logs"]) for folder in (tmp_path / "a", tmp_path / "b")
    )
    try:
        _end_processes_of(tmp_path / "a")
        assert server.wait(10) < 0
        assert other.poll() is None
    finally:
        server.kill()
        other.kill()


def test_a_stand_in_writes_the_ports_that_ray_waits_for_and_ends_with_the_raylet(tmp_path: Path) -> None:
    from ray import _raylet

    script = f"RAY_NODE_ID=abc RAY_RAYLET_PID=$$ {sys.executable} -S -E {agent_stand_in.__file__} --session-dir={tmp_path} --head & wait"
    raylet = subprocess.Popen(["sh", "-c", script])
    try:
        names = (_raylet.METRICS_AGENT_PORT_NAME, _raylet.METRICS_EXPORT_PORT_NAME, _raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME)
        while not all((tmp_path / f"{name}_abc").exists() for name in names):
            assert raylet.poll() is None
            time.sleep(0.01)
        assert {path.read_text() for path in tmp_path.iterdir()} == {"-1"}
        (stand_in,) = psutil.Process(raylet.pid).children()
        assert stand_in.is_running()
    finally:
        raylet.kill()
        raylet.wait()
    psutil.wait_procs([stand_in], timeout=60)
    assert not stand_in.is_running()
