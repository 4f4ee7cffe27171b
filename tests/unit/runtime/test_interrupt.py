"""The first signal asks for a stop, the second ends at once, also where both come while a library runs in C, which Python takes for one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

_IN_C = """
import hashlib, sys
from tuneyard.runtime import stop_on_interrupt

with stop_on_interrupt(lambda: print("stopping", flush=True)) as should_stop:
    print("begins", flush=True)
    try:
        for _ in range(400):
            hashlib.pbkdf2_hmac("sha256", b"", b"", 500_000)
    except KeyboardInterrupt:
        sys.exit(7)
sys.exit(3)
"""


@pytest.mark.parametrize(("signals", "code"), [((signal.SIGINT, signal.SIGINT), 7), ((signal.SIGTERM, signal.SIGINT), 7)])
def test_two_signals_in_c_end_at_once(signals: tuple[signal.Signals, ...], code: int) -> None:
    program = subprocess.Popen([sys.executable, "-c", _IN_C], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "begins\n"
    for each in signals:
        time.sleep(0.5)  # the kernel makes one of two signals that a process has not met
        program.send_signal(each)
    assert program.wait(120) == code


_IN_PYTHON = """
import sys, time
from tuneyard.runtime import stop_on_interrupt

try:
    with stop_on_interrupt(lambda: print("stopping", flush=True)) as should_stop:
        print("begins", flush=True)
        until = time.monotonic() + float(sys.argv[1])
        while time.monotonic() < until and not (should_stop() and time.monotonic() > until - 57):
            time.sleep(0.01)
except KeyboardInterrupt:
    sys.exit(7)
sys.exit(3 if should_stop() else 5)
"""


@pytest.mark.parametrize("repeated", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_sent_twice_at_once_counts_once(repeated: signal.Signals) -> None:
    """`timeout` sends it to the command and to its process group; so do a terminal that is closed and its shell."""
    program = subprocess.Popen([sys.executable, "-c", _IN_PYTHON, "60"], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "begins\n"
    program.send_signal(repeated)
    assert program.stdout.readline() == "stopping\n"
    program.send_signal(repeated)
    assert program.wait(120) == 3


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    program = subprocess.Popen(
        ["nohup", sys.executable, "-c", _IN_PYTHON, "1"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "begins\n"
    program.send_signal(signal.SIGHUP)
    assert program.wait(120) == 5
