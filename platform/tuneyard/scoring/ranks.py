"""Ranks of an engine with `tensorParallel` above 1: processes of vLLM, spawned by the engine's process.

vLLM does not report the reason why a rank cannot load, so each rank writes it to a folder of the engine. vLLM also leaves shared memory and
sockets behind when an engine is killed. Sockets are therefore kept in that folder, and shared memory is unlinked once every rank has mapped
it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import current_process, resource_tracker
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from tuneyard.scoring.rank_deaths import RankLost, announce, ends_soon, withdraw

_FOLDER = "TUNEYARD_ENGINE_FOLDER"
_RANK_ENDED = "WorkerProc initialization failed"
"""The beginning of vLLM's error for a rank that did not become ready."""
_AFTER_READY = ("Executor failed", "cancelled", "Worker failed with error")
"""Beginnings of vLLM's errors for a rank that was lost after it had become ready. The last one also begins errors of living ranks."""
_SHARED_MEMORY = Path("/dev/shm")
_OF_PYTHON, _OF_VLLM = "psm_", "vllm_dist_"


class RankFailed(Exception):
    """A rank could not load. `raised`: the type name of the exception in the rank's process."""

    def __init__(self, raised: str, message: str) -> None:
        super().__init__(message)
        self.raised = raised


def use_folder(folder: Path) -> None:
    """Make vLLM keep its sockets, and its rendezvous file for ranks, in `folder`, which must have a short path."""
    from vllm.utils import network_utils

    os.environ["VLLM_RPC_BASE_PATH"] = os.environ[_FOLDER] = str(folder)
    network_utils.tempfile = SimpleNamespace(gettempdir=lambda: str(folder))


def worker_class(*, on_cpu: bool) -> str:
    """The name of the worker class for vLLM's ranks."""
    return f"tuneyard.scoring.rank_workers.{'CpuRank' if on_cpu else 'GpuRank'}"


def announce_rank() -> None:
    """In a rank: tell the engine's process which process this is."""
    announce(Path(os.environ[_FOLDER]))


@contextmanager
def report_failure() -> Iterator[None]:
    """In a rank: write an exception of the block to the engine's folder before it is raised."""
    try:
        yield
    except Exception as error:
        folder = Path(os.environ[_FOLDER])
        with suppress(OSError):
            (folder / f"failed-{os.getpid()}.json").write_text(json.dumps({"raised": type(error).__name__, "message": str(error)}))
        withdraw(folder)
        raise


@contextmanager
def raise_reported(folder: Path) -> Iterator[None]:
    """In the engine's process, around its load. Raises RankFailed with the reason of a rank, RankLost where a rank ended without one."""
    try:
        yield
    except Exception as error:
        lost_later = str(error).startswith(_AFTER_READY) and ends_soon(folder)
        if not lost_later and not str(error).startswith(_RANK_ENDED):
            raise
        for path in sorted(folder.glob("failed-*.json")):
            raise RankFailed(**json.loads(path.read_text())) from error
        raise RankLost("a rank of the engine was killed while it loaded") from error


@contextmanager
def unnamed_shared_memory() -> Iterator[None]:
    """Around the load of an engine with ranks: at the end, unlink all shared memory and semaphores that it and its ranks have opened.

    The kernel frees them with the last process, even if it is killed. No process opens them by name later.
    """
    me = psutil.Process()
    ours = f"tuneyard-{me.pid}"
    configuration = current_process()._config  # type: ignore[attr-defined]
    before, configuration["semprefix"] = configuration["semprefix"], f"/{ours}"
    try:
        yield
    finally:
        configuration["semprefix"] = before
        for path in _SHARED_MEMORY.glob(f"sem.{ours}-*"):
            _unname(path, f"/{path.name.removeprefix('sem.')}", "semaphore")
        for name in {name for process in [me, *me.children(recursive=True)] for name in _mapped(process.pid)}:
            _unname(_SHARED_MEMORY / name, f"/{name}", "shared_memory" if name.startswith(_OF_PYTHON) else None)


def _unname(path: Path, name: str, kind: str | None) -> None:
    """Unlink a file in shared memory. `kind`: its type in Python's resource tracker, which must not remove it again; None: untracked."""
    with suppress(FileNotFoundError):
        path.unlink()
    if kind is not None:
        resource_tracker.unregister(name, kind)


def _mapped(pid: int) -> set[str]:
    """Files in /dev/shm that the process has mapped, and that Python or vLLM created for an engine."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    below = f"{_SHARED_MEMORY}/"
    names = {line.partition(below)[2] for line in lines if below in line and not line.endswith(" (deleted)")}
    return {name for name in names if name.startswith((_OF_PYTHON, _OF_VLLM))}


def executor_of(engine: Any) -> Any:
    """The part of vLLM's LLMEngine that holds the ranks."""
    return engine.engine_core.engine_core.model_executor
