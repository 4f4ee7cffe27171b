"""Processes with the training stack loaded: a server imports it once, and every call is a fork of it.

Importing torch, transformers, PEFT and DeepSpeed costs each rank ten seconds of CPU, many times what a tiny run does. Forking is safe where
nothing has started threads yet: on cpu, after the imports and before the first computation.

`python -m tests.ranks.forks` is the server: it takes one line a request, answers one line, and ends with its stdin.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuneyard.training.quick_imports import quick_imports

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600
_LOADED = (
    *("tuneyard.training.entry", "tuneyard.training.zero_stack", "tuneyard.data.preparation", "tuneyard.catalog.families"),
    *("deepspeed.runtime.engine", "transformers.models.llama.modeling_llama", "obstore.store"),
)
"""Before the forks: each would import what is missing here."""
_PEERS_END_S = 5
"""Others wait for a rank that has failed, mostly in a collective: they get this long to end by themselves."""


@dataclass(frozen=True)
class Call:
    """A function of a module, by reference, in a process whose environment has these variables."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def called(calls: Sequence[Call], timeout_s: float = TIMEOUT_S) -> list[Any]:
    """What the calls return, all running at once.

    Raises:
        RuntimeError: one of them raised or was killed; with the last words of each.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, call in enumerate(calls):
            whole = {**os.environ, **call.environment, "OMP_NUM_THREADS": "1"}
            (folder / f"{number}.call").write_bytes(pickle.dumps((call.function, call.arguments, whole)))
        request = {"folder": name, "count": len(calls), "timeout_s": timeout_s}
        statuses = _ask(request)
        if any(statuses):
            words = "\n".join(f"{path.stem}:\n{path.read_text(errors='replace')[-4000:]}" for path in sorted(folder.glob("*.log")))
            raise RuntimeError(f"exit statuses {statuses}:\n{words}")
        return [pickle.loads((folder / f"{number}.answer").read_bytes()) for number in range(len(calls))]


@functools.cache
def _server() -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.ranks.forks"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(_close, server)
    return server


def _close(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait(timeout=30)


def _ask(request: dict[str, Any]) -> list[int]:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    print(json.dumps(request), file=server.stdin, flush=True)
    answer = server.stdout.readline()
    if not answer:
        _server.cache_clear()
        raise RuntimeError(f"the server of forks has ended with {server.wait()}")
    statuses: list[int] = json.loads(answer)
    return statuses


# --- in the server


def forked(work: Callable[[], None], log: Path) -> int:
    """Process id of a fork that does `work`, with its output in `log`; it exits with 0 unless `work` raises."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                work()
                status = 0
            except BaseException:  # noqa: BLE001 - the fork must never return into the caller's code
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(status)


def _work(folder: Path, number: int) -> None:
    function, arguments, environment = pickle.loads((folder / f"{number}.call").read_bytes())
    os.environ.clear()
    os.environ.update(environment)
    (folder / f"{number}.answer").write_bytes(pickle.dumps(function(*arguments)))


def _wait(pids: Sequence[int], timeout_s: float) -> list[int]:
    """Exit statuses; what outlives `timeout_s`, or a failed peer, is killed."""
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + timeout_s
    while len(statuses) < len(pids):
        for pid in set(pids) - statuses.keys():
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                statuses[pid] = os.waitstatus_to_exitcode(status)
                if status:
                    deadline = min(deadline, time.monotonic() + _PEERS_END_S)
        if time.monotonic() > deadline:
            for pid in set(pids) - statuses.keys():
                os.killpg(pid, signal.SIGKILL)
        time.sleep(0.005)
    return [statuses[pid] for pid in pids]


def _serve() -> None:
    # Answers go to the stdout of the start: what libraries print goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with quick_imports():  # and no later collection, of which accelerate asks for many, copies the pages of what is loaded here
        for module in _LOADED:
            importlib.import_module(module)
        import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        folder = Path(request["folder"])
        pids = [forked(functools.partial(_work, folder, number), folder / f"{number}.log") for number in range(request["count"])]
        for pid in pids:
            os.setpgid(pid, pid)  # a call that is killed takes with it what it has forked
        print(json.dumps(_wait(pids, request["timeout_s"])), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
