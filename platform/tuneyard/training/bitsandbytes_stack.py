"""Imports bitsandbytes for the fork server of ranks. The import initializes no CUDA.

At its import, bitsandbytes asks torch for the compute capability of each GPU, and torch initializes CUDA to answer. NVML answers here
instead.
If NVML fails, torch answers, and the fork server then says why it forks nothing.
"""

import importlib.util

import torch

_asked = torch.cuda.get_device_capability


def _capability_by_nvml(device: torch.cuda.device) -> tuple[int, int]:
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda._get_nvml_device_index(device.idx))
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        finally:
            pynvml.nvmlShutdown()
    except (pynvml.NVMLError, RuntimeError, ValueError):
        major, minor = _asked(device)
    return int(major), int(minor)


if torch.version.hip is None and importlib.util.find_spec("pynvml") is not None:
    torch.cuda.get_device_capability = _capability_by_nvml
try:
    import bitsandbytes
finally:
    torch.cuda.get_device_capability = _asked

__all__ = ["bitsandbytes"]
