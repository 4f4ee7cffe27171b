"""`tuneyard submit`: a job to the hub."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput, Document, JobSpec
from tuneyard.cli.checks import check_file
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption, NamespaceOption
from tuneyard.cli.output import Format, OutputOption, print_json
from tuneyard.cluster import Hub, HubJob, Refused, Submission, open_hub
from tuneyard.cluster.submit import manifest_of

_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JobSpec in YAML")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="have the hub judge the job, and change nothing")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="wait until the job has ended; exit code 1 unless it has succeeded")] = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Give a job to the hub, which runs it on a cluster with room. Submitting an unchanged file again changes nothing.

    The file is checked here first, then by the hub's admission; nothing is created unless both accept it. The last line of stdout is
    NAMESPACE/NAME.

    Example: tuneyard submit job.yaml --dry-run
    """
    document = _document(file)
    hub = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)
    manifest = manifest_of(file, namespace)
    try:
        made = hub.submit(manifest, dry_run=dry_run)
    except Refused as refused:
        raise _in_the_file(refused, document) from refused
    job = _ended(hub, made) if wait and not dry_run else made.job
    if output is Format.JSON:
        print_json(_facts(made, job))
    else:
        _tell(made, hub)
        typer.echo(made.job.label)
    if wait and not dry_run:
        from tuneyard.cli.wait import must_succeed

        must_succeed(job)


def _document(file: Path) -> Document:
    """The one JobSpec of a file, checked. Raises BadInput."""
    documents = check_file(file)
    if len(documents) != 1 or not isinstance(documents[0].resource, JobSpec):
        kinds = ", ".join(type(document.resource).__name__ for document in documents)
        raise BadInput(f"{file}: holds {kinds}; one JobSpec is expected here", "other kinds, and several objects at once: kubectl apply -f")
    return documents[0]


def _in_the_file(refused: Refused, document: Document) -> BadInput:
    """What the hub refuses, with the lines of the file."""
    lines = [document.complaint(_path(problem.path), problem.reason) if problem.path else str(problem) for problem in refused.problems]
    return BadInput("the hub refuses the job\n" + "\n".join(lines), refused.next_step)


def _path(text: str) -> tuple[str | int, ...]:
    """`spec.tasks[0].name` -> `("spec", "tasks", 0, "name")`."""
    return tuple(name or int(index) for name, index in _PART.findall(text))


def _ended(hub: Hub, made: Submission) -> HubJob:
    from tuneyard.cli.wait import wait_for_end

    print(f"{made.job.label}: {made.outcome}", file=sys.stderr)
    return wait_for_end(hub, made.job.name, made.job.namespace)


def _tell(made: Submission, hub: Hub) -> None:
    where = hub.address.hub
    words = {
        "created": f"{where} would take it" if made.dry_run else f"submitted to {where}",
        "updated": "would change the job, which has not started" if made.dry_run else "changed the job, which had not started",
        "unchanged": f"there already and the same, {made.job.phase}",
    }
    print(f"{made.job.label}: {words[made.outcome]}{' (dry run: nothing was changed)' if made.dry_run else ''}", file=sys.stderr)
    if made.dry_run:
        for line in _estimate(made):
            print(line, file=sys.stderr)
    else:
        print(f"follow it: tuneyard wait {made.job.name} -n {made.job.namespace}", file=sys.stderr)


def _estimate(made: Submission) -> list[str]:
    """What the hub expects of the job, where it can tell; no guesses of our own."""
    if made.estimate is None:
        return [
            "placement, start, duration and cost: this hub does not tell them before it places a job; memory per SKU: tuneyard plan FILE"
        ]
    return [f"{key.replace('_', ' ')}: {value}" for key, value in made.estimate.items()]


def _facts(made: Submission, job: HubJob) -> dict[str, Any]:
    return {
        "name": job.name,
        "namespace": job.namespace,
        "uid": job.uid,
        "outcome": made.outcome,
        "dry_run": made.dry_run,
        "phase": str(job.phase),
        "estimate": made.estimate,
    }
