"""`tuneyard completion`: a real bash completes with its script; what bash, fish and zsh ask at Tab is asked as their scripts do."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tuneyard.cli import main
from tuneyard.cli.commands import COMMANDS

Answer = Callable[..., tuple[object, str]]
PROGRAMS = Path(sys.executable).parent
STARTING_WITH_S = ["serve", "sign", "submit", "status", "suspend", "schedule", "simulate", "schema"]
_BASH = """
eval "$3"
words=($1)
COMP_WORDS=("${words[@]}" "$2")
COMP_CWORD=${#words[@]}
"$(complete -p tuneyard | sed 's/.*-F \\([^ ]*\\) .*/\\1/')" tuneyard
printf '%s\\n' "${COMPREPLY[@]}"
"""


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "KUBECONFIG": "/nowhere", **variables}


@functools.cache
def script() -> str:
    return subprocess.run(["tuneyard", "completion", "bash"], env=environment(), capture_output=True, text=True, check=True).stdout


def in_bash(line: str, partial: str = "") -> list[str]:
    """What Tab offers after the words of `line` and the first characters of the next one."""
    command = ["bash", "--norc", "-c", _BASH, "bash", line, partial, script()]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Answer:
    """Exit code and output of what the script of a shell runs at Tab, by the variables that the script sets."""

    def run(shell: str, **variables: str) -> tuple[object, str]:
        for name, value in {"_TUNEYARD_COMPLETE": f"complete_{shell}", "KUBECONFIG": "/nowhere", **variables}.items():
            monkeypatch.setenv(name, value)
        try:
            code: object = main([])
        except SystemExit as ended:  # how Typer answers fish
            code = ended.code
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("line", "partial", "offered"), [("tuneyard", "s", STARTING_WITH_S), ("tuneyard plan", "--s", ["--sku", "--sweep"])]
)
def test_bash_completes(line: str, partial: str, offered: list[str]) -> None:
    assert sorted(in_bash(line, partial)) == sorted(offered)


@pytest.mark.parametrize(
    ("line", "partial", "offered"),
    [
        ("tuneyard", "", [command.name for command in COMMANDS if not command.hidden]),
        ("tuneyard", "s", STARTING_WITH_S),
        ("tuneyard checkpoints", "", ["list", "verify", "convert", "prune"]),
        ("tuneyard plan", "--s", ["--sku", "--sweep"]),
        ("tuneyard completion", "", ["bash", "zsh", "fish"]),
        ("tuneyard status", "", []),  # no hub to ask for names, and no word about it
        ("tuneyard nonsense", "x", []),
    ],
)
def test_bash_is_told_what_comes_next(answer: Answer, line: str, partial: str, offered: list[str]) -> None:
    _, shown = answer("bash", COMP_WORDS=f"{line} {partial}", COMP_CWORD=str(len(line.split())))
    assert sorted(shown.split()) == sorted(offered)


def test_fish_is_told_what_each_command_does(answer: Answer) -> None:
    _, shown = answer("fish", _TYPER_COMPLETE_ARGS="tuneyard subm", _TYPER_COMPLETE_FISH_ACTION="get-args")
    (word, text) = shown.strip().split("\t")
    assert (word, text) == ("submit", "Give a job to the hub, which runs it on a cluster with room")
    code, _ = answer("fish", _TYPER_COMPLETE_ARGS="tuneyard subm", _TYPER_COMPLETE_FISH_ACTION="is-args")
    assert code == 0
    code, _ = answer("fish", _TYPER_COMPLETE_ARGS="tuneyard validate job", _TYPER_COMPLETE_FISH_ACTION="is-args")
    assert code == 1, "fish completes files"


def test_zsh_is_told_what_each_command_does(answer: Answer) -> None:
    _, shown = answer("zsh", _TYPER_COMPLETE_ARGS="tuneyard subm")
    assert '"submit":"Give a job to the hub, which runs it on a cluster with room"' in shown


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes() -> None:
    script = 'tuneyard completion fish | source; complete -C "tuneyard subm"'
    done = subprocess.run(["fish", "-c", script], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("submit\t")


def test_a_tab_after_the_name_loads_no_command() -> None:
    code = "import sys; from tuneyard.cli import main; main([]); print([m for m in sys.modules if m in ('tuneyard.cluster', 'numpy')])"
    named = {"_TUNEYARD_COMPLETE": "complete_bash", "COMP_WORDS": "tuneyard ", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment(**named), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_another_shell_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "csh"]) == 2
    assert "is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err
