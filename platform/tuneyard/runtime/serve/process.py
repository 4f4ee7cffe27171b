"""The process of vLLM's server, with the processes that it starts: its start, its log, and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tuneyard.api import JobFailed
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.parent_death import stop_with_parent
from tuneyard.runtime.serve.middleware import FORMS, IDLE, MARK, mark_of

_LOOK_S, _TELL_S = 0.25, 10.0
_END_S = 20.0
"""For answers in flight and for the engine. What is left after it is killed."""
_KEPT_LINES = 400
_PREFIX = re.compile(r"(\(\w+ pid=\d+\) )?((ERROR|WARNING|INFO) \S+ \S+ \[[^\]]+\] )?")
"""Of a line of vLLM's log."""
_HERE = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks this machine, and no proxy of the environment."""
_ERROR = re.compile(r"[\w.]*(Error|Exception): ")


class ServerProcess:
    """Runs in a session of its own, so that Ctrl-C reaches only the command, and ends with the command however that ends."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], tell: Callable[[str], None], *, tells_start: bool = False
    ) -> None:
        """Start it. `tell` gets its log line by line, unless `tells_start` only once it is ready: before, the log is for errors."""
        self._tell, self._ready = tell, tells_start
        self._mark = mark_of(environment[FORMS])
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=stop_with_parent(),
        )
        self._reader = threading.Thread(target=self._read, name="server-log", daemon=True)
        self._reader.start()

    def wait_until_ready(self, url: str, should_stop: ShouldStop, progress: Callable[[float], None]) -> bool:
        """Wait until it answers at `url`; false: it is to stop. Raises JobFailed where it ends instead, with the reason from its log."""
        began = told = time.monotonic()
        while not should_stop():
            if self._process.poll() is not None:
                self._reader.join(timeout=5)
                raise self._failure(f"the engine did not start: {self._reason()}", "`--debug` shows its log")
            with suppress(OSError, urllib.error.URLError), _HERE.open(f"{url}/health", timeout=5) as answer:
                if answer.headers[MARK] == self._mark:  # else another server has the port, and ours is about to end
                    self._ready = True
                    return True
            if time.monotonic() - told >= _TELL_S:
                told = time.monotonic()
                progress(told - began)
            time.sleep(_LOOK_S)
        return False

    def wait(self, should_stop: ShouldStop) -> None:
        """Wait until it is to stop. Raises JobFailed where the server ends before."""
        while not should_stop():
            try:
                code = self._process.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                continue
            raise self._failure(f"the server has ended by itself (exit code {code}): {self._reason()}", "start it again")

    def idle_s(self, url: str) -> float:
        """Seconds since the last request for an answer, or since the start; 0 while it answers one, or is too busy to tell."""
        with suppress(OSError, ValueError), _HERE.open(f"{url}/health", timeout=5) as answer:
            return float(answer.headers[IDLE] or 0.0)
        return 0.0

    def end(self) -> None:
        """End it and all that it has started."""
        try:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_END_S)
        finally:  # Ctrl-C ends the wait
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip()
            self._lines.append(text)
            if self._ready:
                self._tell(text)

    def _failure(self, cause: str, next_step: str) -> JobFailed:
        error = JobFailed(cause, next_step)
        error.__cause__ = RuntimeError("its log:\n" + "\n".join(self._lines))  # `--debug` shows it
        return error

    def _reason(self) -> str:
        """The first line of the log that is an error of Python: those of other processes follow from it. Or the last line."""
        lines = [text for line in self._lines if (text := _PREFIX.sub("", line, count=1).strip())]
        return next((line for line in lines if _ERROR.match(line)), lines[-1] if lines else "it said nothing")[:400]
