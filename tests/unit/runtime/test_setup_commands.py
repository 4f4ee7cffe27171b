"""One meaning of `setup`: what its commands leave in the environment is the same here and in the containers of a hub's job."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from tuneyard.api import JobFailed
from tuneyard.runtime.environment import environment
from tuneyard.runtime.setup_commands import forget, run_once, run_setup, set_up
from tuneyard_operators.rendering import container

SCRIPTS: dict[str, list[str]] = {
    "an exported token": ["export TOKEN=s3cret-value"],
    "a later command sees an earlier one's variable": ["export A=1", "export B=$((A + 1))"],
    "a variable that is not exported": ["A=1", "export B=${A:-none}"],
    "PATH": ['export PATH="$PATH:/opt/mine"'],
    "HOME is unset": ["unset HOME"],
    "lines, quotes and blanks": ["export LINES_OF=$'one\\ntwo  three'", 'export QUOTED="it\'s \\"so\\""'],
    "a file that is sourced": ["echo 'export FROM_FILE=yes' > sourced.sh", ". ./sourced.sh"],
    "a subshell changes nothing": ["(export INSIDE=1; exit 0)"],
    "a function": ["mark() { export MARKED=$1; }", "mark twice"],
    "strict shells": ["set -eu", "export STRICT=1"],
    "a program that runs on": ["sleep 60 & export PID_OF=set"],
    "a command that reads": ['read -r line || export READ="nothing"'],
}
FAILING: dict[str, tuple[list[str], str]] = {
    "a command that fails": (["true", "ls /no/such/folder", "touch never"], "`ls /no/such/folder` ended with exit code 2"),
    "exit with a code": (["exit 4"], "`exit 4` ended with exit code 4"),
    "exit with 0": (["export A=1", "exit 0", "touch never"], "`exit 0` called exit"),
    "a word that is no command": (["nosuchcommand --now"], "`nosuchcommand --now` ended with exit code 127"),
    "a syntax error": (["if true"], "`if true` ended with exit code"),
}


def here(commands: list[str], folder: Path) -> dict[str, str | None]:
    return dict(run_setup(commands, log=folder / "logs" / "setup.log"))


def in_a_container(commands: list[str], folder: Path) -> tuple[int, dict[str, str], list[str]]:
    """Exit code of the container's shell, the environment in which it starts Ray, and the words for the termination message."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {folder}/told\n')
    (programs / "python").chmod(0o755)
    _, _, script = container.command(commands, wait_for_head=False)
    script = script.replace(container.SCRATCH, str(folder))
    start = f"/usr/bin/env -0 > {folder}/environment"
    variables = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "KUBERAY_GEN_RAY_START_CMD": start}
    done = subprocess.run(["/bin/bash", "-c", script], env=variables, check=False, stdin=subprocess.DEVNULL, timeout=60)
    kept, told = folder / "environment", folder / "told"
    entries = kept.read_text().split("\0") if kept.exists() else []
    found = {entry.partition("=")[0]: entry.partition("=")[2].replace(f"{programs}:", "") for entry in entries if entry}
    return done.returncode, found, told.read_text().splitlines() if told.exists() else []


@pytest.mark.parametrize("name", SCRIPTS)
def test_setup_means_the_same_here_and_in_a_container(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    changes = here(SCRIPTS[name], tmp_path)
    code, there, _ = in_a_container(SCRIPTS[name], tmp_path)
    assert code == 0
    own = {"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "KUBERAY_GEN_RAY_START_CMD"}
    of_container = {name: there.get(name) for name in (there.keys() | os.environ.keys()) - own if there.get(name) != os.environ.get(name)}
    assert changes == of_container
    assert changes or "subshell" in name


@pytest.mark.parametrize("name", FAILING)
def test_a_command_that_fails_is_named_here_and_in_a_container(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands, words = FAILING[name]
    with pytest.raises(JobFailed, match=r"the setup command") as error:
        here(commands, tmp_path)
    assert words in error.value.cause
    code, there, told = in_a_container(commands, tmp_path)
    assert code != 0
    assert not there
    assert told[-1] in words
    assert not (tmp_path / "never").exists()


def test_secrets_reach_the_tasks_and_no_log(tmp_path: Path) -> None:
    log = tmp_path / "setup.log"
    with environment({"GREETING": "s3cret-value"}):
        commands = ["echo value: $GREETING", "export API_TOKEN=another-secret", "echo $API_TOKEN"]
        with set_up(commands, log=log, secrets=["s3cret-value"]):
            assert os.environ["API_TOKEN"] == "another-secret"
        assert "API_TOKEN" not in os.environ
    text = log.read_text()
    assert "value: ***" in text
    assert "s3cret-value" not in text
    assert "another-secret" not in text


def test_no_line_of_a_secret_is_in_the_log(tmp_path: Path) -> None:
    commands = ["export MY_SECRET=$'line-one-AAAA\\nline-two-BBBB'", 'echo "$MY_SECRET" | sed "s/^/> /"', 'echo "$MY_SECRET" | tail -1']
    run_setup(commands, log=tmp_path / "setup.log")
    assert not [part for part in ("one-AAAA", "two-BBBB") if part in (tmp_path / "setup.log").read_text()]


def test_setup_runs_once_for_the_processes_of_a_machine_and_again_for_another_run(tmp_path: Path) -> None:
    commands, runs = [f"echo x >> {tmp_path}/times; export A=1; unset HOME"], [f"test-{os.getpid()}-{n}" for n in range(2)]
    try:
        found = [run_once(commands, secrets=[], run=run) for run in (runs[0], runs[0], runs[1])]
    finally:
        for run in runs:
            forget(run)
    assert [dict(each) for each in found] == [{"A": "1", "HOME": None}] * 3
    assert (tmp_path / "times").read_text() == "x\nx\n"
    assert not list(Path("/dev/shm").glob(f"*test-{os.getpid()}-*"))


def test_the_last_lines_of_a_command_that_fails_are_told(tmp_path: Path) -> None:
    with pytest.raises(JobFailed) as error:
        here(["echo before", f"cat {shlex.quote(str(tmp_path))}/no-such-file"], tmp_path)
    assert "No such file or directory" in error.value.cause
    assert "before" not in error.value.cause


def test_what_setup_leaves_running_ends_with_the_job(tmp_path: Path) -> None:
    with set_up([f"sleep 600 & echo $! > {tmp_path}/pid"], log=tmp_path / "setup.log"):
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, 0)
    limit = time.monotonic() + 60
    while time.monotonic() < limit and Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_setup_that_never_ends_can_be_stopped(tmp_path: Path) -> None:
    asked: list[float] = []

    def should_stop() -> bool:
        asked.append(time.monotonic())
        return len(asked) > 3

    with set_up(["export A=1; sleep 600"], log=tmp_path / "setup.log", should_stop=should_stop):
        assert "A" not in os.environ
