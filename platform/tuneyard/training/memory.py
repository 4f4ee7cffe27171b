"""Peak memory of this rank, and the error for people when it runs out of memory."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import torch

from tuneyard.api import FailureKind, JobFailed
from tuneyard.api.errors import said_by
from tuneyard.planning import Plan

STATUS = Path("/proc/self/status")
SMAPS = Path("/proc/self/smaps")
CLEAR_REFS = Path("/proc/self/clear_refs")
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
_LIBRARY = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ [^\n]*\.so[^\n]*\n(?:[^\n]*\n)*?Rss: +(\d+)", re.MULTILINE)
"""A mapping of a shared library in smaps, with its resident kilobytes: one expression, because it has 30,000 lines."""


def reset_peak(device: torch.device) -> None:
    """Reset the peak, if the system allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    try:
        CLEAR_REFS.write_text("5")
    except OSError:
        # Some containers do not allow it: the peak is then that of the whole life of the process.
        return


def peak_gb(device: torch.device) -> float:
    """Peak since `reset_peak` in 1e9 bytes: allocated device memory on a GPU, resident memory of the process on cpu."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 1e9
    return host_peak_gb()


def host_peak_gb() -> float:
    """Peak resident memory of this process since `reset_peak`, pinned memory included, in 1e9 bytes; 0 if the system does not report it."""
    return _status_bytes("VmHWM") / 1e9


def held_gb() -> float:
    """Resident memory of this process now, in 1e9 bytes, including pages shared with its fork server. 0 if the system does not report
    it.
    """
    return _status_bytes("VmRSS") / 1e9


def free_host_gb() -> float:
    """Host memory that this process may still take, in 1e9 bytes: what the system has, within the cgroup's limit. 0 if it is not known."""
    free = _bytes_in(MEMINFO, "MemAvailable")
    with suppress(OSError, ValueError):  # no cgroup, or one without a limit
        limit, held = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = re.search(r"^inactive_file (\d+)", (CGROUP / "memory.stat").read_text(), re.MULTILINE)
        free = min(free, limit - held + (int(cached.group(1)) if cached else 0))
    return free / 1e9


def free_bytes(device: torch.device) -> float:
    """Memory that this process may still take: of the GPU, or of the host. 0 if it is not known."""
    return float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else free_host_gb() * 1e9


class LibraryMemory:
    """Memory of the libraries of a rank: what it holds before it loads a model, and the pages of libraries that it reads until its first
    step has run. A later run of the process finds them read: the system takes 40 ms to count them.
    """

    _are_read: ClassVar[bool] = False

    def __init__(self) -> None:
        self._held_gb = held_gb()
        self._mapped_gb = None if self._are_read else _mapped_gb()

    def in_gb(self) -> float:
        """In 1e9 bytes, once the first step has run."""
        if self._mapped_gb is None:
            return self._held_gb
        type(self)._are_read = True
        return self._held_gb + _mapped_gb() - self._mapped_gb


def _mapped_gb() -> float:
    """Resident pages of shared libraries in 1e9 bytes; 0 if the system does not report them."""
    try:
        mappings = SMAPS.read_bytes()
    except OSError:
        return 0.0
    return sum(map(int, _LIBRARY.findall(mappings))) * 1024 / 1e9


def reserved_gb(device: torch.device) -> float:
    """Peak of the allocator's memory on the GPU, including fragmentation; 0 on cpu."""
    return float(torch.cuda.max_memory_reserved(device)) / 1e9 if device.type == "cuda" else 0.0


def is_out_of_memory(error: BaseException) -> bool:
    """True for torch's errors when a GPU or the host has no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and re.search(r"can't allocate memory|out of memory", str(error)) is not None


def out_of_memory(error: BaseException, plan: Plan, device: torch.device) -> JobFailed:
    """The error for people: memory held, memory planned, and the change that saves most."""
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "this machine"
    held = f"{peak_gb(device):.1f} GB at the peak" + (f", {reserved_gb(device):.1f} GB reserved" if device.type == "cuda" else "")
    planned = f"{plan.memory.total_gb:.1f} GB planned" if plan.memory.total_gb else "no estimate"
    return JobFailed(
        f"out of memory on {where}: {held}; {planned} for micro-batch {plan.micro_batch}, ZeRO {plan.zero}, "
        f"recompute {'on' if plan.recompute else 'off'} ({said_by(error)})",
        _smaller(plan),
        kind=FailureKind.OUT_OF_MEMORY,
    )


def _smaller(plan: Plan) -> str:
    if plan.micro_batch > 1:
        return f"set batch.micro to {plan.micro_batch // 2} (gradient accumulation keeps the global batch)"
    if not plan.recompute:
        return "set strategy.recompute to true"
    if plan.zero < 3 and plan.workers > 1:
        return f"set strategy.zero to {plan.zero + 1}"
    if plan.offload_optimizer == "none":
        return "set strategy.offload.optimizer to cpu" if plan.zero else "set strategy.zero to 2 and strategy.offload.optimizer to cpu"
    return "use more workers, split rows over them (strategy.contextParallel), or use a shorter data.maxLength, or method lora or qlora"


def _status_bytes(field: str) -> int:
    return _bytes_in(STATUS, field)


def _bytes_in(file: Path, field: str) -> int:
    """A field in kB of a file of /proc; 0 where there is none."""
    found = re.search(rf"^{field}:\s+(\d+) kB", file.read_text(), re.MULTILINE) if file.exists() else None
    return int(found.group(1)) * 1024 if found else 0
