"""Whether a process can be forked: for each library whose state a child cannot use, a check whether that state exists.

A library that is only loaded does not matter: torch imports `pynvml` wherever `nvidia-ml-py` is installed. Each check returns why a
child could not work, or "". No check initializes its library.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from _ctypes import dlopen
from collections.abc import Callable
from pathlib import Path

_CUDA_NOT_INITIALIZED = 3
"""CUDA_ERROR_NOT_INITIALIZED of the driver API: nothing in this process has called `cuInit`."""
_THREADS_OF_GRPC = {"event_engine", "grpc_global_tim"}
_THREADS_THAT_SURVIVE = {"jemalloc_bg_thd"}
"""jemalloc, which pyarrow brings, starts its thread again in a child."""


def obstacle() -> str:
    """Why a child of this process could not work, as `NVML is initialized: …`; "" if it could."""
    return next((why for check in CHECKS.values() if (why := check())), "")


def _cuda() -> str:
    """A child cannot use CUDA once its parent has called `cuInit`, even if the parent has no context."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialized by torch"
    try:
        handle = dlopen("libcuda.so.1", os.RTLD_NOLOAD)  # CDLL would make a class each time, before it looks
    except OSError:  # nothing has loaded it
        return ""
    driver = ctypes.CDLL("libcuda.so.1", handle=handle)
    if driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) == _CUDA_NOT_INITIALIZED:
        return ""
    return "CUDA is initialized: a library has called the driver's cuInit"


def _nvml() -> str:
    """Sessions that `pynvml`, or a copy of it in another package, has open.

    This check ignores the session that torch opens without `pynvml` to count devices: torch documents that children can use CUDA after it
    (`torch.cuda.is_available`).
    """
    for name, module in list(sys.modules.items()):
        if name.rpartition(".")[2] != "pynvml" or not hasattr(module, "nvmlInit"):
            continue
        sessions = getattr(module, "_nvmlLib_refcount", None)
        if sessions is None:
            return f"{name} is loaded, and does not tell whether NVML is initialized"
        if sessions:
            return f"NVML is initialized: {name} has {sessions} nvmlInit without nvmlShutdown"
    return ""


def _grpc() -> str:
    """gRPC's core runs threads from the first channel or server until the last is closed."""
    running = _THREADS_OF_GRPC.intersection(_native_threads())
    return f"gRPC is initialized: its threads {', '.join(sorted(running))} run" if running else ""


def _ray() -> str:
    """Ray has no check, because importing it is enough: workers that were forked after `import ray` did not reach Ray's GCS."""
    return "Ray is loaded, and its workers cannot be forked after that" if "ray" in sys.modules else ""


def _threads() -> str:
    """Other threads. A child has none of them, and locks that they held stay locked.

    A native thread without a name of its own has the name of the process. OpenBLAS has such threads, and makes new ones in a child.
    """
    main = threading.main_thread()
    own = [thread.name for thread in threading.enumerate() if thread is not main]
    native = _native_threads() - _THREADS_THAT_SURVIVE - {_name(str(os.getpid())), ""}
    found = [*own, *sorted(native)]
    return f"threads run: {', '.join(found)}" if found else ""


def _native_threads() -> set[str]:
    return {_name(task) for task in os.listdir("/proc/self/task")}


def _name(task: str) -> str:
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text().strip()
    except OSError:  # the thread has just ended
        return ""


CHECKS: dict[str, Callable[[], str]] = {"CUDA": _cuda, "NVML": _nvml, "gRPC": _grpc, "Ray": _ray, "threads": _threads}
