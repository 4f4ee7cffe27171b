"""A device by name: a kind of the catalog, a GPU of this machine that the catalog lacks, or this machine as `cpu`."""

from __future__ import annotations

from tuneyard.api import CPU, BadInput, Device
from tuneyard.catalog.cpu import this_machine
from tuneyard.catalog.gpu_entries import PAGE, kept_kind, users_source
from tuneyard.catalog.gpu_facts import Gpu
from tuneyard.catalog.gpus import kinds
from tuneyard.catalog.local import unlisted_gpu
from tuneyard.catalog.measured import measure_and_keep


def gpu(sku: str) -> Gpu:
    """The facts of a kind, by any of its names, in any case.

    `cpu` is this machine. A kind that the catalog lacks may be this machine's GPU. In both cases the peaks are measured once, by up to a
    minute of matmuls and copies in a separate process, and cached in the user's cache folder. Raises BadInput for an unknown SKU, with the
    nearest names and instructions for giving its figures by hand.
    """
    name = sku.strip()
    if name.lower() == CPU.sku:
        return this_machine()
    found = kinds().find(name) or kept_kind(name)
    if found is not None:
        return found
    device = unlisted_gpu(name)
    if device is None:
        raise _unknown(sku)
    return measure_and_keep(device.sku)


def rules_device(sku: str) -> Device:
    """Facts about a SKU for the rules about combinations. Measures nothing. Raises BadInput like `gpu`."""
    name = sku.strip()
    if name.lower() == CPU.sku:
        return CPU
    if (found := kinds().find(name) or kept_kind(name)) is not None:
        return found.device
    device = unlisted_gpu(name)
    if device is None:
        raise _unknown(sku)
    return device.rules_device


def _unknown(sku: str) -> BadInput:
    """The error for an unknown name."""
    near, given = kinds().near(sku), users_source()
    where = "$TUNEYARD_GPUS" if given.lstrip().startswith("{") else given
    meant = "that" if len(near) == 1 else "one of them"
    like = f"use {' or '.join(near)}, if {meant} is meant" if near else "use a name of the catalog, such as h100-80gb or rtx-4090-24gb"
    by_hand = f"a machine that has this GPU measures it (run `tuneyard plan` there); elsewhere, write its figures into {where}: {PAGE}"
    return BadInput(f"unknown SKU {sku!r}", f"{like}; {by_hand}")
