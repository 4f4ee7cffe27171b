"""Servers that outlive the process that started them, remembered on disk so that any later process can end them.

A server's id is written by the server itself, before it becomes what it is: there is no instant at which it runs and is not remembered.
With the id stand its start time and the machine's boot, so that an id that has gone to another process meanwhile is never touched.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LAUNCH = """
echo "$$ $(cut -d' ' -f22 /proc/$$/stat) $(cat /proc/sys/kernel/random/boot_id)" >"$0.new"
mv "$0.new" "$0"
exec "$@"
"""
_TAIL_BYTES = 2000


def started_at(pid: int) -> str | None:
    """When a process started, in the kernel's ticks since boot; None for one that is gone or a zombie.

    A killed process is a zombie as soon as its first thread has ended; while others end, it holds its ports.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" and not _other_threads(pid) else fields[19]


def _other_threads(pid: int) -> bool:
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class Processes:
    """The servers of one state folder, by name: `<name>.pid`, `<name>.json` (how it is started) and `<name>.log`."""

    folder: Path

    def start(self, name: str, command: list[str] | None = None, env: dict[str, str] | None = None) -> None:
        """Start a server; without a command, as it was started last time. One that runs already is left alone."""
        if self.pid(name) is not None:
            return
        memory = self.folder / f"{name}.json"
        if command is None:
            command, env = json.loads(memory.read_text())
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            memory.write_text(json.dumps([command, env or {}]))
        pid_file = self.folder / f"{name}.pid"
        pid_file.unlink(missing_ok=True)
        log = os.open(self.log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            child = os.posix_spawn(
                "/bin/sh",
                ["/bin/sh", "-c", _LAUNCH, str(pid_file), *command],
                {**os.environ, **(env or {})},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
            )
        finally:
            os.close(log)
        while not pid_file.exists() and started_at(child) is not None:
            time.sleep(0.001)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def tail(self, name: str) -> str:
        """The last lines of a server's log."""
        try:
            return self.log(name).read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def names(self) -> list[str]:
        """Every server that was ever started here."""
        return sorted(path.stem for path in self.folder.glob("*.pid"))

    def pid(self, name: str) -> int | None:
        """Process id of a server that runs, frozen ones included."""
        try:
            pid, start, its_boot = (self.folder / f"{name}.pid").read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        _reap(int(pid))
        return int(pid) if its_boot == boot() and started_at(int(pid)) == start else None

    def send(self, name: str, number: signal.Signals) -> None:
        pid = self.pid(name)
        if pid is None:
            raise RuntimeError(f"{name} does not run in {self.folder}; its log ends:\n{self.tail(name)}")
        os.kill(pid, number)

    def stop(self, name: str, number: signal.Signals = signal.SIGKILL, *, limit_s: float = 20) -> None:
        """End a server, by default as a crash would; it is gone on return. One that does not run is fine."""
        deadline = time.monotonic() + limit_s
        while (pid := self.pid(name)) is not None:
            late = time.monotonic() > deadline
            _kill(pid, signal.SIGKILL if late else number)
            if not late:
                _kill(pid, signal.SIGCONT)
            _until_gone(pid, limit_s=limit_s)

    def end_all(self) -> None:
        """End every server at once, frozen ones too."""
        kill_all(pid for name in self.names() if (pid := self.pid(name)) is not None)


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL to processes, which are gone on return."""
    chosen = list(pids)
    for pid in chosen:
        _kill(pid, signal.SIGKILL)
    for pid in chosen:
        _until_gone(pid, limit_s=20)


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _until_gone(pid: int, *, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    start = started_at(pid)
    while start is not None and started_at(pid) == start and time.monotonic() < deadline:
        _reap(pid)
        time.sleep(0.01)
