"""Efficiencies of devices as shares of their printed peaks, by SKU and architecture, and the overheads of training engines.

Constants without a source beside them were fitted once, in logarithms of tokens per second, robustly (soft L1), to 344 published runs: 220
of nanotron's 884 with models of 1 and 3 billion parameters on H100 (Hugging Face, Ultra-Scale Playbook), and 124 of MosaicML's llm-foundry
with models up to 7 billion on A100 and H100. Not in the fit: nanotron's 8 billion, llm-foundry from 13 billion, and all of
fms-acceleration, fms-fsdp, InternEvo and BigScience. They still had an influence:

- `network` is nccl-tests' 0.7. nanotron alone gives 0.32, which fms-fsdp and InternEvo contradict.
- `queue_s` was found in layer times of nanotron's 1 and 8 billion.
- The figures of Megatron-LM were set by hand beside BigScience's runs.

docs/benchmarks/planner.md has the errors on all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuneyard.catalog import Gpu
from tuneyard.planning.setup import Engine


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Shares of peaks (0 to 1), and fixed times that do not depend on size."""

    matmul: float = 0.6
    """Share of peak FLOP/s of a matmul that is large in every dimension."""
    matmul_tokens: float = 540.0
    """Rows at which a matmul reaches half of `matmul`: smaller ones do not fill the device with waves of tiles."""
    matmul_width: float = 180.0
    """Columns (of the narrower side, on this rank) at which a matmul reaches half of `matmul`."""
    attention: float = 0.45
    """Share of peak FLOP/s of fused attention. FlashAttention-2 reaches 0.5 to 0.73 of an A100 (Dao 2023), 0.35 to 0.4 of an H100 (Shah et
    al. 2024, FlashAttention-3, figure 1).
    """
    memory: float = 0.85
    """Share of memory bandwidth of elementwise kernels."""
    link: float = 0.75
    """Share of one direction of a link inside a machine: the bus bandwidth that nccl-tests report for large messages over NVLink."""
    network: float = 0.7
    """Share of the send rate of a machine's network cards: bus bandwidth of nccl-tests on InfiniBand and RoCE, for large messages."""
    link_latency_s: float = 8e-6
    """Latency of one step of a ring inside a machine (alpha of Thakur et al. 2005)."""
    network_latency_s: float = 70e-6
    """Latency of one step of a ring across machines."""
    pcie: float = 0.7
    """Share of one direction of PCIe, from pinned memory."""
    launch_s: float = 12e-6
    """CPU time to launch one kernel from Python, with autograd."""
    queue_s: float = 450e-6
    """Wait of a tensor-parallel collective, per rank, while pipeline stages send across machines. Both kinds of kernel share the single
    device queue that Megatron-LM and nanotron need (CUDA_DEVICE_MAX_CONNECTIONS=1). A layer of nanotron takes at least 4.5 ms. With stages
    on other machines it takes 11, 15, 25 and 55 ms at 2, 4, 8 and 16 ranks, whatever the model's width.
    """


HOST_GB_S = 109.0
"""Memory bandwidth at which DeepSpeed's CPU Adam works on a whole machine: 3.9 billion parameters a second of 28 bytes each (Ren et al.
2021, ZeRO-Offload, table 4, a DGX-2: 10 billion in 2.57 s).
"""
HOST_GB_S_OF_A_GPU = 50.0
"""The same for the part of a host that is rented with one GPU, about 16 cores. An assumption, on the low side."""
CPU_ADAM_BYTES = 28
"""Bytes of host memory that CPU Adam moves for a parameter: master and both means read and written, the gradient read."""


@dataclass(frozen=True, kw_only=True)
class Software:
    """Overheads of an engine. `launch_factor` multiplies `launch_s` for each kernel."""

    launch_factor: float = 1.0
    overlap: float = 0.7
    """Share of compute that can hide collectives of gradients and of sharded weights."""


_OTHERS = Software()
_ENGINES: Mapping[Engine, Software] = {
    "megatron": Software(launch_factor=2.0, overlap=0.3),
    "nanotron": Software(launch_factor=4.0, overlap=0.1),
}


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Efficiencies by SKU, else by architecture, else `default`; and the overheads of engines."""

    default: Efficiency = field(default_factory=Efficiency)
    skus: Mapping[str, Efficiency] = field(default_factory=dict)
    architectures: Mapping[str, Efficiency] = field(default_factory=dict)
    measured: Efficiency | None = None
    """Efficiency of a GPU whose peaks were measured with its own matmuls. None: that of its architecture."""
    engines: Mapping[Engine, Software] = field(default_factory=lambda: dict(_ENGINES))
    host_bandwidth_gb_s: float | None = None
    """Memory bandwidth of a machine's host, as measured there. None: `HOST_GB_S_OF_A_GPU` for each GPU used, up to `HOST_GB_S`."""
    nvme_gb_s: float = 3.0
    """Read and write rate of a machine's disks: one NVMe disk of the usual kind. An assumption."""

    def of(self, gpu: Gpu) -> Efficiency:
        if gpu.sku in self.skus:
            return self.skus[gpu.sku]
        if gpu.basis in ("measured", "doubtful") and self.measured is not None:
            return self.measured
        return self.architectures.get(gpu.architecture, self.default)

    def software(self, engine: Engine) -> Software:
        return self.engines.get(engine, _OTHERS)


_AMPERE = Efficiency(matmul=0.75, attention=0.55)
_HOPPER = Efficiency(matmul=0.5, attention=0.38)
"""At 700 W and below its boost clock, an H100 sustains a smaller share of its printed peak than an A100."""
_ARCHITECTURES: Mapping[str, Efficiency] = {"sm80": _AMPERE, "sm90": _HOPPER, "sm100": _HOPPER}
"""Architectures with published runs, and Blackwell, which takes Hopper's efficiencies."""
_MEASURED = Efficiency(matmul=0.85)
"""A large matmul reaches a larger share of a measured peak than of a printed one. An assumption: layers do not have the best sizes."""
_CPU = Efficiency(matmul=0.8, matmul_tokens=64.0, matmul_width=32.0, attention=0.3, memory=0.6, link=0.5, link_latency_s=50e-6)
"""Shares of peaks that matmuls of this machine itself have reached (catalog.cpu)."""
DEFAULT = Calibration(skus={"cpu": _CPU}, architectures=_ARCHITECTURES, measured=_MEASURED)
