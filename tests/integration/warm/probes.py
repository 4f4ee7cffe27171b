"""What tests start by a fork server: small functions that write down what they see."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time


def see() -> None:
    """Write what this process is to the descriptor that the last argument names."""
    with os.fdopen(int(sys.argv[-1]), "w") as out:
        json.dump(
            {
                "arguments": sys.argv[1:-1],
                "folder": os.getcwd(),
                "probe": os.environ.get("PROBE"),
                "umask": os.umask(0),
                "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                "cores": sorted(os.sched_getaffinity(0)),
                "random": random.random(),
                "numpy": numpy.random.random() if (numpy := sys.modules.get("numpy")) is not None else None,
                "signals": {number.name: str(signal.getsignal(number)) for number in signal.Signals},
                "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
                "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
                "leads_session": os.getsid(0) == os.getpid(),
            },
            out,
        )


def fail() -> None:
    print("said before it failed", flush=True)
    raise RuntimeError("on purpose")


def leave() -> None:
    sys.exit(7)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def sleep() -> None:
    time.sleep(600)


def sleep_with_a_child() -> None:
    if os.fork() == 0:
        time.sleep(600)
    with os.fdopen(int(sys.argv[-1]), "w") as out:
        out.write("ready")
    time.sleep(600)


def call_grpc() -> None:
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{sys.argv[-1]}") as channel:
        assert channel.unary_unary("/test/Echo")(b"hello", timeout=60) == b"hello"
