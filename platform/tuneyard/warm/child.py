"""The first steps of a forked process: it takes over the environment, folder, limits, streams and signals of its client.

A process that is started cold inherits all of these from its parent. After a fork of the server they must be set explicitly.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import importlib
import io
import os
import re
import resource
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn


def become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Become the process of `request` (see `wire.request_here`). `descriptors`: stdin, stdout, stderr, and others, which become 3, 4, …"""
    os.setsid()
    _signals(request["ignored_signals"])
    _descriptors(descriptors)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.umask(request["umask"])
    os.chdir(request["folder"])
    _limits(request["limits"])
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, request["cores"])
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(request["oom_score_adj"]))
    _streams()
    faulthandler.disable()
    _random_state()
    _threads()


def run(request: Mapping[str, Any]) -> NoReturn:
    """Call the request's target, or run its script as `python ARGV` would, and end with its exit code.

    The process ends without Python's finalisation, which after a fork copies most of the server's memory and takes a second.
    """
    argv = list(request["argv"])
    while argv and argv[0] == "-u":
        argv.pop(0)
    sys.argv = argv
    code = 1
    try:
        if request["target"]:
            module, _, function = request["target"].partition(":")
            getattr(importlib.import_module(module), function)()
        else:
            sys.path.insert(0, str(Path(argv[0]).parent))
            runpy.run_path(argv[0], run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as Python does at its end
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _signals(ignored: Sequence[int]) -> None:
    """Reset signal handlers. `ignored`: signals to ignore, as a new program inherits them: shells ignore SIGINT for background jobs."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    if signal.SIGINT not in ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python does when it starts
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _descriptors(descriptors: Sequence[int]) -> None:
    # First duplicate all descriptors above their target numbers.
    above = max(descriptors, default=2) + len(descriptors) + 1
    away = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for place, descriptor in enumerate(away):
        os.dup2(descriptor, place)
        os.close(descriptor)


def _limits(limits: Mapping[str, tuple[int, int]]) -> None:
    for name, (soft, hard) in limits.items():
        kind = getattr(resource, name)
        with contextlib.suppress(OSError, ValueError):
            if resource.getrlimit(kind) != (soft, hard):
                resource.setrlimit(kind, (soft, hard))


def _streams() -> None:
    """Create new stream objects over 0, 1 and 2: text in the server's buffers must not be written here."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _writer(1, unbuffered, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, True, "backslashreplace")  # type: ignore[misc]


def _writer(descriptor: int, at_once: bool, errors: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors=errors, line_buffering=at_once or raw.isatty(), write_through=at_once
    )


def _random_state() -> None:
    """Reseed the generators that a cold start seeds from the system. torch's default generator has a fixed seed, and stays unchanged."""
    import random

    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def _threads() -> None:
    """Set torch's number of threads by the client's OMP_NUM_THREADS: torch has read the server's value when it was loaded.

    An invalid value means all cores, as in OpenMP. The number is limited to the number of cores.
    """
    assert threading.active_count() == 1
    wished, cores = os.environ.get("OMP_NUM_THREADS", "").strip(), len(os.sched_getaffinity(0))
    threads = min(int(wished), cores) if re.fullmatch("0*[1-9][0-9]{0,5}", wished) else cores
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
