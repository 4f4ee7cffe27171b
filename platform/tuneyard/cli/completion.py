"""`tuneyard completion`: the script for a shell, and the answer to each Tab.

Typer makes both. The script calls `tuneyard` with `_TUNEYARD_COMPLETE` set, and with the typed words in further variables. Only the command
of the line is imported for an answer, so that a Tab after `tuneyard` imports none.
"""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.completion import completion_init, get_completion_script, shell_complete  # type: ignore[attr-defined] # imported there
from typer.core import TyperGroup
from typer.main import get_command

from tuneyard.cli.commands import COMMANDS, Command, typer_app

VARIABLE = "_TUNEYARD_COMPLETE"
"""`entry` repeats this name, because it reads the variable before any import."""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="the shell to complete in")]) -> None:
    """Print the script that completes commands, options and names of jobs in a shell.

    \b
    bash, in ~/.bashrc:                    eval "$(tuneyard completion bash)"
    zsh, in ~/.zshrc, after compinit:      eval "$(tuneyard completion zsh)"
    fish, in ~/.config/fish/config.fish:   tuneyard completion fish | source

    Example: eval "$(tuneyard completion bash)"
    """
    typer.echo(get_completion_script(prog_name="tuneyard", complete_var=VARIABLE, shell=shell.value))


def answer() -> int:
    """Print the completions of the words that the shell has put into the environment."""
    completion_init()
    return shell_complete(_root(), {}, "tuneyard", VARIABLE, os.environ[VARIABLE])


class _Root(TyperGroup):
    """All commands by name. Only the command of the line is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        found = next((command for command in COMMANDS if command.name == args[0]), None)
        return super().resolve_command(ctx, args) if found is None else (found.name, get_command(typer_app(found)), args[1:])


def _root() -> Any:
    app = typer.Typer(cls=_Root, add_completion=False)
    for command in COMMANDS:
        _name_only(app, command)
    return get_command(app)


def _name_only(app: typer.Typer, command: Command) -> None:
    @app.command(command.name, short_help=command.help, hidden=command.hidden)
    def named() -> None:
        """Never called."""
