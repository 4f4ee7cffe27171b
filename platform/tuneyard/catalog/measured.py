"""Devices whose peaks are known by measurement alone, `cpu` and GPUs that the catalog lacks: measured by a process of its own, and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tuneyard.api import BadInput
from tuneyard.catalog.gpu_entries import PAGE, GpuEntry, keep, kept_entry, kept_file, users_source
from tuneyard.catalog.gpu_facts import TERA, Gpu

_TIMEOUT_S = 300
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def known_measurement(sku: str) -> dict[str, Any] | None:
    """The measurement of a kind that is kept here, as JSON; None where there is none."""
    if sku == "cpu":
        from tuneyard.catalog import cpu

        return cpu.known()
    return kept_entry(sku)


def new_measurement(sku: str) -> dict[str, Any]:
    """A measurement of this machine as a kind, as JSON. Raises BadInput."""
    if sku == "cpu":
        from tuneyard.catalog import cpu

        return cpu.measure()
    return measure_gpu(sku)


def keep_measurement(sku: str, values: Mapping[str, Any]) -> bool:
    """Keep a measurement of this machine, or of one that it plans for. False for what is none."""
    if sku == "cpu":
        from tuneyard.catalog import cpu

        return cpu.adopt(values)
    return keep(sku, values)


def measurement_file(sku: str) -> str:
    """A file name that machines with the same peaks share."""
    if sku == "cpu":
        from tuneyard.catalog import cpu

        return f"{cpu.machine_key()}.json"
    return kept_file(sku)


def measure_and_keep(sku: str) -> Gpu:
    """The first visible GPU of this machine, measured and kept as `sku`. Raises BadInput where it cannot be measured."""
    entry = measure_gpu(sku)
    keep(sku, entry)
    return GpuEntry.model_validate(entry).gpu("measured here")


def measure_gpu(sku: str) -> dict[str, Any]:
    """A new measurement of the first visible GPU, as an entry. Takes up to a minute. Raises BadInput."""
    return entry_from(sku, run_measurement(["gpu"], what=f"the GPU {sku}"))


def entry_from(sku: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """What `measure` prints of a GPU, as an entry."""
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
    """A measured GPU for people, with the entry by which a hub plans with it."""
    entry = {name: value for name, value in values.items() if name not in ("measured", "source")}
    entry["peakTflops"] = {dtype: round(tflops, 1) for dtype, tflops in values["peakTflops"].items()}
    rounded = {name: round(value, 1) if isinstance(value, float) else value for name, value in entry.items()}
    peaks = ", ".join(f"{dtype} {tflops:,.0f}" for dtype, tflops in entry["peakTflops"].items())
    return (
        f"the catalog lacks {values['name']}, which was measured: {peaks} TFLOPS, memory {values['memoryBandwidthGbPerS']:,.0f} GB/s; "
        f"a hub plans with it once its chart has this among its gpus: {json.dumps(rounded)}"
    )


def run_measurement(arguments: list[str], *, what: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """What `measure` prints, run as a process of its own: nothing here loads torch, and the GPU's memory is free again afterwards.

    A variable that hides all GPUs is left out: Ray sets one for processes without a GPU of their own. Raises BadInput.
    """
    command = [sys.executable, "-m", "tuneyard.catalog.measure", *arguments]
    hidden = [name for name in _VISIBLE if os.environ.get(name) in ("", "-1", "NoDevFiles")]
    values = {name: value for name, value in os.environ.items() if name not in hidden} | (environment or {})
    try:
        done = subprocess.run(command, env=values, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except subprocess.TimeoutExpired as error:
        raise BadInput(f"measuring the peak of {what} took over {_TIMEOUT_S} s", "try again when the machine is less busy") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        by_hand = "" if arguments[0] == "cpu" else f"; or write its figures into {users_source()}: {PAGE}"
        raise BadInput(f"the peak of {what} cannot be measured: {last}", f"see what `{' '.join(command)}` prints{by_hand}") from error
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
