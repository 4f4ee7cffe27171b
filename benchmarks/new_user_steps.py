"""Steps of a new user's journey: each is a line in one shell, with a time limit, a log of its own, and nothing left behind.

The shell of a journey lives on between its steps: exported variables and the working folder are kept, as in a terminal.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

_FRIGHTENS = re.compile(r"warn(ing)?s?\b|traceback|deprecat|failed|\berror\b", re.I)
"""What a line says that a new user stops at."""
_SHOWN_LINES = 40
_GRACE_S = 30.0
_TICK_S = 0.5
_SAID_EVERY_S = 60.0


@dataclass(frozen=True)
class Step:
    """`command`: as it stands in `page`. `typed`: what this machine's user types in its place, where the page names an address or folder of
    others. Without a page it is what a user does by hand, and `command` says what that is. `leaves`: what a user has then.
    `shows`: a regular expression that the output has to hold."""

    command: str
    page: str
    leaves: str
    typed: str = ""
    shows: str = ""
    limit_minutes: float = 15.0

    @property
    def line(self) -> str:
        return self.typed or self.command


@dataclass(frozen=True)
class Done:
    """A step that was taken. `frightening`: lines of its output that look like trouble; not of what is done by hand."""

    command: str
    page: str
    leaves: str
    minutes: float
    frightening: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class StepFailed(Exception):
    """A step did not do what its page promises; its text is for people."""


class Shell:
    """A terminal with an empty home folder and the programs of this machine. It writes below `folder` only."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self._folder = folder
        self.home = folder / "home"
        self.logs = folder / "logs"
        self._state = folder / "state.sh"
        for each in (self.home, self.logs):
            each.mkdir(parents=True, exist_ok=True)
        own = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_", "GO", "LANG", "LC_"))}
        own |= {"PATH": _plain_path(), "HOME": str(self.home), "TERM": "dumb", **variables}
        exports = [f"export {name}={shlex.quote(value)}" for name, value in own.items()]
        self._state.write_text("\n".join([*exports, f"cd {shlex.quote(str(self.home))}", ""]))

    def take(self, step: Step, number: int) -> Done:
        """Run one step. Raises StepFailed where it fails, takes too long, or does not show what it should."""
        log = self.logs / f"{number:02d}.log"
        began = time.monotonic()
        code = self._run(step.line, log, step.limit_minutes * 60)
        minutes = (time.monotonic() - began) / 60
        output = log.read_text(errors="replace")
        promised = f" ({step.page} promises it)" if step.page else ""
        if code is None:
            raise StepFailed(f"{step.line}: not done after {step.limit_minutes:g} minutes{promised}\n{_end_of(output)}")
        if code:
            raise StepFailed(f"{step.line}: exit code {code}{promised}\n{_end_of(output)}")
        if step.shows and not re.search(step.shows, output):
            raise StepFailed(f"{step.line}: does not show {step.shows!r}{promised}\n{_end_of(output)}")
        told = frightening(output.replace(str(self.home), "~")) if step.page else ()
        return Done(step.command, step.page, step.leaves, minutes, tuple(told))

    def _run(self, line: str, log: Path, limit_s: float) -> int | None:
        """Exit code, or None after the limit. Whatever the line has started ends with it where the limit, or Ctrl-C, ends it."""
        keep = f'{{ export -p; printf "cd %q\\n" "$PWD"; }} > {shlex.quote(str(self._state))}'
        script = f"source {shlex.quote(str(self._state))}\n{line}\ncode=$?\n{keep}\nexit $code\n"
        with log.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-c", script], env={}, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                return _wait(process, limit_s)
            finally:
                if process.poll() is None:
                    _end(process)


def frightening(output: str) -> Iterator[str]:
    """Lines, each once, that say warning, error or traceback."""
    yield from dict.fromkeys(line.strip()[:200] for line in output.splitlines() if _FRIGHTENS.search(line))


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    began = said = time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        if now - began > limit_s:
            return None
        if now - said > _SAID_EVERY_S:
            said = now
            print(f"    … {(now - began) / 60:.0f} min", file=sys.stderr, flush=True)
        time.sleep(_TICK_S)
    return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send Ctrl-C to the step's session, as a user would. Processes that still live half a minute later are killed."""
    with suppress(psutil.NoSuchProcess):
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        _, alive = psutil.wait_procs(family, timeout=_GRACE_S)
        for each in alive:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait()


def _plain_path() -> str:
    """PATH without virtual environments: that of this script is not the user's. `python3` is the Python that it was made from."""
    parts = [part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part).parent / "pyvenv.cfg").exists()]
    return os.pathsep.join([f"{sys.base_prefix}/bin", *parts])


def _end_of(output: str) -> str:
    lines: Sequence[str] = output.splitlines()
    return "\n".join(f"    | {line}" for line in lines[-_SHOWN_LINES:])
