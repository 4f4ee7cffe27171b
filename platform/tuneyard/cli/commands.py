"""The list of commands for `tuneyard --help`, with the module of each. Reading it imports none of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import typer


class Command(NamedTuple):
    """One command. `target`: `module:name` of a typer app (a group, or one command), or of a function that typer can read."""

    name: str
    target: str
    help: str
    hidden: bool = False
    """The root help leaves it out: it is not for people."""
    asks_hub: bool = False
    """It is a verb of `kubectl tuneyard`."""
    shows_others: bool = False
    """It may print texts of other people without asking the hub first."""
    outlives_output: bool = False
    """It goes on where its output cannot be written."""

    @property
    def is_guarded(self) -> bool:
        """Whether it may print texts of other people."""
        return self.asks_hub or self.shows_others


COMMANDS = (
    Command("init", "tuneyard.cli.init.command:init", "Look at your data, and write a commented JobSpec that trains on it"),
    Command("validate", "tuneyard.cli.validate:validate", "Check JobSpecs and other files: every error with its line"),
    Command("plan", "tuneyard.cli.plan.command:app", "Show the plan of each train task, and its memory against its machines'"),
    Command("run", "tuneyard.cli.run:run", "Run a job on this machine", outlives_output=True),
    Command("tune", "tuneyard.cli.tune:tune", "Find the settings under which a task is fastest here"),
    Command("generate", "tuneyard.cli.generate:generate", "Print the answers of a model to prompts"),
    Command("chat", "tuneyard.cli.chat.command:chat", "Chat with a model, tuned and as it was before"),
    Command("serve", "tuneyard.cli.serve:serve", "Serve a model and its adapters with OpenAI's API"),
    Command("submit", "tuneyard.cli.submit.command:submit", "Give a job to the hub, which runs it on a cluster with room", asks_hub=True),
    Command("status", "tuneyard.cli.jobs.status:status", "Show the jobs of the hub, or one job in full", asks_hub=True),
    Command("why", "tuneyard.cli.jobs.why:why", "Show why a job waits, cluster by cluster, and its expected start", asks_hub=True),
    Command("wait", "tuneyard.cli.jobs.wait:wait", "Wait for the end of a job on the hub", asks_hub=True),
    Command("logs", "tuneyard.cli.logs.command:logs", "Show the logs of a job's ranks, on any cluster, live and afterwards", asks_hub=True),
    Command("cancel", "tuneyard.cli.jobs.cancel:cancel", "End a job on the hub, at a checkpoint", asks_hub=True),
    Command("suspend", "tuneyard.cli.jobs.hold:suspend", "Hold a job on the hub, and give its machines back", asks_hub=True),
    Command("resume", "tuneyard.cli.jobs.hold:resume", "Let a suspended job on the hub go on", asks_hub=True),
    Command("clusters", "tuneyard.cli.clusters:clusters", "List the clusters of the hub, with their free GPUs", asks_hub=True),
    Command(
        "usage", "tuneyard.cli.usage:usage", "Show GPU-hours and cost by team, job and kind of GPU, with the idle share", asks_hub=True
    ),
    Command("schedule", "tuneyard.cli.schedule.command:app", "Follow, pause and backfill jobs that run on a schedule", asks_hub=True),
    Command("report", "tuneyard.cli.report:report", "Show the report of a run"),
    Command("compare", "tuneyard.cli.compare:compare", "Compare models row by row, from the outputs of their score tasks"),
    Command("checkpoints", "tuneyard.cli.checkpoints:app", "List, check, convert and remove checkpoints"),
    Command("merge", "tuneyard.cli.merge:merge", "Merge the adapter of a finished task into its base model"),
    Command("export", "tuneyard.cli.export:export", "Write a finished model as a folder, as GGUF for llama.cpp, or for Ollama"),
    Command("push", "tuneyard.cli.push:push", "Upload a finished model to the Hugging Face hub, or to a folder"),
    Command("verify", "tuneyard.cli.verify:verify", "Compare a model with its certificate, and train parts of its run again"),
    Command("sign", "tuneyard.cli.sign:sign", "Sign a model folder with a key"),
    Command(
        "simulate", "tuneyard.cli.simulate.command:simulate", "Replay a trace of jobs on clusters, under one scheduling policy or several"
    ),
    Command("history", "tuneyard.cli.history:app", "Look at earlier runs", shows_others=True),
    Command("console", "tuneyard.cli.console:console", "Show runs, or the jobs of a hub, in a browser"),
    Command("data", "tuneyard.cli.data.command:app", "Look at data sets"),
    Command("attempt", "tuneyard.cli.attempt:attempt", "Run one attempt for a hub, in its pod", hidden=True),
    Command("schema", "tuneyard.cli.schema:app", "Print the CRDs, or the JSON schema for editors"),
    Command("completion", "tuneyard.cli.completion:completion", "Print the completion script for bash, zsh or fish"),
)

_INTRODUCTION = """\
Fine-tune and score language models from one YAML file, on this machine or on a company's clusters.

Usage: tuneyard [--debug] COMMAND [ARGS]...
"""

_REST = """\
Options:
  --debug    show stack traces of errors
  --version  print the version
  --help     this page; `tuneyard COMMAND --help` describes one command

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
    """The text of `tuneyard --help`."""
    shown = [command for command in COMMANDS if not command.hidden]
    width = max(len(command.name) for command in shown)
    lines = [f"  {command.name:<{width}}  {command.help}" for command in shown]
    return "\n".join([_INTRODUCTION, "Commands:", *lines, "", _REST])
