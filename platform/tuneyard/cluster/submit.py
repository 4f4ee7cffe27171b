"""The submission of a job: its files first, then its JobSpec."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, FindTemplate, JobSpec, StorageError, load_documents
from tuneyard.api.moments import written_ms
from tuneyard.api.templates import filled_manifest, no_template
from tuneyard.cluster.hub import Hub
from tuneyard.cluster.shipping import Shipment
from tuneyard.cluster.storage_access import storage_access_of_author
from tuneyard.cluster.submission import Submission
from tuneyard.cluster.uploads import OnProgress, Sent, send
from tuneyard.tracing import SUBMITTED, TRACEPARENT, Context


def submit_shipment(
    hub: Hub, shipment: Shipment, *, dry_run: bool = False, on_progress: OnProgress = lambda _name, _done, _of: None
) -> tuple[Submission, Sent | None]:
    """Upload the files of a job, then submit it. The hub checks the job first. A dry run uploads nothing (None)."""
    shipment = replace(shipment, manifest=_traced(shipment.manifest))
    if not shipment.parcels:
        return hub.submit(shipment.manifest, dry_run=dry_run), None
    would = hub.submit(shipment.manifest, dry_run=True)
    if dry_run:
        return would, None
    access = storage_access_of_author(hub, filled_manifest(shipment.manifest, hub.template), shipment.root, os.environ)
    try:
        with access.applied():
            sent = send(shipment, on_progress)
    except StorageError as error:
        raise StorageError(f"{error.cause}{access.lack}; nothing was submitted", error.next_step) from error
    return hub.submit(shipment.manifest), sent


def _traced(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with the begin of its submission, and with the trace that this process is a part of (its TRACEPARENT)."""
    metadata = manifest["metadata"]
    outer = Context.parse(os.environ.get("TRACEPARENT", ""))
    known = {SUBMITTED: written_ms(datetime.now(UTC)), **({TRACEPARENT: outer.traceparent} if outer is not None else {})}
    return {**manifest, "metadata": {**metadata, "annotations": {**known, **(metadata.get("annotations") or {})}}}


def manifest_of(spec: JobSpec | Path | str, namespace: str | None = None, find: FindTemplate = no_template) -> dict[str, Any]:
    """The manifest for the hub, which fills in the template itself. `find` looks up the template for a check here. Raises BadInput where
    the manifest is not a JobSpec, or names another namespace than `namespace`."""
    if isinstance(spec, JobSpec):
        found = {"apiVersion": spec.api_version, "kind": spec.kind, **spec.to_yaml_dict()}
        found.pop("status", None)
    else:
        documents = load_documents(Path(spec), find)
        if len(documents) != 1 or not isinstance(documents[0].resource, JobSpec):
            raise BadInput(
                f"{spec}: must hold one JobSpec and no other object", "split the file at its `---` lines; kubectl apply -f takes several"
            )
        found = documents[0].tree.value
    own = found["metadata"].get("namespace")
    if own and namespace and own != namespace:
        raise BadInput(f"the JobSpec is for namespace {own!r}, and -n says {namespace!r}", "leave out one of the two")
    return found
