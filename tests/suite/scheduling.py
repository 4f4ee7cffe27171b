"""Parts side by side: each in a session of its own with a log of its own, begun when a lane is free, ended at its limit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.suite.parts import Part
from tests.suite.processor import Group

_GRACE_S = 90
"""For pytest to take down its clusters and write its results, after SIGINT."""
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class Ended:
    """A part's end. `code`: of its process, negative for a signal; `cpu_s`: processor time of it and of all that it
    has started; where that cannot be had (`processor`), of what it has waited for."""

    part: Part
    code: int
    seconds: float
    cpu_s: float
    timed_out: bool
    log: Path
    results: Path


class Running:
    """A part's process. `again`: only the tests that have failed before."""

    def __init__(self, part: Part, folder: Path, environment: Mapping[str, str], *, again: bool = False) -> None:
        self.part = part
        name = f"{part.name}.again" if again else part.name
        self.log, self.results = folder / f"{name}.log", folder / f"{name}.xml"
        self.results.unlink(missing_ok=True)
        self.began = time.monotonic()
        self.timed_out = False
        self._kill_at = self.began + part.limit_s + _GRACE_S
        self._group = Group.made(part.name)
        with self.log.open("wb") as log:
            command = part.command_line(self.results, again=again)
            command = self._group.joining(command) if self._group else command
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(environment), start_new_session=True
            )

    def look(self) -> Ended | None:
        """Its end, if it has ended; one that is past its limit is interrupted, and killed where that does not help."""
        now = time.monotonic()
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if now > self._kill_at:
                self._signal(signal.SIGKILL)
            elif now > self.began + self.part.limit_s:
                self.end_early()
            return None
        own_s = _cpu_s(self.process.pid)
        code = self.process.wait()
        self._signal(signal.SIGKILL)  # what it left in its session
        all_s = self._group.cpu_s() if self._group else None
        cpu_s = own_s if all_s is None else all_s
        if self._group:
            self._group.remove()
        return Ended(self.part, code, now - self.began, cpu_s, self.timed_out, self.log, self.results)

    def end_early(self) -> None:
        """Its time is up: interrupt it, once."""
        if not self.timed_out:
            self.timed_out = True
            self.interrupt()

    def interrupt(self) -> None:
        """As Ctrl-C: pytest ends its test, takes down its fixtures and writes its results."""
        self._kill_at = min(self._kill_at, time.monotonic() + _GRACE_S)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return


def _cpu_s(pid: int) -> float:
    """Processor time of a process that has ended and is not waited for yet, with that of its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def run_all(
    parts: Sequence[Part],
    folder: Path,
    *,
    lanes: int,
    environment: Mapping[str, str],
    started: Callable[[Part], None],
    ended: Callable[[Ended], None],
    start_until: float = float("inf"),
    run_until: float = float("inf"),
    again: bool = False,
) -> list[Part]:
    """Run parts in their order, `lanes` at once, each after those that it names; `started` and `ended` are called with each.

    After `start_until` (of `time.monotonic`) no part begins; at `run_until` those that run are interrupted. `again` runs only the tests
    of each part that have failed before.

    Returns:
        The parts that never began.

    Raises:
        KeyboardInterrupt: all parts were interrupted likewise, and have ended.
    """
    waiting, running = list(parts), list[Running]()
    known = {part.name for part in parts}
    done: set[str] = set()

    def collect() -> None:
        for one in list(running):
            end = one.look()
            if end is not None:
                running.remove(one)
                done.add(one.part.name)
                ended(end)

    try:
        while (waiting and time.monotonic() < start_until) or running:
            for part in list(waiting) if time.monotonic() < start_until else ():
                lane_free = part.beside or sum(not one.part.beside for one in running) < lanes
                if lane_free and not (set(part.after) & known) - done:
                    waiting.remove(part)
                    started(part)
                    running.append(Running(part, folder, environment, again=again))
            if time.monotonic() > run_until:
                for one in running:
                    one.end_early()
            collect()
            time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        for one in running:
            one.interrupt()
        while running:
            collect()
            time.sleep(_LOOK_EVERY_S)
        raise
    return waiting
