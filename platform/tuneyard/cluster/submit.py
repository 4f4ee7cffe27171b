"""`tuneyard.submit`: a job to the hub, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, JobSpec, load_documents
from tuneyard.cluster.connection import open_hub
from tuneyard.cluster.submission import Submission


def submit(
    spec: JobSpec | Path | str,
    *,
    dry_run: bool = False,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | Path | None = None,
) -> Submission:
    """Give a job to the hub: a JobSpec, or the path of its file. Returns as soon as the hub holds it.

    Submitting the same job again changes nothing. Raises TuneyardError where the hub cannot be asked, BadInput where the job is wrong or
    another one of its name is in the way.
    """
    hub = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)
    return hub.submit(manifest_of(spec, namespace), dry_run=dry_run)


def manifest_of(spec: JobSpec | Path | str, namespace: str | None = None) -> dict[str, Any]:
    """The object that the hub is given. Raises BadInput where it is none, or names another namespace than `namespace`."""
    if isinstance(spec, JobSpec):
        found = {"apiVersion": spec.api_version, "kind": spec.kind, **spec.to_yaml_dict()}
        found.pop("status", None)
    else:
        documents = load_documents(Path(spec))
        if len(documents) != 1 or not isinstance(documents[0].resource, JobSpec):
            raise BadInput(
                f"{spec}: does not hold one JobSpec and nothing else", "split the file at its `---` lines; kubectl apply -f takes several"
            )
        found = documents[0].tree.value
    own = found["metadata"].get("namespace")
    if own and namespace and own != namespace:
        raise BadInput(f"the JobSpec is for namespace {own!r}, and -n says {namespace!r}", "leave out one of the two")
    return found
