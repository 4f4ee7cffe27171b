"""The devices of this machine, from the drivers of NVIDIA and AMD, without torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuneyard.api import Device
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.catalog.gpu_facts import Gpu, Vendor
from tuneyard.catalog.gpu_names import name_for
from tuneyard.catalog.gpus import kinds

MIB = 2**20
_VISIBLE: Mapping[Vendor, Sequence[str]] = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""Variables that select among a vendor's devices. The first one that is set counts."""


@dataclass(frozen=True, kw_only=True)
class LocalDevice:
    """A GPU that this process may use, or the machine itself as `cpu`."""

    sku: str
    name: str
    memory_gb: float
    """Total memory from the driver, in 1e9 bytes."""
    vendor: Vendor = "cpu"
    architecture: str = ""
    id: str = ""
    """Identifier of the device in variables such as CUDA_VISIBLE_DEVICES."""
    listed: bool = True
    """Whether the catalog has this kind. Other kinds are measured when their peaks are needed."""

    @property
    def rules_device(self) -> Device:
        """Facts for the rules, before anything is measured."""
        kind = Gpu(
            sku=self.sku,
            name=self.name,
            vendor=self.vendor,
            architecture=self.architecture,
            memory_gb=self.memory_gb,
            peak_flops={},
            memory_bandwidth_gb_s=0.0,
            link_gb_s=0.0,
            pcie_gb_s=0.0,
            source="the driver",
        )
        return Device(sku=self.sku, flash=kind.has_flash, bf16=kind.has_flash)


def local_devices() -> tuple[LocalDevice, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES (on AMD also ROCR_ and HIP_VISIBLE_DEVICES) leaves visible; without any, the machine as one `cpu`
    device.
    """
    found = _visible("nvidia", _nvidia_smi()) or _visible("amd", _rocm_smi())
    return tuple(found) or (LocalDevice(sku="cpu", name="cpu", memory_gb=machine_memory_gb()),)


def local_sku() -> str:
    """The SKU of this machine: that of its first visible GPU, else `cpu`. A card that the catalog lacks is named after its product."""
    return local_devices()[0].sku


def unlisted_gpu(sku: str) -> LocalDevice | None:
    """The GPU of this machine that the catalog lacks and that `local_sku` gives this name; None if there is none."""
    return next((device for device in local_devices() if not device.listed and device.sku == sku.strip().lower()), None)


def _device(vendor: Vendor, product: str, memory_gb: float, architecture: str, identity: str, *other_names: str) -> LocalDevice:
    kind = next((found for name in (product, *other_names) if name and (found := kinds().find(name, memory_gb)) is not None), None)
    return LocalDevice(
        sku=kind.sku if kind is not None else name_for(product, memory_gb),
        name=product,
        memory_gb=memory_gb,
        vendor=vendor,
        architecture=kind.architecture if kind is not None else architecture,
        id=identity,
        listed=kind is not None,
    )


def _nvidia_smi() -> list[LocalDevice]:
    """Devices from nvidia-smi; empty without a driver. An old driver without `compute_cap` gives its other fields."""
    for fields in ("uuid,name,memory.total,compute_cap", "uuid,name,memory.total"):
        output = _said_by(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
        rows = [[cell.strip() for cell in line.split(",")] + [""] for line in output.splitlines() if line.count(",") >= 2]
        if rows:
            return [_nvidia(*row[:4]) for row in rows]
    return []


def _nvidia(identity: str, product: str, memory_mib: str, capability: str) -> LocalDevice:
    architecture = f"sm{capability.replace('.', '')}" if capability.replace(".", "").isdigit() else ""
    # A GPU that shares the machine's memory reports none of its own.
    memory_gb = float(memory_mib) * MIB / 1e9 if memory_mib.replace(".", "").isdigit() else machine_memory_gb()
    return _device("nvidia", product, memory_gb, architecture, identity)


def _rocm_smi() -> list[LocalDevice]:
    """Devices from rocm-smi; empty without a driver of AMD, or without a GPU."""
    output = _said_by(["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"])
    try:
        cards = json.loads(output or "{}")
    except ValueError:
        return []
    found: list[LocalDevice] = []
    for values in cards.values() if isinstance(cards, dict) else ():
        card = {str(name).lower(): str(value) for name, value in values.items()} if isinstance(values, dict) else {}
        memory, series, model = card.get("vram total memory (b)", ""), card.get("card series", ""), card.get("card model", "")
        if memory.isdigit():
            # Which of the two has the product's name depends on the release; the other has a PCI number.
            product = next((name for name in (series, model) if name and not name.startswith("0x") and name != "N/A"), series or model)
            found.append(_device("amd", product, int(memory) / 1e9, card.get("gfx version", ""), str(len(found)), model, series))
    return found


def _said_by(command: list[str]) -> str:
    """Output of a driver's program; empty if it is absent or fails."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        return subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=30, check=True).stdout
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return ""


def _visible(vendor: Vendor, found: list[LocalDevice]) -> list[LocalDevice]:
    """The devices that the variable names, by index or UUID, in its order. CUDA stops at the first unknown one."""
    setting = next((os.environ[name] for name in _VISIBLE[vendor] if name in os.environ), None)
    if setting is None:
        return found
    chosen = []
    for entry in setting.split(","):
        entry = entry.strip()
        by_index = found[int(entry)] if entry.isdigit() and int(entry) < len(found) else None
        device = by_index or next((each for each in found if entry and each.id.startswith(entry)), None)
        if device is None:
            break
        chosen.append(device)
    return chosen
