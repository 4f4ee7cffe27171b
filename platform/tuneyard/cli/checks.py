"""A file checked against everything that is known without starting it: fields, rules, and the catalog's facts about SKUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tuneyard.api import CPU, BadInput, Device, Document, Job, JobSpec, Schedule, load_documents
from tuneyard.api.loading import rule_violations
from tuneyard.catalog import gpu


def check_file(path: Path) -> list[Document]:
    """All objects of a file. Raises BadInput whose cause holds one line per error."""
    documents = load_documents(path)
    lines = [line for document in documents for line in _check(document)]
    if lines:
        raise BadInput("\n".join(lines), f"correct the file, then check it: tuneyard validate {path}")
    return documents


def device(sku: str) -> Device:
    """What the rules ask about a SKU. Raises BadInput with the nearest name for one that the catalog does not know."""
    if sku == CPU.sku:
        return CPU  # the catalog would measure this machine for its peaks, which no rule asks for
    facts = gpu(sku)
    return Device(sku=sku, flash=facts.has_flash, bf16="bf16" in facts.peak_flops)


def _check(document: Document) -> Iterator[str]:
    devices: dict[str, Device] = {}
    for path, sku in _wanted_skus(document):
        try:
            devices[sku] = device(sku)
        except BadInput as error:
            yield document.complaint(path, f"{error.cause}; {error.next_step}")
    for violation in rule_violations(document.resource, devices):
        yield document.complaint(violation.path, violation.reason)


def _wanted_skus(document: Document) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Each SKU that a job names, with its path in the file."""
    found = _job_of(document)
    if found is None:
        return
    root, job = found
    for index, sku in enumerate(job.placement.skus):
        yield (*root, "placement", "skus", index), sku
    for number, task in enumerate(job.tasks):
        for index, sku in enumerate(task.resources.sku):
            yield (*root, "tasks", number, "resources", "sku", index), sku


def _job_of(document: Document) -> tuple[tuple[str, ...], Job] | None:
    resource = document.resource
    if isinstance(resource, JobSpec):
        return ("spec",), resource.spec
    if isinstance(resource, Schedule):
        return ("spec", "template", "spec"), resource.spec.template.spec
    return None
