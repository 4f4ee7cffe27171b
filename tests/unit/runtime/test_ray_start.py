"""A Ray that did not come up in time leaves no server beside the next try."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
