"""Kinds of GPU by name: first the user's own entries, then Tuneyard's table, then measured kinds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from tuneyard.api import CPU, Device, Sku
from tuneyard.catalog.gpu_entries import users_kinds, users_source
from tuneyard.catalog.gpu_facts import NVIDIA_RESOURCE, Basis, Dtype, Gpu, Vendor
from tuneyard.catalog.gpu_kinds import GPU_KINDS
from tuneyard.catalog.gpu_names import Names

__all__ = [
    "Basis",
    "Dtype",
    "Gpu",
    "Vendor",
    "canonical_sku",
    "gpu_resource",
    "kinds",
    "known_skus",
    "needs_measuring",
]


def kinds() -> Names:
    """All kinds that need no measurement. Raises BadInput for an invalid file of the user."""
    return _names(users_source())


@lru_cache(maxsize=8)
def _names(source: str) -> Names:
    listed = Names(GPU_KINDS)
    own = {kind: listed.find(kind.sku) for kind in users_kinds(source)}
    corrected = (_corrected(kind, base) if base is not None else kind for kind, base in own.items())
    return Names((*corrected, *(kind for kind in GPU_KINDS if kind not in own.values())))


def _corrected(kind: Gpu, listed: Gpu) -> Gpu:
    """A kind of the table with a user's figures. It keeps its names."""
    aliases = dict.fromkeys((kind.sku, *kind.aliases, kind.name, *listed.aliases))
    return replace(kind, sku=listed.sku, name=listed.name, aliases=tuple(aliases))


def known_skus() -> tuple[str, ...]:
    """All SKU names, `cpu` last, without aliases."""
    return (*(kind.sku for kind in kinds().kinds), CPU.sku)


def canonical_sku(name: str) -> str:
    """The catalog's name of a kind, by any of its names: `h100` is `h100-80gb`. An unknown name stays as it is."""
    return _canonical(name, users_source())


@lru_cache(maxsize=4096)
def _canonical(name: str, source: str) -> str:
    if name.strip().lower() == CPU.sku:
        return CPU.sku
    found = _names(source).find(name)
    return found.sku if found is not None else name


def needs_measuring(sku: str) -> bool:
    """Whether the peaks of a kind are known only by measurement: `cpu`, and kinds that the catalog lacks."""
    return sku.strip().lower() == CPU.sku or kinds().find(sku) is None


def gpu_resource(sku: Sku) -> str:
    """The Kubernetes resource that counts the GPUs of a Cluster's SKU: the Cluster's own field, else that of the kind's vendor."""
    if sku.gpu_resource is not None:
        return sku.gpu_resource
    found = kinds().find(sku.name)
    return found.resource if found is not None else NVIDIA_RESOURCE


def known_devices(skus: Iterable[str]) -> dict[str, Device]:
    """Facts for the rules about each SKU in the catalog, by the given name; other SKUs are left out. This machine is not examined: for
    programs that judge jobs of other machines, such as a hub.
    """
    found = {sku: CPU if sku.strip().lower() == CPU.sku else _device(sku) for sku in skus}
    return {sku: device for sku, device in found.items() if device is not None}


def _device(sku: str) -> Device | None:
    kind = kinds().find(sku.strip())
    return kind.device if kind is not None else None
