"""From `sys.argv` to an exit code: finds the command, runs it, and prints its error in two lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tuneyard import __version__
from tuneyard.cli.commands import COMMANDS, Command, root_help, typer_app
from tuneyard.cli.lasting import lasting_output
from tuneyard.cli.terminal import guarded
from tuneyard.data.visible import visible

if TYPE_CHECKING:
    from tuneyard.api.errors import TuneyardError

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 ok, 1 failed, 2 bad input, 130 interrupted."""
    if "_TUNEYARD_COMPLETE" in os.environ:
        return _complete()
    args, debug = _take_debug(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("--help", "-h", "help"):
        print(root_help(), end="")
        return OK
    if args[0] == "--version":
        print(f"tuneyard {__version__}")
        return OK
    command = next((command for command in COMMANDS if command.name == args[0]), None)
    if command is None:
        return _refuse_command(args[0])
    with lasting_output() if command.outlives_output else nullcontext(), guarded() if command.is_guarded else nullcontext():
        return _run(command, args[1:], debug)


def _complete() -> int:
    """Answer a shell's Tab. Never raises, since the shell shows no error on the line."""
    try:
        from tuneyard.cli.completion import answer

        return answer()
    except Exception:  # noqa: BLE001 - nothing to offer
        return FAILED


def _take_debug(argv: Sequence[str]) -> tuple[list[str], bool]:
    """`--debug` may stand anywhere, so that a person can append it to a failed line."""
    own = list(argv).index("--") if "--" in argv else len(argv)
    return [arg for index, arg in enumerate(argv) if arg != "--debug" or index > own], "--debug" in argv[:own]


def _refuse_command(name: str) -> int:
    from difflib import get_close_matches

    kind = "option" if name.startswith("-") else "command"
    near = get_close_matches(name, [command.name for command in COMMANDS], n=1)
    _complain(f"there is no {kind} {name!r}", f"did you mean `tuneyard {near[0]}`?" if near else "tuneyard --help lists all commands")
    return BAD_INPUT


def _run(command: Command, args: list[str], debug: bool) -> int:
    from typer.exceptions import Abort, TyperException
    from typer.main import get_command

    from tuneyard.api.errors import TuneyardError

    try:
        program = get_command(typer_app(command))
        result = program.main(args=args, prog_name=f"tuneyard {command.name}", standalone_mode=False)
    except TyperException as error:
        _complain(_one_sentence(error.format_message()), _help_for(command, args))
        return BAD_INPUT
    except TuneyardError as error:
        _trace(debug)
        _complain(error.cause, error.next_step)
        return error.exit_code
    except (KeyboardInterrupt, Abort):
        result = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last handler: any error here is a bug, and a person still needs two lines
        _trace(debug)
        lacking = _lacking(error)
        if lacking is not None:
            _complain(lacking.cause, lacking.next_step)
            return lacking.exit_code
        again = "report it with the stack trace above" if debug else f"run again with --debug: {_line_of(command, args)}"
        _complain(f"bug in Tuneyard: {type(error).__name__}: {error}", again)
        return FAILED
    if result == INTERRUPTED:
        _complain("interrupted", "")
    return result if isinstance(result, int) else OK


def _help_for(command: Command, args: list[str]) -> str:
    """The next step after a line that cannot be read: a file whose name begins with a dash was read as an option."""
    file = next((each for each in args if each.startswith("-") and os.path.lexists(each)), None)
    if file is None:
        return f"tuneyard {command.name} --help"
    from tuneyard.api.quoting import quoted

    return f"a file of this name is written with its folder: tuneyard {command.name} {quoted(file)}"


def _lacking(error: Exception) -> TuneyardError | None:
    """The error for a package that this install lacks; None for other errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    from tuneyard.extras import missing

    return missing(error.name)


def _line_of(command: Command, args: list[str]) -> str:
    from shlex import join

    secret = "--api-key"
    pairs = zip(["", *args], args, strict=False)
    shown = ["…" if before == secret else f"{secret}=…" if each.startswith(f"{secret}=") else each for before, each in pairs]
    return join(["tuneyard", command.name, *shown, "--debug"])


def _one_sentence(text: str) -> str:
    """typer's own words in our form: no capital, no full stop, no name of a Python error."""
    plain = " ".join(text.split()).replace(": Value error, ", ": ")
    return (plain[:1].lower() + plain[1:]).rstrip(".")


def _trace(debug: bool) -> None:
    if debug:
        from traceback import print_exc

        print_exc()


def _complain(cause: str, next_step: str) -> None:
    print(f"error: {visible(cause)}", file=sys.stderr)
    if next_step:
        print(f"next: {visible(next_step)}", file=sys.stderr)
