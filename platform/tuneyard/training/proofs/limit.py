"""Limits of proofs. A library that hangs inside of one ends the run with a message, and not never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from tuneyard.api import JobFailed
from tuneyard.training.side_thread import SideThread

LEAST_S = 600.0
_S_PER_GB = 60.0
_FLOPS, _FLOPS_OF_A_GPU = 2e9, 2e12
"""Slowest useful speed of a processor and of a GPU, in FLOPs per second."""
_PASSES = 12
"""Forward passes over a row that the tests before the first step take, at most."""

Made = TypeVar("Made")


def limit_of(size_bytes: float) -> float:
    """Seconds for loading weights of so many bytes and a pass over a few tokens: far above what the slowest disk takes."""
    return LEAST_S + _S_PER_GB * size_bytes / 1e9


def limit_before(model: torch.nn.Module, tokens: int, device: torch.device) -> float:
    """Seconds for the tests before the first step, on rows of `tokens` tokens."""
    weights = [(int(getattr(weight, "ds_numel", weight.numel())), weight.element_size()) for weight in model.parameters()]
    flops = _PASSES * 2 * tokens * sum(count for count, _ in weights)
    speed = _FLOPS_OF_A_GPU if device.type == "cuda" else _FLOPS
    return limit_of(_PASSES * sum(count * size for count, size in weights)) + flops / speed


def within(limit_s: float, prove: Callable[[], Made], late: JobFailed, device: Any = None) -> Made:
    """What `prove` returns or raises. Raises `late` after `limit_s` seconds; what hangs then ends with the process. `device`: the GPU of
    the calling thread.
    """
    work = SideThread(prove, device)
    if not work.wait(limit_s):
        raise late
    return work.result()


def late_before(limit_s: float) -> JobFailed:
    """The error of tests before the first step that hang."""
    return JobFailed(
        f"the tests of the model before its first step did not end in {_minutes(limit_s)}: a library hangs, or a rank",
        "start the job again; proof: skip leaves out the longest of these tests; report this with the versions of the packages",
    )


def late_after(name: str, limit_s: float) -> JobFailed:
    """The error of a comparison of what was saved that hangs."""
    return JobFailed(
        f"the saved {name} was not compared with what was trained: loading and computing it did not end in {_minutes(limit_s)}",
        "nothing is lost: the last checkpoint is whole, and a resume with proof: skip saves the model without comparing it; "
        "check the disk of the scratch folder",
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
