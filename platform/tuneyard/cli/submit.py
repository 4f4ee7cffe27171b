"""`tuneyard submit`: a job to the hub."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput, Document, JobSpec
from tuneyard.cli.checks import check_file
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption, NamespaceOption
from tuneyard.cli.output import Format, OutputOption, print_json
from tuneyard.cluster import Hub, HubJob, Outlook, Refused, Snapshot, Submission, open_hub, waiting_tasks
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
    estimates = _estimates(hub, made, document) if dry_run else []
    job = _ended(hub, made) if wait and not dry_run else made.job
    if output is Format.JSON:
        print_json(_facts(made, job, estimates))
    else:
        _tell(made, hub, estimates)
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


def _tell(made: Submission, hub: Hub, estimates: list[dict[str, Any]]) -> None:
    where = hub.address.hub
    words = {
        "created": f"{where} would take it" if made.dry_run else f"submitted to {where}",
        "updated": "would change the job, which has not started" if made.dry_run else "changed the job, which had not started",
        "unchanged": f"there already and the same, {made.job.phase}",
    }
    print(f"{made.job.label}: {words[made.outcome]}{' (dry run: nothing was changed)' if made.dry_run else ''}", file=sys.stderr)
    if made.dry_run:
        for line in _estimate(estimates):
            print(line, file=sys.stderr)
    else:
        print(f"follow it: tuneyard wait {made.job.name} -n {made.job.namespace}", file=sys.stderr)


def _estimates(hub: Hub, made: Submission, document: Document) -> list[dict[str, Any]]:
    """What is to be expected of the tasks that would wait for a place first: by the hub's own scheduler, on the world as it is now."""
    from tuneyard.federation import ask_of

    assert isinstance(document.resource, JobSpec)
    now = datetime.now(UTC)
    job = document.resource.model_copy(deep=True)
    job.metadata.namespace = made.job.namespace
    status = made.job.status
    asks = [ask_of(job, now.timestamp(), task, status) for task in waiting_tasks(job, status)]
    snapshot = hub.snapshot()
    return [estimate(outlook, snapshot, now) for outlook in snapshot.outlook(asks, now)] if asks else []


def estimate(outlook: Outlook, snapshot: Snapshot, now: datetime) -> dict[str, Any]:
    """One task's plan and placement, start, duration and cost, as far as they can be told."""
    place, wait = outlook.place, outlook.wait
    starts = now.timestamp() if place is not None else (wait.starts if wait is not None else None)
    found: dict[str, Any] = {
        "task": outlook.task,
        "ahead": outlook.ahead,
        "cluster": place.cluster if place is not None else None,
        "sku": place.sku if place is not None else None,
        "gpus": place.workers if place is not None else None,
        "nodes": dict(place.nodes) if place is not None else {},
        "expected_start": datetime.fromtimestamp(starts, UTC).isoformat(timespec="seconds") if starts is not None else None,
        "duration_s": round(place.seconds) if place is not None else None,
        "cost": snapshot.cost(place) if place is not None else None,
        "why": outlook.why_there if place is not None else (wait.reason if wait is not None else ""),
    }
    return found


def _estimate(estimates: list[dict[str, Any]]) -> list[str]:
    lines = []
    for each in estimates:
        if each["cluster"] is None:
            starts = f"; expected start {each['expected_start']}" if each["expected_start"] else ""
            lines.append(f"{each['task']}: would wait behind {each['ahead']}{starts}: {each['why']}")
            continue
        gpus = f"{each['gpus']} x {each['sku']} on {len(each['nodes'])} nodes" if each["gpus"] else "the head pod alone"
        cost = f", cost {each['cost']:.2f}" if each["cost"] else ""
        lines.append(f"{each['task']}: would start now on {each['cluster']}, {gpus}, for about {each['duration_s'] / 3600:.1f} h{cost}")
    return lines


def _facts(made: Submission, job: HubJob, estimates: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": job.name,
        "namespace": job.namespace,
        "uid": job.uid,
        "outcome": made.outcome,
        "dry_run": made.dry_run,
        "phase": str(job.phase),
        "estimate": estimates or None,
    }
