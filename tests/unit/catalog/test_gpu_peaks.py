"""Figures of the table beside facts that are not in it: units x FLOPs per unit and clock x clock, and width x rate of the memory bus.

A printed figure that counts 2:4 sparsity, or accumulation in fp16 on a GeForce card, is off by a factor of two here.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tuneyard.catalog.gpu_kinds import GPU_KINDS


class Rates(NamedTuple):
    """FLOPs (OPs of int8) of one SM or CU in one clock, dense, accumulating in fp32."""

    fp32: int
    half: int
    tf32: int = 0
    fp8: int = 0
    int8: int = 0
    bf16: int = 0
    """Where it is not as fast as fp16."""


GP100, GV100 = Rates(128, 256), Rates(128, 1024)
TU102, TU102_GEFORCE = Rates(128, 1024, int8=2048), Rates(128, 512, int8=2048)
GA100 = Rates(128, 2048, 1024, int8=4096)
GA102, GA102_GEFORCE, GA102_A10G = Rates(256, 1024, 512, int8=2048), Rates(256, 512, 256, int8=2048), Rates(256, 512, 256, int8=1024)
AD102, AD102_GEFORCE, AD102_L40 = Rates(256, 1024, 512, 2048, 2048), Rates(256, 512, 256, 1024, 2048), Rates(256, 512, 256, 1024, 1024)
GH100, GB100 = Rates(256, 4096, 2048, 8192, 8192), Rates(256, 8192, 4096, 16384, 16384)
GB202, GB202_GEFORCE = AD102, AD102_GEFORCE
CDNA1, CDNA2 = Rates(256, 1024, int8=1024, bf16=512), Rates(256, 1024, int8=1024)
CDNA3, CDNA4 = Rates(256, 2048, 1024, 4096, 4096), Rates(256, 4096, 0, 8192, 8192)

# fmt: off
FACTS: dict[str, tuple[Rates, int, int, int, int, float]] = {
    # rates; SMs or CUs; MHz of fp32, and of matmuls (of Hopper and Blackwell lower: the clock that the printed bf16 figure implies);
    # bits of the memory bus, Gb/s of a pin
    "p100-16gb": (GP100, 56, 1480, 1480, 4096, 1.43), "p100-pcie-16gb": (GP100, 56, 1303, 1303, 4096, 1.43),
    "v100-16gb": (GV100, 80, 1530, 1530, 4096, 1.755), "v100-32gb": (GV100, 80, 1530, 1530, 4096, 1.755),
    "v100-pcie-16gb": (GV100, 80, 1380, 1380, 4096, 1.755), "v100-pcie-32gb": (GV100, 80, 1380, 1380, 4096, 1.755),
    "v100s-32gb": (GV100, 80, 1597, 1597, 4096, 2.214), "t4-16gb": (TU102, 40, 1590, 1590, 256, 10),
    "a100-80gb": (GA100, 108, 1410, 1410, 5120, 3.186), "a100-40gb": (GA100, 108, 1410, 1410, 5120, 2.43),
    "a100-pcie-80gb": (GA100, 108, 1410, 1410, 5120, 3.024), "a100-pcie-40gb": (GA100, 108, 1410, 1410, 5120, 2.43),
    "a800-80gb": (GA100, 108, 1410, 1410, 5120, 3.186), "a30-24gb": (GA100, 56, 1440, 1440, 3072, 2.43),
    "a40-48gb": (GA102, 84, 1740, 1740, 384, 14.5), "a10-24gb": (GA102, 72, 1695, 1695, 384, 12.5),
    "a10g-24gb": (GA102_A10G, 80, 1710, 1710, 384, 12.5), "a16-16gb": (GA102, 10, 1755, 1755, 128, 12.5),
    "a2-16gb": (GA102, 10, 1770, 1770, 128, 12.5),
    "l4-24gb": (AD102, 58, 2040, 2040, 192, 12.5), "l40-48gb": (AD102_L40, 142, 2490, 2490, 384, 18),
    "l40s-48gb": (AD102, 142, 2520, 2490, 384, 18),
    "h100-80gb": (GH100, 132, 1980, 1830, 5120, 5.23), "h800-80gb": (GH100, 132, 1980, 1830, 5120, 5.23),
    "h100-pcie-80gb": (GH100, 114, 1755, 1620, 5120, 3.186), "h100-nvl-94gb": (GH100, 132, 1785, 1545, 6144, 5.12),
    "h200-141gb": (GH100, 132, 1980, 1830, 6144, 6.25), "h200-nvl-141gb": (GH100, 132, 1785, 1545, 6144, 6.25),
    "gh200-96gb": (GH100, 132, 1980, 1830, 6144, 5.2), "gh200-144gb": (GH100, 132, 1980, 1830, 6144, 6.4),
    "b100-192gb": (GB100, 148, 1583, 1443, 8192, 8), "b200-180gb": (GB100, 148, 1965, 1856, 8192, 7.5),
    "gb200-186gb": (GB100, 152, 2055, 2008, 8192, 8),
    "rtx-pro-6000-96gb": (GB202, 188, 2617, 2617, 512, 28), "rtx-pro-6000-server-96gb": (GB202, 188, 2493, 2493, 512, 25),
    "rtx-pro-6000-max-q-96gb": (GB202, 188, 2280, 2280, 512, 28),
    "rtx-6000-ada-48gb": (AD102, 142, 2505, 2505, 384, 20), "rtx-5000-ada-32gb": (AD102, 100, 2550, 2550, 256, 18),
    "rtx-4500-ada-24gb": (AD102, 60, 2580, 2580, 192, 18), "rtx-4000-ada-20gb": (AD102, 48, 2175, 2175, 160, 18),
    "rtx-a6000-48gb": (GA102, 84, 1800, 1800, 384, 16), "rtx-a5500-24gb": (GA102, 80, 1665, 1665, 384, 16),
    "rtx-a5000-24gb": (GA102, 64, 1695, 1695, 384, 16), "rtx-a4500-20gb": (GA102, 56, 1650, 1650, 320, 16),
    "rtx-a4000-16gb": (GA102, 48, 1560, 1560, 256, 14),
    "quadro-rtx-8000-48gb": (TU102, 72, 1770, 1770, 384, 14), "quadro-rtx-6000-24gb": (TU102, 72, 1770, 1770, 384, 14),
    "titan-rtx-24gb": (TU102, 72, 1770, 1770, 384, 14),
    "rtx-5090-32gb": (GB202_GEFORCE, 170, 2407, 2407, 512, 28), "rtx-5080-16gb": (GB202_GEFORCE, 84, 2617, 2617, 256, 30),
    "rtx-5070-ti-16gb": (GB202_GEFORCE, 70, 2452, 2452, 256, 28), "rtx-5070-12gb": (GB202_GEFORCE, 48, 2512, 2512, 192, 28),
    "rtx-5060-ti-16gb": (GB202_GEFORCE, 36, 2572, 2572, 128, 28),
    "rtx-4090-24gb": (AD102_GEFORCE, 128, 2520, 2520, 384, 21), "rtx-4080-super-16gb": (AD102_GEFORCE, 80, 2550, 2550, 256, 23),
    "rtx-4080-16gb": (AD102_GEFORCE, 76, 2505, 2505, 256, 22.4), "rtx-4070-ti-super-16gb": (AD102_GEFORCE, 66, 2610, 2610, 256, 21),
    "rtx-4070-ti-12gb": (AD102_GEFORCE, 60, 2610, 2610, 192, 21), "rtx-4070-super-12gb": (AD102_GEFORCE, 56, 2475, 2475, 192, 21),
    "rtx-4070-12gb": (AD102_GEFORCE, 46, 2475, 2475, 192, 21), "rtx-4060-ti-16gb": (AD102_GEFORCE, 34, 2535, 2535, 128, 18),
    "rtx-3090-ti-24gb": (GA102_GEFORCE, 84, 1860, 1860, 384, 21), "rtx-3090-24gb": (GA102_GEFORCE, 82, 1695, 1695, 384, 19.5),
    "rtx-3080-ti-12gb": (GA102_GEFORCE, 80, 1665, 1665, 384, 19), "rtx-3080-12gb": (GA102_GEFORCE, 70, 1710, 1710, 384, 19),
    "rtx-3080-10gb": (GA102_GEFORCE, 68, 1710, 1710, 320, 19), "rtx-3070-8gb": (GA102_GEFORCE, 46, 1725, 1725, 256, 14),
    "rtx-3060-12gb": (GA102_GEFORCE, 28, 1777, 1777, 192, 15), "rtx-2080-ti-11gb": (TU102_GEFORCE, 68, 1545, 1545, 352, 14),
    "mi100-32gb": (CDNA1, 120, 1502, 1502, 4096, 2.4), "mi210-64gb": (CDNA2, 104, 1700, 1700, 4096, 3.2),
    "mi250-64gb": (CDNA2, 104, 1700, 1700, 4096, 3.2), "mi250x-64gb": (CDNA2, 110, 1700, 1700, 4096, 3.2),
    "mi300a-128gb": (CDNA3, 228, 2100, 2100, 8192, 5.2), "mi300x-192gb": (CDNA3, 304, 2100, 2100, 8192, 5.2),
    "mi325x-256gb": (CDNA3, 304, 2100, 2100, 8192, 6), "mi350x-288gb": (CDNA4, 256, 2200, 2200, 8192, 8),
    "mi355x-288gb": (CDNA4, 256, 2400, 2400, 8192, 8),
}
# fmt: on


def test_every_kind_is_checked() -> None:
    assert set(FACTS) == {kind.sku for kind in GPU_KINDS}


@pytest.mark.parametrize("kind", GPU_KINDS, ids=lambda kind: kind.sku)
def test_peaks_are_what_the_units_do(kind) -> None:  # type: ignore[no-untyped-def]
    rates, units, fp32_mhz, mhz, _, _ = FACTS[kind.sku]
    expected = {
        "fp32": (rates.fp32, fp32_mhz),
        "fp16": (rates.half, mhz),
        "bf16": (rates.bf16 or rates.half, mhz),
        "fp8": (rates.fp8, mhz),
        "int8": (rates.int8, mhz),
    }
    for dtype, peak in kind.peak_flops.items():
        per_clock, clock = expected[dtype]
        assert peak == pytest.approx(units * per_clock * clock * 1e6, rel=0.02), dtype
    assert (kind.tf32_flops or 0) == pytest.approx(units * rates.tf32 * mhz * 1e6, rel=0.03)
    assert {"fp8", "int8"} & set(kind.peak_flops) == {name for name in ("fp8", "int8") if getattr(rates, name)}


@pytest.mark.parametrize("kind", GPU_KINDS, ids=lambda kind: kind.sku)
def test_bandwidth_is_what_the_memory_bus_does(kind) -> None:  # type: ignore[no-untyped-def]
    *_, bits, gigabits = FACTS[kind.sku]
    assert kind.memory_bandwidth_gb_s == pytest.approx(bits * gigabits / 8, rel=0.03)


def test_geforce_cards_train_at_half_of_what_their_tensor_cores_could() -> None:
    """With fp16 accumulation an RTX 4090 does 330 TFLOPS; with fp32 accumulation, which training needs, as many as an RTX 4500 Ada."""
    kinds = {kind.sku: kind for kind in GPU_KINDS}
    card, workstation = kinds["rtx-4090-24gb"], kinds["rtx-6000-ada-48gb"]
    per_sm = {kind.sku: kind.peak_flops["bf16"] / FACTS[kind.sku][1] / FACTS[kind.sku][3] for kind in (card, workstation)}
    assert per_sm[workstation.sku] == pytest.approx(2 * per_sm[card.sku], rel=0.01)
