"""Kinds of GPU that are not in Tuneyard's table: entries that people have written, and devices that were measured. Both have this form:

gpus:
  - name: rtx-9090-48gb
    memoryGb: 48
    memoryBandwidthGbPerS: 2000
    peakTflops: {fp32: 120, fp16: 240, bf16: 240}
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, StringConstraints, ValidationError, field_validator

from tuneyard.api import BadInput
from tuneyard.api.base import Fields
from tuneyard.catalog.gpu_facts import DTYPES, TERA, USUAL_NETWORK_GB_S, Basis, Gpu

VARIABLE = "TUNEYARD_GPUS"
PAGE = "docs/extending/gpu-kind.md"
SkuName = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Positive = Annotated[float, Field(gt=0)]


class GpuEntry(Fields):
    """One kind of GPU in a file. Peaks are dense, in 1e12 a second; links count both directions."""

    name: SkuName = Field(description="name of the kind in JobSpecs and Clusters, such as rtx-9090-48gb")
    product: str = Field(default="", description="name in driver and torch; default: its name")
    aliases: list[str] = Field(default_factory=list, description="other names; default: none")
    vendor: Literal["nvidia", "amd"] = Field(default="nvidia", description="whose device plugin counts it; default: nvidia")
    architecture: str = Field(
        default="",
        pattern=r"^(sm[0-9]{2,4}|gfx[0-9a-f]{3,5})?$",
        description="sm89 for compute capability 8.9, or gfx942; default: unknown, without flash attention",
    )
    memory_gb: Positive = Field(description="memory of a device, in 1e9 bytes")
    peak_tflops: dict[Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8"], Positive] = Field(
        description="dense peak by precision, accumulating in fp32; fp32 is needed, the others as far as the device has them"
    )
    memory_bandwidth_gb_per_s: Positive = Field(description="of the device's memory")
    pcie_gb_per_s: Positive = Field(default=64.0, description="GPU to host, both directions; default: 64, PCIe 4.0 with 16 lanes")
    link_gb_per_s: Positive | None = Field(default=None, description="GPU to GPU in a machine, both directions; default: as PCIe")
    network_gb_per_s: Positive = Field(default=USUAL_NETWORK_GB_S, description="send rate of a machine to others; default: 12.5")
    source: str = Field(default="", description="origin of the figures; default: the file")
    measured: bool = Field(default=False, description="whether the figures were measured on a device; default: false")

    @field_validator("peak_tflops")
    @classmethod
    def _has_fp32(cls, value: dict[str, float]) -> dict[str, float]:
        if "fp32" not in value:
            raise ValueError("fp32 is missing")
        return value

    def gpu(self, source: str) -> Gpu:
        """The kind. `source`: the place of the entry."""
        basis: Basis = "measured" if self.measured else "given"
        tf32 = self.peak_tflops.get("tf32")
        return Gpu(
            sku=self.name,
            name=self.product or self.name,
            vendor=self.vendor,
            architecture=self.architecture,
            memory_gb=self.memory_gb,
            peak_flops={dtype: self.peak_tflops[dtype] * TERA for dtype in DTYPES if dtype in self.peak_tflops},
            tf32_flops=tf32 * TERA if tf32 else None,
            memory_bandwidth_gb_s=self.memory_bandwidth_gb_per_s,
            link_gb_s=self.link_gb_per_s or self.pcie_gb_per_s,
            pcie_gb_s=self.pcie_gb_per_s,
            network_gb_s=self.network_gb_per_s,
            aliases=tuple(self.aliases),
            source=f"{self.source}, {source}" if self.source else source,
            basis=basis,
        )


def entry_of(kind: Gpu) -> dict[str, Any]:
    """The entry of a kind, as JSON: `GpuEntry.gpu` makes the same kind from it."""
    tf32 = {"tf32": kind.tf32_flops / TERA} if kind.tf32_flops else {}
    peaks: Any = {dtype: flops / TERA for dtype, flops in kind.peak_flops.items()} | tf32
    entry = GpuEntry(
        name=kind.sku,
        product=kind.name,
        aliases=list(kind.aliases),
        vendor="amd" if kind.vendor == "amd" else "nvidia",
        architecture=kind.architecture,
        memory_gb=kind.memory_gb,
        peak_tflops=peaks,
        memory_bandwidth_gb_per_s=kind.memory_bandwidth_gb_s,
        pcie_gb_per_s=kind.pcie_gb_s,
        link_gb_per_s=kind.link_gb_s,
        network_gb_per_s=kind.network_gb_s,
        source=kind.source,
        measured=kind.basis == "measured",
    )
    return entry.to_yaml_dict()


def users_source() -> str:
    """The place of people's own kinds: the file in `$TUNEYARD_GPUS`, else `gpus.yaml` in `$XDG_CONFIG_HOME/tuneyard`, by default in
    `~/.config/tuneyard`. A hub passes its own kinds to attempts in the variable itself, as JSON.
    """
    return _source(os.environ.get(VARIABLE), os.environ.get("XDG_CONFIG_HOME"), os.environ.get("HOME"))


@lru_cache(maxsize=64)
def _source(given: str | None, config: str | None, _home: str | None) -> str:
    return given or str(Path(config or Path.home() / ".config") / "tuneyard" / "gpus.yaml")


@lru_cache(maxsize=8)
def users_kinds(source: str) -> tuple[Gpu, ...]:
    """The kinds of a file, or of JSON text; none if there is no file. Read once per process. Raises BadInput for invalid content."""
    if source.lstrip().startswith("{"):
        return tuple(entry.gpu(f"given in ${VARIABLE}") for entry in entries_of(source, f"${VARIABLE}"))
    try:
        text = Path(source).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{source} cannot be read: {error}", f"make it a readable text file, or remove it ({PAGE})") from error
    return tuple(entry.gpu(f"given in {source}") for entry in entries_of(text, source))


def given_json(kinds: Iterable[Gpu]) -> str:
    """Kinds as JSON text for `$TUNEYARD_GPUS`."""
    return json.dumps({"gpus": [entry_of(kind) for kind in kinds]}, separators=(",", ":"), sort_keys=True)


def entries_of(text: str, where: str) -> list[GpuEntry]:
    """The entries of YAML text. Raises BadInput with the first error."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{where} is not YAML: {' '.join(str(error).split())}", f"correct it ({PAGE})") from error
    document = {} if document is None else document
    if not isinstance(document, Mapping) or set(document) - {"gpus"} or not isinstance(document.get("gpus") or [], list):
        raise BadInput(f"{where} does not hold a list under `gpus`", f"write it as {PAGE} shows")
    entries = [_entry(each, f"{where}: gpus[{index}]") for index, each in enumerate(document.get("gpus") or [])]
    twice = next((entry.name for index, entry in enumerate(entries) if entry.name in [other.name for other in entries[:index]]), None)
    if twice is not None:
        raise BadInput(f"{where}: {twice} is there twice", "keep one of the two entries")
    if any(entry.name == "cpu" for entry in entries):
        raise BadInput(f"{where}: cpu is no kind of GPU", "its peaks are measured on each machine; take the entry out")
    return entries


def _entry(values: object, where: str) -> GpuEntry:
    try:
        return GpuEntry.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{where}{'.' if field else ''}{field}: {first['msg']}", f"see the fields of an entry in {PAGE}") from error


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/tuneyard`, by default `~/.cache/tuneyard`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tuneyard"


def kept_kind(sku: str) -> Gpu | None:
    """The kind that is cached under this name: measured before, here or on a machine that this one plans for."""
    entry = _kept(sku)
    return entry.gpu(f"kept in {cache_folder() / kept_file(sku)}") if entry is not None else None


def kept_entry(sku: str) -> dict[str, Any] | None:
    """The same as JSON."""
    entry = _kept(sku)
    return entry.to_yaml_dict() if entry is not None else None


def _kept(sku: str) -> GpuEntry | None:
    try:
        return GpuEntry.model_validate_json((cache_folder() / kept_file(sku)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # it is then measured again


def keep(sku: str, values: Mapping[str, Any]) -> bool:
    """Cache an entry (as JSON) under a SKU's name. False for an invalid entry."""
    try:
        entry = GpuEntry.model_validate({**values, "name": sku})
    except ValidationError:
        return False
    write_whole(cache_folder() / kept_file(sku), entry.to_yaml_dict())
    return True


def kept_file(sku: str) -> str:
    """Name of the file of a measured kind."""
    return f"gpu-{re.sub(r'[^a-z0-9.-]', '_', sku.lower())[:200]}.json"


def write_whole(file: Path, values: Mapping[str, Any]) -> None:
    """Cache a measurement, completely or not at all. A cache that is not writable only costs the next process some seconds."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".tmp", delete=False, encoding="utf-8") as partial:
            json.dump(dict(values), partial, indent=2)
        Path(partial.name).replace(file)
    except OSError:
        return
