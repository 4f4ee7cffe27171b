"""`kubectl tuneyard …`: the commands that ask the hub, as a plugin of kubectl, with completions.

kubectl runs `kubectl-tuneyard` from PATH with the arguments after its name, and `kubectl_complete-tuneyard` with the typed words.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuneyard.cli.commands import COMMANDS

if TYPE_CHECKING:
    from tuneyard.cluster import Hub

VERBS = tuple(command.name for command in COMMANDS if command.asks_hub)
_OF_A_JOB = ("status", "why", "wait", "logs", "cancel")
_SCHEDULE_VERBS = ("run", "list", "show", "pause", "resume", "run-now", "history")
_WITH_VALUE = ("-n", "--namespace", "--context", "--kubeconfig")
_FILES, _NO_FILES = ":0", ":4"  # cobra's directives to the shell

_HELP = """\
Submit and watch Tuneyard's jobs on the hub.

Usage: kubectl tuneyard COMMAND [ARGS]... [-n NAMESPACE] [--context NAME] [--kubeconfig FILE]

Commands:
{commands}

`kubectl tuneyard COMMAND --help` describes one command. Commands that need no hub (plan, run, …): tuneyard --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one line after `kubectl tuneyard`. The exit codes are the same as for `tuneyard`."""
    args = verb_first(sys.argv[1:] if argv is None else list(argv))
    if not args or args[0] in ("--help", "-h", "help"):
        width = max(map(len, VERBS))
        lines = [f"  {command.name:<{width}}  {command.help}" for command in COMMANDS if command.name in VERBS]
        print(_HELP.format(commands="\n".join(lines)), end="")
        return 0
    if args[0] not in (*VERBS, "--version", "--debug"):
        known = any(command.name == args[0] for command in COMMANDS)
        hint = f"it asks no hub: tuneyard {args[0]}" if known else f"use one of: {', '.join(VERBS)}"
        print(f"error: kubectl tuneyard has no command {args[0]!r}\nnext: {hint}", file=sys.stderr)
        return 2
    from tuneyard.cli.entry import main as tuneyard

    return tuneyard(args)


def verb_first(args: Sequence[str]) -> list[str]:
    """`-n maps status x` -> `status x -n maps`: kubectl's flags may stand before the verb, typer's may not."""
    flags: list[str] = []
    rest = list(args)
    while rest and rest[0].startswith("-") and rest[0].partition("=")[0] in _WITH_VALUE:
        flags.append(rest.pop(0))
        if "=" not in flags[-1] and rest:
            flags.append(rest.pop(0))
    return [*rest, *flags] if rest else []


def complete() -> int:
    """Print one candidate per line, and cobra's directive. Never raises, since the shell shows no error on the line."""
    candidates, directive = _candidates(sys.argv[1:])
    print("\n".join([*candidates, directive]))
    return 0


def _candidates(words: Sequence[str]) -> tuple[list[str], str]:
    *before, partial = words or [""]
    typed = verb_first(before)
    if not typed:
        return [verb for verb in VERBS if verb.startswith(partial)], _NO_FILES
    if typed[0] == "submit" or typed[-1] == "--kubeconfig":
        return [], _FILES
    if typed[-1] == "--task":
        return [name for name in _tasks(typed) if name.startswith(partial)], _NO_FILES
    if typed[0] == "schedule" and not partial.startswith("-"):
        words = _positionals(typed[1:])
        found = _SCHEDULE_VERBS if not words else _schedules(typed) if len(words) == 1 and words[0] not in ("list", "run") else ()
        return [name for name in found if name.startswith(partial)], _FILES if words == ["run"] else _NO_FILES
    if typed[0] in _OF_A_JOB and not partial.startswith("-") and not _positionals(typed[1:]):
        return [name for name in _jobs(typed) if name.startswith(partial)], _NO_FILES
    return [], _NO_FILES


def _positionals(args: Sequence[str]) -> list[str]:
    found: list[str] = []
    skip = False
    for arg in args:
        if not skip and not arg.startswith("-"):
            found.append(arg)
        skip = arg in _WITH_VALUE
    return found


def _jobs(typed: Sequence[str]) -> list[str]:
    from tuneyard.api import TuneyardError

    try:
        return sorted(job.name for job in _hub(typed).jobs())
    except TuneyardError:
        return []


def _schedules(typed: Sequence[str]) -> list[str]:
    from tuneyard.api import TuneyardError

    try:
        return [schedule.name for schedule in _hub(typed).schedules()]
    except TuneyardError:
        return []


def _tasks(typed: Sequence[str]) -> list[str]:
    from tuneyard.api import TuneyardError

    names = _positionals(typed[1:-1])
    try:
        return [task.name for task in _hub(typed).job(names[0]).tasks] if names else []
    except TuneyardError:
        return []


def _hub(typed: Sequence[str]) -> Hub:
    """The hub that the flags typed so far name."""
    from tuneyard.cluster import open_hub

    def value(*names: str) -> str | None:
        for index, word in enumerate(typed):
            flag, _, own = word.partition("=")
            if flag in names:
                return own or (typed[index + 1] if index + 1 < len(typed) else None)
        return None

    return open_hub(namespace=value("-n", "--namespace"), context=value("--context"), kubeconfig=value("--kubeconfig"))
