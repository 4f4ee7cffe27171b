"""A Python executable for Ray (`py_executable`) that starts its command by a fork server, or cold where that is not possible.

`python -S -E shim.py SOCKET AFTER ARGV…`; AFTER: a module (see `process.ask`), or `-`. The shim represents the forked process: it forwards
SIGTERM and SIGINT, and ends with the same status.
"""

import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

_LEAST_LIMIT_S, _COLD_START_S = 40.0, 60.0


def _ray_waits_s() -> float:
    """Ray's time limit for the registration of a worker, in seconds. A cold start must still fit into it."""
    try:
        return float(os.environ.get("RAY_worker_register_timeout_seconds", 60.0))  # noqa: SIM112 -- Ray's spelling
    except ValueError:
        return 60.0


def main() -> None:
    from pathlib import Path

    from tuneyard.warm.process import WHY_COLD, ask

    server, after, *argv = sys.argv[1:]
    try:
        process = ask(Path(server), argv, after=after, limit_s=max(_LEAST_LIMIT_S, _ray_waits_s() - _COLD_START_S))
    except OSError as error:
        sys.stderr.write(f"warm start: {error}; starting cold\n")
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, *argv], {**os.environ, WHY_COLD: str(error)})

    def pass_on(number: int, _frame: object) -> None:
        process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    status = process.wait()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
