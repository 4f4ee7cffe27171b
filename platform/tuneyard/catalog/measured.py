"""Devices whose peaks are known only by measurement: `cpu`, and GPUs that the catalog lacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tuneyard.catalog import cpu
from tuneyard.catalog.gpu_entries import GpuEntry, keep, kept_entry, kept_file
from tuneyard.catalog.gpu_facts import TERA, Gpu
from tuneyard.catalog.measurement_process import run_measurement


def known_measurement(sku: str) -> dict[str, Any] | None:
    """The cached measurement of a kind, as JSON; None without one."""
    if sku == "cpu":
        return cpu.known()
    return kept_entry(sku)


def new_measurement(sku: str) -> dict[str, Any]:
    """A measurement of this machine as a kind, as JSON. Raises BadInput."""
    if sku == "cpu":
        return cpu.measure()
    return measure_gpu(sku)


def keep_measurement(sku: str, values: Mapping[str, Any]) -> bool:
    """Cache a measurement of this machine, or of one that it plans for. False for an invalid measurement."""
    if sku == "cpu":
        return cpu.adopt(values)
    return keep(sku, values)


def measurement_file(sku: str) -> str:
    """A file name that machines with the same peaks share."""
    if sku == "cpu":
        return f"{cpu.machine_key()}.json"
    return kept_file(sku)


def measure_and_keep(sku: str) -> Gpu:
    """The first visible GPU of this machine, measured and cached as `sku`. Raises BadInput if it cannot be measured."""
    entry = measure_gpu(sku)
    keep(sku, entry)
    return GpuEntry.model_validate(entry).gpu("measured here")


def measure_gpu(sku: str) -> dict[str, Any]:
    """A new measurement of the first visible GPU, as an entry. Takes up to a minute. Raises BadInput."""
    return entry_from(sku, run_measurement(["gpu"], what=f"the GPU {sku}"))


def entry_from(sku: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The output of `measure` for a GPU, as an entry."""
    values = {
        "name": sku,
        "product": found["name"],
        "vendor": found["vendor"],
        "architecture": found["architecture"],
        "memoryGb": found["memory_gb"],
        "peakTflops": {dtype: flops / TERA for dtype, flops in found["peak_flops"].items()},
        "memoryBandwidthGbPerS": found["memory_bandwidth_gb_s"],
        "pcieGbPerS": found["pcie_gb_s"],
        "linkGbPerS": found["link_gb_s"],
        "source": f"measured with {found['library']}",
        "measured": True,
    }
    return GpuEntry.model_validate(values).to_yaml_dict()


def shown(values: Mapping[str, Any]) -> str:
    """A measured GPU for people, with the entry that a hub needs to plan with it."""
    entry = {name: value for name, value in values.items() if name not in ("measured", "source")}
    entry["peakTflops"] = {dtype: round(tflops, 1) for dtype, tflops in values["peakTflops"].items()}
    rounded = {name: round(value, 1) if isinstance(value, float) else value for name, value in entry.items()}
    peaks = ", ".join(f"{dtype} {tflops:,.0f}" for dtype, tflops in entry["peakTflops"].items())
    return (
        f"the catalog lacks {values['name']}, which was measured: {peaks} TFLOPS, memory {values['memoryBandwidthGbPerS']:,.0f} GB/s; "
        f"a hub plans with it once its chart has this among its gpus: {json.dumps(rounded)}"
    )
