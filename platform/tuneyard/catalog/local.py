"""The devices of this machine, asked of the NVIDIA driver, without torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass

from tuneyard.api import BadInput
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.catalog.gpus import known_skus

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class LocalDevice:
    """A GPU that this process may use, or the machine itself as `cpu`."""

    sku: str
    name: str
    memory_gb: float
    """All of it as the driver reports it, in 1e9 bytes."""


def local_devices() -> tuple[LocalDevice, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves visible; the machine as one `cpu` device where there is none.

    Raises BadInput for a GPU that the catalog does not know.
    """
    found = _visible(_nvidia_smi())
    if not found:
        return (LocalDevice(sku="cpu", name="cpu", memory_gb=machine_memory_gb()),)
    return tuple(LocalDevice(sku=sku_of(name, memory_mib), name=name, memory_gb=memory_mib * MIB / 1e9) for _, name, memory_mib in found)


def local_sku() -> str:
    """The SKU of this machine: that of its first visible GPU, else `cpu`. Raises BadInput for a GPU that the catalog does not know."""
    return local_devices()[0].sku


def sku_of(name: str, memory_mib: float) -> str:
    """The SKU of a GPU by the name and memory that its driver reports (`NVIDIA H100 80GB HBM3`). Raises BadInput if none matches."""
    words = name.lower().replace("-", " ").split()
    family = next((family for family in _FAMILIES if family in words), None)
    if family is None:
        raise BadInput(f"the GPU {name!r} is not in the catalog", f"known: {', '.join(known_skus())}; name one in resources.sku to go on")
    if family == "h100" and "pcie" in words:
        return "h100-pcie-80gb"
    candidates = [sku for sku in known_skus() if sku.startswith(f"{family}-") and "pcie" not in sku]
    # Names do not always say how much memory there is ("Tesla T4"); drivers report within 7 % of what is printed on the box.
    return min(candidates, key=lambda sku: abs(float(sku.rsplit("-", 1)[1].removesuffix("gb")) - memory_mib * MIB / 1e9))


_FAMILIES = ("a100", "h100", "h200", "b200", "l40s", "a10g", "t4", "v100")


def _nvidia_smi() -> list[tuple[str, str, float]]:
    """UUID, name and memory in MiB of each GPU; empty where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()]
    return [(uuid, name, float(memory)) for uuid, name, memory in rows]


def _visible(found: list[tuple[str, str, float]]) -> list[tuple[str, str, float]]:
    """Those that CUDA_VISIBLE_DEVICES names, by index or UUID, in its order; CUDA stops at the first that is not there."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return found
    chosen = []
    for entry in setting.split(","):
        entry = entry.strip()
        by_index = found[int(entry)] if entry.isdigit() and int(entry) < len(found) else None
        device = by_index or next((row for row in found if entry and row[0].startswith(entry)), None)
        if device is None:
            break
        chosen.append(device)
    return chosen
