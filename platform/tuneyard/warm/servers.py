"""Fork servers of a job. Each is started once, early, and ends with the job."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuneyard.warm import wire
from tuneyard.warm.folders import temporary_folder

_END_LIMIT_S = 5.0


def possible() -> bool:
    """Whether this platform supports fork servers (Linux: pidfd, and credentials of sockets)."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # not Linux, or a sandbox without them
        return False
    return sys.platform == "linux"


class WarmServer:
    """A fork server that this process owns. It ends with this process, even if this process is killed.

    `modules`: the stack to import. `absent`: modules to hide from the stack. `environment`: the server's environment, without secrets.
    `settings`: variables for the stack only. `secret`: names of variables that the server does not get. `log`: file of its output. The
    constructor returns at once; requests wait until the stack is loaded.
    """

    def __init__(
        self,
        modules: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        absent: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        secret: Sequence[str] = (),
    ) -> None:
        self._folder = contextlib.ExitStack()
        self.socket = self._folder.enter_context(temporary_folder("ty-warm-", Path("/tmp"))) / "server"
        watched, self._held = os.pipe()
        try:
            # The listener is created here, so that an early client waits.
            with wire.listen(self.socket) as listener, log.open("ab") as out:
                self._process = subprocess.Popen(
                    [
                        *(
                            sys.executable,
                            "-P",
                            "-m",
                            "tuneyard.warm.server",
                            "--socket",
                            str(self.socket),
                            "--listener",
                            str(listener.fileno()),
                        ),
                        *(
                            "--modules",
                            ",".join(modules),
                            "--absent",
                            ",".join(absent),
                            "--secret",
                            ",".join(secret),
                            "--owner",
                            str(watched),
                        ),
                        *(part for name, value in (settings or {}).items() for part in ("--set", f"{name}={value}")),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=dict(environment),
                    pass_fds=[watched, listener.fileno()],
                    start_new_session=True,
                )
        except OSError:
            os.close(self._held)
            self._folder.close()
            raise
        finally:
            os.close(watched)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the server and its forked processes."""
        os.close(self._held)
        self._process.terminate()  # while it loads, it does not notice the end of its owner
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.close()


def shim_command(socket: Path, *, after: str = "-") -> str:
    """A `py_executable` for Ray's runtime environments: its workers are forked by the server at `socket`. `after`: see `ask`."""
    shim = Path(__file__).with_name("shim.py")
    return shlex.join([sys.executable, "-S", "-E", str(shim), str(socket), after])
