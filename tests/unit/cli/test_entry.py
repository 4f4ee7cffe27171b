"""What a person sees of the command line: help at once, errors in two lines, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tuneyard import __version__
from tuneyard.api import JobFailed
from tuneyard.cli import main
from tuneyard.cli.commands import COMMANDS, Command, root_help

HEAVY = ("torch", "ray", "vllm", "transformers", "pydantic", "typer", "rich", "yaml")
TUNEYARD = Path(sys.executable).parent / "tuneyard"


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_all_commands_and_examples(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert shown == root_help()
    assert "Examples:\n  tuneyard validate job.yaml" in shown
    assert all((f"\n  {command.name} " in shown) is not command.hidden for command in COMMANDS)


def test_help_loads_nothing_heavy() -> None:
    code = f"import sys; from tuneyard.cli import main; main(['--help']); print([m for m in {HEAVY!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


@pytest.mark.parametrize("module", ["validate", "schema", "output", "checks"])
def test_commands_load_no_training_stack(module: str) -> None:
    code = f"import sys, tuneyard.cli.{module}; print([m for m in {HEAVY[:4]!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tuneyard {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["vaildate"], "error: there is no command 'vaildate'\nnext: did you mean `tuneyard validate`?\n"),
        (["zzz"], "error: there is no command 'zzz'\nnext: tuneyard --help lists all commands\n"),
        (["--verbose"], "error: there is no option '--verbose'\nnext: tuneyard --help lists all commands\n"),
        (["validate"], "error: missing argument 'FILE...'\nnext: tuneyard validate --help\n"),
        (
            ["completion", "powershell"],
            "error: invalid value for 'shell': 'powershell' is not one of 'bash', 'zsh', 'fish'\nnext: tuneyard completion --help\n",
        ),
        (["schema", "crds"], "error: no such command 'crds'. Did you mean 'crd'?\nnext: tuneyard schema --help\n"),
    ],
)
def test_a_wrong_line_is_answered_with_the_right_one(argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err == expected


def test_help_of_a_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "tuneyard validate" in shown
    assert "Example: tuneyard validate jobspecs/*.yaml" in shown


def fails() -> None:
    raise JobFailed("the disk is full", "free some space")


def breaks() -> None:
    raise ZeroDivisionError("division by zero")


def stops() -> None:
    raise KeyboardInterrupt


def answers_three() -> None:
    raise typer.Exit(3)


@pytest.fixture
def extra_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that end in every way a command can end."""
    module = sys.modules[fails.__module__]
    monkeypatch.setitem(sys.modules, "cli_endings", module)
    extra = tuple(Command(name, f"cli_endings:{name}", "") for name in ("fails", "breaks", "stops", "answers_three"))
    monkeypatch.setattr("tuneyard.cli.entry.COMMANDS", COMMANDS + extra)


@pytest.mark.usefixtures("extra_commands")
@pytest.mark.parametrize(
    ("argv", "code", "expected"),
    [
        (["fails"], 1, "error: the disk is full\nnext: free some space\n"),
        (
            ["breaks"],
            1,
            "error: bug in Tuneyard: ZeroDivisionError: division by zero\nnext: run again with --debug: tuneyard breaks --debug\n",
        ),
        (["stops"], 130, "error: interrupted\n"),
        (["answers_three"], 3, ""),
    ],
)
def test_every_ending_has_its_words_and_exit_code(argv: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == code
    assert capsys.readouterr().err == expected


@pytest.mark.usefixtures("extra_commands")
@pytest.mark.parametrize("argv", [["--debug", "breaks"], ["breaks", "--debug"], ["--debug", "fails"]])
def test_debug_shows_the_stack_wherever_it_stands(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_the_installed_command_runs() -> None:
    done = subprocess.run([TUNEYARD, "vaildate"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
