"""Kinds of GPU and what they can do at best: the denominators of MFU and of every prediction.

Peaks are dense (no 2:4 sparsity) and at boost clock, as the manufacturer prints them; links count both directions together, as they do.
Memory is what the name says, in 1e9 bytes; drivers report up to 7 % more, which is left as a reserve.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuneyard.api import BadInput

Dtype = Literal["bf16", "fp16", "fp32", "fp8", "int8"]
TERA = 1e12


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One device of a SKU; for `cpu`, the whole machine."""

    sku: str
    name: str
    memory_gb: float
    peak_flops: Mapping[Dtype, float] = field(hash=False)
    """Dense peak per second by dtype; a dtype that the device has no units for is absent."""
    tf32_flops: float | None = None
    """Peak of fp32 matmuls in TF32 (torch's `allow_tf32`); None where there is no TF32."""
    memory_bandwidth_gb_s: float
    link_gb_s: float
    """GPU to GPU inside a machine, both directions; what PCIe gives where there is no NVLink; 0 for cpu."""
    pcie_gb_s: float
    """GPU to host, both directions; 0 for cpu."""
    compute_capability: tuple[int, int] | None
    source: str

    @property
    def is_cpu(self) -> bool:
        return self.compute_capability is None

    @property
    def has_flash(self) -> bool:
        """FlashAttention-2 needs Ampere or newer."""
        return self.compute_capability is not None and self.compute_capability >= (8, 0)

    @property
    def has_bf16(self) -> bool:
        """Native bf16 matmuls: Ampere or newer. A CPU emulates bf16 where it lacks it, so that auto precision there is fp32."""
        return self.compute_capability is not None and self.compute_capability >= (8, 0)

    def rank_peak_flops(self, dtype: Dtype, ranks_on_machine: int = 1) -> float:
        """Peak per second of one rank. A rank has a GPU to itself; ranks on `cpu` share the machine's peak evenly.

        Raises BadInput if the device has no units for the dtype.
        """
        peak = self.peak_flops.get(dtype)
        if peak is None:
            raise BadInput(f"{self.sku} has no peak for {dtype}", f"use one of: {', '.join(self.peak_flops)}")
        return peak / ranks_on_machine if self.is_cpu else peak


A100 = "NVIDIA A100 Tensor Core GPU datasheet, June 2021"
H100 = "NVIDIA H100 Tensor Core GPU architecture white paper v1.04, 2023 (dense figures)"
H200 = "NVIDIA H200 Tensor Core GPU datasheet, November 2023 (its figures with sparsity, halved)"
B200 = "NVIDIA HGX B200 in the Blackwell datasheet, 2025 (its figures with sparsity, halved)"
L40S = "NVIDIA L40S datasheet, 2023"
A10G = "NVIDIA A10G datasheet (AWS), February 2022"
T4 = "NVIDIA T4 datasheet, March 2019"
V100 = "NVIDIA V100 datasheet, January 2020 (SXM2)"

# fmt: off
_COLUMNS = ("memory_gb", "memory_bandwidth_gb_s", "link_gb_s", "pcie_gb_s", "bf16", "fp16", "fp32", "tf32", "fp8", "int8")
_TABLE: tuple[tuple[str, str, tuple[int, int], tuple[float | None, ...], str], ...] = (
    # name and compute capability; GB; GB/s of memory, link, PCIe; 1e12/s in bf16, fp16, fp32, tf32, fp8, int8; source
    ("a100-40gb",      "NVIDIA A100 SXM4 40GB", (8, 0),    (40,   1555,  600,  64,     312,   312,   19.5,  156,   None,   624),   A100),
    ("a100-80gb",      "NVIDIA A100 SXM4 80GB", (8, 0),    (80,   2039,  600,  64,     312,   312,   19.5,  156,   None,   624),   A100),
    ("h100-80gb",      "NVIDIA H100 SXM5 80GB", (9, 0),    (80,   3350,  900,  128,    989.4, 989.4, 66.9,  494.7, 1978.9, 1978.9), H100),
    ("h100-pcie-80gb", "NVIDIA H100 PCIe 80GB", (9, 0),    (80,   2039,  600,  128,    756,   756,   51.2,  378,   1513,   1513),  H100),
    ("h200-141gb",     "NVIDIA H200 SXM 141GB", (9, 0),    (141,  4800,  900,  128,    989.5, 989.5, 67,    494.5, 1979,   1979),  H200),
    ("b200-180gb",     "NVIDIA B200 SXM 180GB", (10, 0),   (180,  7700,  1800, 128,    2250,  2250,  75,    1100,  4500,   4500),  B200),
    ("l40s-48gb",      "NVIDIA L40S",           (8, 9),    (48,   864,   64,   64,     362,   362,   91.6,  183,   733,    733),   L40S),
    ("a10g-24gb",      "NVIDIA A10G",           (8, 6),    (24,   600,   64,   64,     70,    70,    31.5,  35,    None,   140),   A10G),
    ("t4-16gb",        "NVIDIA T4",             (7, 5),    (16,   320,   32,   32,     None,  65,    8.1,   None,  None,   130),   T4),
    ("v100-16gb",      "NVIDIA V100 SXM2 16GB", (7, 0),    (16,   900,   300,  32,     None,  125,   15.7,  None,  None,   None),  V100),
    ("v100-32gb",      "NVIDIA V100 SXM2 32GB", (7, 0),    (32,   900,   300,  32,     None,  125,   15.7,  None,  None,   None),  V100),
)
# fmt: on
_DTYPES: tuple[Dtype, ...] = ("bf16", "fp16", "fp32", "fp8", "int8")
_ALIASES = {
    "a100": "a100-80gb",
    "a100-sxm-80gb": "a100-80gb",
    "a100-sxm-40gb": "a100-40gb",
    "h100": "h100-80gb",
    "h100-sxm": "h100-80gb",
    "h100-sxm-80gb": "h100-80gb",
    "h100-pcie": "h100-pcie-80gb",
    "h200": "h200-141gb",
    "b200": "b200-180gb",
    "b200-192gb": "b200-180gb",
    "l40s": "l40s-48gb",
    "a10g": "a10g-24gb",
    "t4": "t4-16gb",
    "v100": "v100-16gb",
}


def _row(sku: str, name: str, capability: tuple[int, int], figures: tuple[float | None, ...], source: str) -> Gpu:
    cell = {column: value for column, value in zip(_COLUMNS, figures, strict=True) if value is not None}
    tf32 = cell.get("tf32")
    return Gpu(
        sku=sku,
        name=name,
        memory_gb=float(cell["memory_gb"]),
        peak_flops={dtype: cell[dtype] * TERA for dtype in _DTYPES if dtype in cell},
        tf32_flops=tf32 * TERA if tf32 else None,
        memory_bandwidth_gb_s=float(cell["memory_bandwidth_gb_s"]),
        link_gb_s=float(cell["link_gb_s"]),
        pcie_gb_s=float(cell["pcie_gb_s"]),
        compute_capability=capability,
        source=source,
    )


_GPUS = {row[0]: _row(*row) for row in _TABLE}


def known_skus() -> tuple[str, ...]:
    """All SKU names, `cpu` last, without aliases."""
    return (*_GPUS, "cpu")


def gpu(sku: str) -> Gpu:
    """The facts of a SKU, by its name or an alias such as `h100-sxm`, in any case.

    `cpu` is this machine: its peaks are measured once, by a few seconds of matmuls in a process of their own, and kept in the user's cache
    folder. Raises BadInput for an unknown SKU, with the nearest names.
    """
    name = sku.strip().lower()
    name = _ALIASES.get(name, name)
    if name in _GPUS:
        return _GPUS[name]
    if name == "cpu":
        from tuneyard.catalog.cpu import this_machine

        return this_machine()
    near = difflib.get_close_matches(name, [*known_skus(), *_ALIASES], n=3)
    raise BadInput(f"unknown SKU {sku!r}", f"use one of: {', '.join(dict.fromkeys(_ALIASES.get(n, n) for n in near) or known_skus())}")
