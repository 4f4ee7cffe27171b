"""A file checked against everything that is known without starting it: fields, rules, and the catalog's facts about SKUs."""

from __future__ import annotations

from pathlib import Path

from tuneyard.api import BadInput, Device, Document, JobSpec, check_rules, load_documents
from tuneyard.api.loading_reasons import did_you_mean
from tuneyard.catalog import gpu, known_skus


def check_file(path: Path) -> list[Document]:
    """All objects of a file. Raises BadInput whose cause holds one line per error."""
    documents = load_documents(path)
    lines = [line for document in documents if isinstance(document.resource, JobSpec) for line in _check_job(document, document.resource)]
    if lines:
        raise BadInput("\n".join(lines), f"correct the file, then check it: tuneyard validate {path}")
    return documents


def devices() -> dict[str, Device]:
    """What the rules ask about each SKU of the catalog."""
    facts = {sku: gpu(sku) for sku in known_skus()}
    return {
        sku: Device(sku=sku, flash=fact.has_flash, bf16="bf16" in fact.peak_flops, is_cpu=sku == "cpu") for sku, fact in facts.items()
    }


def _check_job(document: Document, job: JobSpec) -> list[str]:
    known = devices()
    wanted = [(("spec", "placement", "skus", index), sku) for index, sku in enumerate(job.spec.placement.skus)]
    for number, task in enumerate(job.spec.tasks):
        wanted += [(("spec", "tasks", number, "resources", "sku", index), sku) for index, sku in enumerate(task.resources.sku)]
    lines = [
        document.complaint(path, f"unknown SKU {sku!r}{did_you_mean(sku, known)}; known: {', '.join(known)}")
        for path, sku in wanted
        if sku not in known
    ]
    return lines + [document.complaint(violation.path, violation.reason) for violation in check_rules(job, known)]
