"""The user's own metrics: their functions run in a process beside the engine's, and are called for each answer.

`function(output, references, row)` gets the model's text, the list of expected answers, and the row's columns in `data.keep` as a dict. It
returns a number or a truth value. A function that ends its process, or gives no value in time, is the row's error, and another process goes
on; after the third time the task fails. So no function can end an engine, or make it wait for ever.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NoReturn

from tuneyard.api import BadInput
from tuneyard.metrics.own import Truth, column_of, program_of
from tuneyard.scoring.own_functions import CONTRACT
from tuneyard.scoring.request import ScoreRequest
from tuneyard.scoring.rows import ScoredRow
from tuneyard.storage import fetch_folder

_CALL_LIMIT_S = 60.0
_IMPORT_LIMIT_S = 300.0
_LOSSES = 3
"""Calls that ended the process or gave no value in time, after which the task fails."""
_LAST_BREATH_S = 2.0
"""From the end of a connection to that of its process."""
_MOST_PRINTED = 1 << 20
"""Bytes of a process's prints that are passed on to the log."""


class OwnMetrics:
    """The functions in their process. Several threads may use it. `names`: as in `score.ownMetrics`."""

    def __init__(self, names: Sequence[str], folder: Path | None, *, call_limit_s: float = _CALL_LIMIT_S) -> None:
        """Import the modules, from `folder` or from installed packages. Raises BadInput: no such function, or an error while importing."""
        self._programs = [program_of(name) for name in names]
        self._columns = [column_of(name) for name in names]
        self._folder, self._call_limit_s = folder, call_limit_s
        self._lock = threading.Lock()
        self._losses = 0
        self._process: _Process | None = None
        if names:
            self._process = _Process(self._programs, folder)

    def measure(self, row: ScoredRow, columns: Mapping[str, Any]) -> None:
        """Set the values of a row with an output. Raises ValueError where a function fails, or returns no finite number; BadInput where
        functions end their process, or give no value in time, again and again."""
        if row.output is None or not self._programs:
            return
        with self._lock:
            if self._process is None:
                self._process = _Process(self._programs, self._folder)
            try:
                self._process.ask(pickle.dumps((row.output, list(row.references), dict(columns))))
                answers = [self._answer(name, row.row) for name in self._columns]
            except OSError:  # it has ended between two rows
                self._lost(self._columns[0], row.row, "its process ended")
        for name, answer in zip(self._columns, answers, strict=True):
            if isinstance(answer, str):
                raise ValueError(f"{name} cannot be computed: {answer}")
            row.values[name] = Truth(answer) if isinstance(answer, bool) else answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _answer(self, name: str, row: int) -> float | str:
        assert self._process is not None
        try:
            answer: float | str = self._process.answer(self._call_limit_s)
        except TimeoutError:
            self._lost(name, row, f"it gave no value within {self._call_limit_s:g} s")
        except EOFError:
            self._lost(name, row, f"it ended its process ({self._process.how_ended()})")
        return answer

    def _lost(self, name: str, row: int, how: str) -> NoReturn:
        """Raises ValueError for the row, or BadInput after too many losses."""
        self.close()
        self._losses += 1
        if self._losses >= _LOSSES:
            raise BadInput(
                f"the own metric {name} cannot be computed: {how}, in row {row}; {_LOSSES} rows of one worker ended so",
                "correct the function: it must return a number for every answer; committed parts are kept",
            )
        raise ValueError(f"{name} cannot be computed: {how}")


class _Process:
    """One process of functions. It has a session of its own, so that what it starts ends with it."""

    def __init__(self, programs: Sequence[str], folder: Path | None) -> None:
        """Raises BadInput where a function cannot be imported, or is none."""
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        descriptor = str(theirs.fileno())
        command = [sys.executable, "-P", "-m", "tuneyard.scoring.own_functions", descriptor, str(folder or ""), *programs]
        path = os.pathsep.join(each for each in sys.path if each)
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        assert self._process.stdout is not None
        threading.Thread(target=_pass_on, args=(self._process.stdout,), name="own metrics", daemon=True).start()
        for program in programs:
            self._check_import(program)

    def _check_import(self, program: str) -> None:
        try:
            refused = self.answer(_IMPORT_LIMIT_S)
        except TimeoutError:
            self.end()
            raise BadInput(f"the metric {program} cannot be imported within {_IMPORT_LIMIT_S:g} s", CONTRACT) from None
        except EOFError:
            raise BadInput(f"the metric {program} ended its process while it was imported ({self.how_ended()})", CONTRACT) from None
        if refused is not None:
            self.end()
            raise BadInput(*refused)

    def ask(self, row: bytes) -> None:
        """Raises OSError if the process has ended."""
        self._connection.send_bytes(row)

    def answer(self, limit_s: float) -> Any:
        """The next message. Raises TimeoutError, or EOFError if the process has ended."""
        if not self._connection.poll(limit_s):
            raise TimeoutError
        try:
            return self._connection.recv()
        except (OSError, pickle.UnpicklingError) as error:
            raise EOFError from error

    def how_ended(self) -> str:
        """Its exit code, or the signal that ended it."""
        try:
            code = self._process.wait(_LAST_BREATH_S)
        except subprocess.TimeoutExpired:
            code = None
        self.end()
        if code is None:
            return "it closed its connection"
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def end(self) -> None:
        """End the process, and what it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        assert self._process.stdin is not None
        self._process.stdin.close()


def own_metrics_of(request: ScoreRequest) -> OwnMetrics:
    """The own metrics of a task, fetched and loaded. Raises BadInput as `OwnMetrics`."""
    code = request.task.metrics_dir
    folder = fetch_folder(code, Path(request.scratch) / "metrics") if code is not None else None
    return OwnMetrics(request.task.own_metrics, folder)


def _pass_on(printed: IO[bytes]) -> None:
    """Pass the beginning of the process's prints on to this process's log, and drop the rest."""
    left = _MOST_PRINTED
    with printed:
        while chunk := os.read(printed.fileno(), 1 << 16):
            if left > 0:
                print(chunk[:left].decode(errors="replace"), end="", file=sys.stderr, flush=True)
                left -= len(chunk)
                if left <= 0:
                    print(f"\n(own metrics print more than {_MOST_PRINTED >> 20} MiB: the rest is dropped)", file=sys.stderr, flush=True)
