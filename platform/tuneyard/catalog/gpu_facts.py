"""Facts about one kind of GPU: the denominators of MFU and of every prediction.

Peaks are dense (no 2:4 sparsity), at boost clock, and accumulate in fp32, as training does: a GeForce card computes fp16 at half the
printed rate, which is for accumulation in fp16. Links count both directions together, as makers print them. Memory is the amount in the
name, in 1e9 bytes; drivers report up to 7 % more, which is left as a reserve.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuneyard.api import BadInput, Device

Dtype = Literal["bf16", "fp16", "fp32", "fp8", "int8"]
DTYPES: tuple[Dtype, ...] = ("bf16", "fp16", "fp32", "fp8", "int8")
Vendor = Literal["nvidia", "amd", "cpu"]
Basis = Literal["datasheet", "measured", "doubtful", "given"]
"""Origin of peaks: the table of kinds, a measurement of the device itself, one that was made beside other work, or a file of the user."""
OF_PEAK: Mapping[Basis, str] = {
    "measured": "of the measured peak",
    "doubtful": "of a peak that was measured beside other work, and may be too low",
    "given": "of a peak that was given by hand",
}
"""What an MFU is a share of, where that is no data sheet."""
TERA = 1e12
USUAL_NETWORK_GB_S = 12.5
"""Network of a machine without a known one: 100 Gb/s Ethernet."""
NVIDIA_RESOURCE = "nvidia.com/gpu"
_RESOURCES: Mapping[Vendor, str] = {"nvidia": NVIDIA_RESOURCE, "amd": "amd.com/gpu"}
_AMD_FLASH = ("gfx90a", "gfx942", "gfx950")
"""Architectures that the ROCm build of FlashAttention 2 names: MI200, MI300 and MI350 series."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One device of a kind, as Kubernetes and torch count devices (a GCD of an MI250). For `cpu`: the whole machine."""

    sku: str
    """The kind's name in JobSpecs, Clusters and quotas."""
    name: str
    vendor: Vendor = "nvidia"
    architecture: str
    """Compilation target: `sm80` (compute capability 8.0), `gfx942`; empty for `cpu`, and if unknown."""
    memory_gb: float
    peak_flops: Mapping[Dtype, float] = field(hash=False)
    """Dense peak per second by dtype. Dtypes without hardware support are absent."""
    tf32_flops: float | None = None
    """Peak of fp32 matmuls in TF32 (torch's `allow_tf32`); None without TF32."""
    memory_bandwidth_gb_s: float
    link_gb_s: float
    """GPU to GPU inside a machine: NVLink or xGMI, all links of a device, both directions. The rate of PCIe without such links, and if a
    bridge joins only two cards; 0 for cpu.
    """
    pcie_gb_s: float
    """GPU to host, both directions (NVLink-C2C on GH200 and GB200); 0 for cpu."""
    network_gb_s: float = USUAL_NETWORK_GB_S
    """Network of a usual machine with these GPUs, one direction."""
    aliases: tuple[str, ...] = ()
    """Other names, from people, drivers, torch, node labels and clouds."""
    source: str
    basis: Basis = "datasheet"

    @property
    def is_cpu(self) -> bool:
        return self.vendor == "cpu"

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """The compute capability of an NVIDIA GPU with a known architecture; None for others."""
        found = re.fullmatch(r"sm(\d+)(\d)", self.architecture)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def resource(self) -> str:
        """The Kubernetes resource of these GPUs, by the vendor's device plugin."""
        return _RESOURCES.get(self.vendor, NVIDIA_RESOURCE)

    @property
    def has_flash(self) -> bool:
        """Whether FlashAttention 2 runs: on Ampere or newer, or an AMD Instinct of the MI200 series or newer."""
        return (self.compute_capability or (0, 0)) >= (8, 0) or self.architecture in _AMD_FLASH

    @property
    def has_bf16(self) -> bool:
        """Whether bf16 matmuls are native. A CPU may emulate bf16, so auto precision there is fp32."""
        return not self.is_cpu and "bf16" in self.peak_flops

    @property
    def device(self) -> Device:
        """Facts about a kind for the rules about combinations."""
        return Device(sku=self.sku, flash=self.has_flash, bf16="bf16" in self.peak_flops, is_cpu=self.is_cpu)

    @property
    def best_flops(self) -> float:
        """The peak at the precision of `auto`, or the nearest that the device has."""
        return self.peak_flops.get("bf16") or self.peak_flops.get("fp16") or self.peak_flops["fp32"]

    def rank_peak_flops(self, dtype: Dtype, ranks_on_machine: int = 1) -> float:
        """Peak per second of one rank. A rank has its own GPU; ranks on `cpu` share the machine's peak evenly.

        Raises BadInput if the device does not support the dtype.
        """
        peak = self.peak_flops.get(dtype)
        if peak is None:
            raise BadInput(f"{self.sku} has no peak for {dtype}", f"use one of: {', '.join(self.peak_flops)}")
        return peak / ranks_on_machine if self.is_cpu else peak


def nvidia(
    sku: str,
    name: str,
    architecture: str,
    *,
    memory: float,
    bandwidth: float,
    fp32: float,
    half: float,
    link: float = 0.0,
    pcie: float = 64.0,
    network: float = USUAL_NETWORK_GB_S,
    tf32: float | None = None,
    fp8: float | None = None,
    int8: float | None = None,
    aliases: str = "",
    source: str,
) -> Gpu:
    """An entry of the table, in GB, GB/s and 1e12/s. `half`: fp16, and bf16 from Ampere on. `link`: 0 if there is only PCIe. `aliases`:
    separated by blanks.
    """
    has_bf16 = int(architecture.removeprefix("sm")) >= 80
    peaks = {"bf16": half if has_bf16 else None, "fp16": half, "fp32": fp32, "fp8": fp8, "int8": int8}
    return _entry(sku, name, "nvidia", architecture, (memory, bandwidth, link, pcie, network), peaks, tf32, aliases, source)


def amd(
    sku: str,
    name: str,
    architecture: str,
    *,
    memory: float,
    bandwidth: float,
    fp32: float,
    half: float,
    link: float,
    pcie: float,
    bf16: float | None = None,
    network: float = USUAL_NETWORK_GB_S,
    tf32: float | None = None,
    fp8: float | None = None,
    int8: float | None = None,
    aliases: str = "",
    source: str,
) -> Gpu:
    """An entry of the table for AMD Instinct; see `nvidia`. `fp32`: of the matrix cores. `bf16`: if it is slower than fp16."""
    peaks = {"bf16": bf16 or half, "fp16": half, "fp32": fp32, "fp8": fp8, "int8": int8}
    return _entry(sku, name, "amd", architecture, (memory, bandwidth, link, pcie, network), peaks, tf32, aliases, source)


def _entry(
    sku: str,
    name: str,
    vendor: Vendor,
    architecture: str,
    figures: tuple[float, float, float, float, float],
    peaks: Mapping[str, float | None],
    tf32: float | None,
    aliases: str,
    source: str,
) -> Gpu:
    memory, bandwidth, link, pcie, network = figures
    return Gpu(
        sku=sku,
        name=name,
        vendor=vendor,
        architecture=architecture,
        memory_gb=float(memory),
        peak_flops={dtype: tera * TERA for dtype in DTYPES if (tera := peaks[dtype]) is not None},
        tf32_flops=tf32 * TERA if tf32 else None,
        memory_bandwidth_gb_s=float(bandwidth),
        link_gb_s=float(link or pcie),
        pcie_gb_s=float(pcie),
        network_gb_s=float(network),
        aliases=tuple(aliases.split()),
        source=source,
    )
