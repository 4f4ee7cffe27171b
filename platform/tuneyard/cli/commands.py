"""The list of commands: what `tuneyard --help` shows, and where each one lives. Read without importing any of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import typer


class Command(NamedTuple):
    """`target` is `module:name` of a typer app (a group, or one command), or of a function that typer can read."""

    name: str
    target: str
    help: str
    hidden: bool = False
    """Not for people: the root help leaves it out."""
    asks_hub: bool = False
    """Shows what others have written; also a verb of `kubectl tuneyard`."""


COMMANDS = (
    Command("init", "tuneyard.cli.init:init", "Look at your data, and write a commented JobSpec that trains on it"),
    Command("validate", "tuneyard.cli.validate:validate", "Check JobSpecs and other files: every error with its line"),
    Command("plan", "tuneyard.cli.plan:app", "Say how each train task would run, and whether it fits in memory"),
    Command("run", "tuneyard.cli.run:run", "Run a job on this machine"),
    Command("tune", "tuneyard.cli.tune:tune", "Find the settings under which a train or rank task is fastest here"),
    Command("generate", "tuneyard.cli.generate:generate", "Put prompts to a model that a job has trained, and print its answers"),
    Command("submit", "tuneyard.cli.submit:submit", "Give a job to the hub, which runs it on a cluster with room", asks_hub=True),
    Command("status", "tuneyard.cli.status:status", "Show the jobs of the hub, or all that is known of one", asks_hub=True),
    Command("why", "tuneyard.cli.why:why", "Say why a job waits, cluster by cluster, and when it is expected to start", asks_hub=True),
    Command("wait", "tuneyard.cli.wait:wait", "Wait until a job on the hub has ended", asks_hub=True),
    Command(
        "logs", "tuneyard.cli.logs:logs", "Show what the ranks of a job have printed, on any cluster, live and afterwards", asks_hub=True
    ),
    Command("cancel", "tuneyard.cli.cancel:cancel", "End a job on the hub, at a checkpoint", asks_hub=True),
    Command("clusters", "tuneyard.cli.clusters:clusters", "List the clusters of the hub, and what is free there", asks_hub=True),
    Command("usage", "tuneyard.cli.usage:usage", "GPU-hours and cost by team, job and kind of GPU, and what stood idle", asks_hub=True),
    Command("report", "tuneyard.cli.report:report", "Show the report of a job that ran"),
    Command("checkpoints", "tuneyard.cli.checkpoints:app", "List, check, convert and remove checkpoints"),
    Command("simulate", "tuneyard.cli.simulate:simulate", "Replay a trace of jobs on clusters, under one scheduling policy or several"),
    Command("history", "tuneyard.cli.history:app", "Look at earlier runs"),
    Command("data", "tuneyard.cli.data:app", "Look at data sets"),
    Command("attempt", "tuneyard.cli.attempt:attempt", "Run one attempt for a hub, in its pod", hidden=True),
    Command("schema", "tuneyard.cli.schema:app", "Print the CRDs, or the JSON schema for editors"),
    Command("completion", "tuneyard.cli.completion:completion", "Print what completes commands and names in bash, zsh or fish"),
)

_INTRODUCTION = """\
Fine-tune and score language models from one YAML file, on this machine or on a company's clusters.

Usage: tuneyard [--debug] COMMAND [ARGS]...
"""

_REST = """\
Options:
  --debug    show stack traces of errors
  --version  print the version
  --help     this page; `tuneyard COMMAND --help` tells more of one command

Examples:
  tuneyard validate job.yaml
  tuneyard plan job.yaml -o json
  tuneyard run job.yaml --out runs/first
  tuneyard submit job.yaml --wait
"""


def typer_app(command: Command) -> typer.Typer:
    """The app of a command, imported now."""
    import typer

    module, _, name = command.target.partition(":")
    target = getattr(import_module(module), name)
    if isinstance(target, typer.Typer):
        return target
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(command.name)(target)
    return app


def root_help() -> str:
    """What `tuneyard --help` prints."""
    shown = [command for command in COMMANDS if not command.hidden]
    width = max(len(command.name) for command in shown)
    lines = [f"  {command.name:<{width}}  {command.help}" for command in shown]
    return "\n".join([_INTRODUCTION, "Commands:", *lines, "", _REST])
