"""The job's `setup` commands: one shell runs them all, and what they leave in its environment holds for every task.

Containers of a hub's job do the same: there, the shell that has run the commands starts Ray.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from tuneyard.api import JobFailed
from tuneyard.api.secrets import redact
from tuneyard.runtime.environment import environment, hide

SETUP_LOG = "setup.log"
Changes = Mapping[str, str | None]
"""Variable -> its value after `setup`; None if it was unset."""
_SHOWN_LINES = 15
_SHARED_MEMORY = Path("/dev/shm")
_LONGEST_OUTPUT_BYTES = 16 << 20
_POLL_S = 0.05
_OF_THE_SHELL = {"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES"}
_BEGIN, _END = b"begin", b"end"
_SCRIPT = """\
for __tuneyard_command in "$@"; do
  printf 'begin\\0' >&{notes}
  printf '$ %s\\n' "$__tuneyard_command"
  eval "$__tuneyard_command" || exit
done
printf 'end\\0' >&{notes}
command -p env -0 >&{notes}
"""


@contextmanager
def set_up(
    commands: Sequence[str], *, log: Path, secrets: Sequence[str] = (), should_stop: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """`run_setup`, whose changes hold in this process until the context ends. Programs that the commands leave running end with it.

    If `should_stop` turns true, the commands are ended, and nothing is changed.
    """
    if not commands:
        yield
        return
    with ExitStack() as stack:
        changes = run_setup(commands, log=log, secrets=secrets, should_stop=should_stop, on_start=lambda it: stack.callback(_end, it))
        stack.enter_context(environment(changes))
        yield


def run_setup(
    commands: Sequence[str],
    *,
    log: Path,
    secrets: Sequence[str] = (),
    should_stop: Callable[[], bool] = lambda: False,
    on_start: Callable[[subprocess.Popen[bytes]], object] = lambda _: None,
) -> Changes:
    """Run the commands in one shell, in order. Returns what they have changed in its environment; nothing if `should_stop` turned true.

    `log` gets their output. `on_start` gets the shell, which leads a session. Raises JobFailed with the last lines of the first command
    that does not exit 0.
    """
    # Files without a name, because a program that the commands leave running would keep the end of a pipe open.
    with _nameless() as notes, tempfile.TemporaryFile() as output:
        number = notes.fileno()
        shell = subprocess.Popen(
            ["/bin/bash", "-c", _SCRIPT.replace("{notes}", str(number)), "setup", *commands],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[number],
            start_new_session=True,
        )
        on_start(shell)
        while shell.poll() is None:
            if should_stop():
                _end(shell)
                return {}
            time.sleep(_POLL_S)
        begun, after = _read(notes)
        changes = _changes(after) if after is not None else {}
        exported = [value for name, value in changes.items() if value is not None and redact(value, {name: value}) != value]
        hidden = [*secrets, *exported]
        shown = _keep(output, log, hidden)
        if after is None:
            raise _failure(hide(commands[begun - 1], hidden), shell.returncode, shown)
        return changes


def run_once(commands: Sequence[str], *, secrets: Sequence[str], run: str) -> Changes:
    """As `run_setup`, once per machine of a joined Ray cluster, and in the first process of the run `run` that calls it there. The other
    processes take what it has found, from memory if the system has a place for files there.
    """
    import fcntl

    if not commands:
        return {}
    folder = _folder_of(run)
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / "environment.json"
        if not kept.exists():
            text = json.dumps(dict(run_setup(commands, log=folder / SETUP_LOG, secrets=secrets)))
            kept.with_suffix(".unfinished").write_text(text)
            kept.with_suffix(".unfinished").rename(kept)
        found: Changes = json.loads(kept.read_text())
    return found


def forget(run: str) -> None:
    """Remove what `run_once` has kept on this machine."""
    shutil.rmtree(_folder_of(run), ignore_errors=True)


def _folder_of(run: str) -> Path:
    return (_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())) / f"tuneyard-setup-{run}"


def _nameless() -> IO[bytes]:
    """A file that reaches no disk where the system allows it: it will hold the environment, which may hold secrets."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("setup"), "w+b")
    return tempfile.TemporaryFile()


def _read(notes: IO[bytes]) -> tuple[int, dict[str, str] | None]:
    """The number of commands that the shell has begun, and its environment at the end; None if it did not come to its end."""
    notes.seek(0)
    begun, end, after = notes.read().partition(_END + b"\0")
    variables = (entry.partition(b"=") for entry in after.split(b"\0") if entry)
    return begun.count(_BEGIN), {os.fsdecode(name): os.fsdecode(value) for name, _, value in variables} if end else None


def _changes(after: Mapping[str, str]) -> dict[str, str | None]:
    names = (after.keys() | os.environ.keys()) - _OF_THE_SHELL
    return {name: after.get(name) for name in sorted(names) if after.get(name) != os.environ.get(name)}


def _keep(output: IO[bytes], log: Path, secrets: Sequence[str]) -> str:
    """Append the output to the log, and return it, both without secrets."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - _LONGEST_OUTPUT_BYTES))
    shown = hide(output.read().decode(errors="replace"), secrets)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(shown)
    return shown


def _failure(command: str, code: int, shown: str) -> JobFailed:
    of_command = shown.rpartition(f"$ {command}\n")[2]
    last = "\n".join(of_command.splitlines()[-_SHOWN_LINES:])
    if code == 0:
        cause = f"the setup command `{command}` called exit, which ends the shell that all commands share"
        return JobFailed(cause, "take `exit` out of the command, or put the command in brackets: (…)")
    return JobFailed(
        f"the setup command `{command}` ended with exit code {code}" + (f":\n{last}" if last else ""),
        "run that command by hand, correct `setup` in the JobSpec, and start again",
    )


def _end(shell: subprocess.Popen[bytes]) -> None:
    """End the shell, and all that it has left running."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(shell.pid, signal.SIGTERM if shell.poll() is not None else signal.SIGKILL)
    shell.wait()
