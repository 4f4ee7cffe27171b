"""`tuneyard console` as a process: its line, its port, its end, and who gets an answer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers.consoles import console, get, many_jobs, url_of

COMMAND = [str(Path(sys.executable).parent / "tuneyard"), "console", "--no-browser"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("console")
    many_jobs(url_of(made), 3)
    return made


def test_it_says_where_it_answers_and_ends_on_ctrl_c(folder: Path) -> None:
    environment = {**os.environ, "TUNEYARD_HISTORY_URL": url_of(folder)}
    with subprocess.Popen([*COMMAND, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        line = process.stdout.readline()
        assert line.startswith("console: http://127.0.0.1:")
        status, page = get(line.removeprefix("console: ").strip())
        assert (status, "job-1" in page) == (200, True)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_taken_port_is_refused_with_the_next_step(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        environment = {**os.environ, "TUNEYARD_HISTORY_URL": url_of(folder)}
        done = subprocess.run([*COMMAND, "--port", str(port)], capture_output=True, text=True, timeout=30, check=False, env=environment)
    assert done.returncode == 2
    assert f"port {port} of 127.0.0.1 cannot be used" in done.stderr
    assert "next: choose another with --port" in done.stderr


def test_other_hosts_and_other_users_get_no_page(folder: Path) -> None:
    with console(folder) as address:
        assert get(address, Host="attacker.example")[0] == 403
        port = int(address.rpartition(":")[2])
        with socket.socket() as elsewhere:
            ours = socket.gethostbyname(socket.gethostname())
            assert ours.startswith("127.") or elsewhere.connect_ex((ours, port)) != 0
        if os.geteuid() != 0 or not Path("/proc/net/tcp").exists():
            pytest.skip("NO OTHER USER: run as root on Linux")
        command = ["curl", "-s", "-w", "%{http_code}", address]
        seen = subprocess.run(command, capture_output=True, text=True, user="nobody", check=True).stdout
        assert seen.endswith("403")
        assert "job-1" not in seen
