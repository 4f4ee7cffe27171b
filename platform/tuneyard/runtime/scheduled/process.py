"""The process of one run: `tuneyard run` on the JobSpec of the run, in a session of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tuneyard.runtime.parent_death import stop_with_parent

_ENTRY = "import sys; from tuneyard.cli import main; sys.exit(main())"


class RunProcess:
    """Runs until it ends by itself, or is asked to stop: it then keeps a checkpoint, as after Ctrl-C. The same happens when this process
    ends, also when it is killed."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-c", _ENTRY, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C in the terminal reaches the runner alone, which asks once
                preexec_fn=stop_with_parent(),
            )
        self.log = log

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self, wait_s: float) -> None:
        """Wait for the end; kill the process after `wait_s`."""
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
