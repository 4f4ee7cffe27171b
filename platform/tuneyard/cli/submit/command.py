"""`tuneyard submit`: a job to the hub."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput, Document, FindTemplate, JobSpec
from tuneyard.api.quantities import parse_size_bytes
from tuneyard.cli.checks import check_file, check_shipped_data
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption, NamespaceOption
from tuneyard.cli.output import Format, OutputOption, print_json
from tuneyard.cli.submit.ship_progress import conclusion
from tuneyard.cli.submit.view import OnStderr
from tuneyard.cli.submit.words import outcome_words
from tuneyard.cluster import (
    CannotShip,
    Hub,
    HubJob,
    Outlook,
    Refused,
    Shipment,
    Snapshot,
    Submission,
    manifest_of,
    open_hub,
    shipment_of,
    submit_shipment,
    waiting_tasks,
)

_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JobSpec in YAML")],
    out: Annotated[
        str | None, typer.Option(metavar="URI", help="storage for all output, such as s3://bucket/folder; default: storage.output")
    ] = None,
    ship_limit: Annotated[str, typer.Option(metavar="SIZE", help="largest size of all files to ship; more is refused")] = "2Gi",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="let the hub check the job, and change nothing")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="wait until the job has ended; exit code 1 unless it has succeeded")] = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Give a job to the hub, which runs it on a cluster with room. Submitting an unchanged file twice changes nothing.

    The file is checked here first, then by the hub's admission. A job that either refuses is not created. Files with relative paths
    (data, models, chat templates, scripts with the modules that they import) are shipped to the job's storage first, under the hash of
    their content. The last line of stdout is NAMESPACE/NAME.

    Example: tuneyard submit job.yaml --out s3://models/support-bot
    """
    limit_bytes = _bytes(ship_limit)
    view = OnStderr()
    find_hub = partial(open_hub, namespace=namespace, context=context, kubeconfig=kubeconfig)
    document = _document(file, lambda: _skus_of(find_hub()), lambda name: find_hub().template(name))
    hub = find_hub()
    try:
        manifest = manifest_of(file, namespace, hub.template)
        shipment = shipment_of(manifest, file.absolute().parent, out=out, limit_bytes=limit_bytes, find=hub.template)
        if isinstance(document.resource, JobSpec):
            for line in check_shipped_data(document.resource, file.absolute().parent, document.complaint):
                print(f"warning: {line}", file=sys.stderr)
        view.ships(shipment, dry_run=dry_run)
        with view.sending() as on_progress:
            made, sent = submit_shipment(hub, shipment, dry_run=dry_run, on_progress=on_progress)
    except CannotShip as error:
        raise _in_the_file("files of the job cannot be shipped, and nothing was submitted", error, document) from error
    except Refused as refused:
        raise _in_the_file("the hub refuses the job", refused, document) from refused
    for line in conclusion(sent):
        print(line, file=sys.stderr)
    now = datetime.now(UTC)
    estimates = _estimates(hub, made, document, now) if dry_run else []
    job = _ended(hub, made) if wait and not dry_run else made.job
    if output is Format.JSON:
        print_json(_facts(made, job, estimates, shipment))
    else:
        _tell(made, hub, estimates, now)
        typer.echo(made.job.label)
    if wait and not dry_run:
        from tuneyard.cli.jobs.wait import must_succeed

        must_succeed(job)


def _skus_of(hub: Hub) -> set[str]:
    """Names of the SKUs of the hub's clusters. They include GPUs that the catalog lacks."""
    return {sku.sku for cluster in hub.clusters() for sku in cluster.capacity}


def _document(file: Path, elsewhere: Callable[[], Collection[str]], find: FindTemplate) -> Document:
    """The one JobSpec of a file, checked. Raises BadInput."""
    documents = check_file(file, elsewhere=elsewhere, find=find)
    if len(documents) != 1 or not isinstance(documents[0].resource, JobSpec):
        kinds = ", ".join(type(document.resource).__name__ for document in documents)
        raise BadInput(f"{file}: holds {kinds}; one JobSpec is expected here", "other kinds, and several objects at once: kubectl apply -f")
    return documents[0]


def _in_the_file(what: str, error: Refused | CannotShip, document: Document) -> BadInput:
    """The refusal, with the lines of the file."""
    lines = [document.complaint(_path(problem.path), problem.reason) if problem.path else str(problem) for problem in error.problems]
    return BadInput(f"{what}\n" + "\n".join(lines), error.next_step)


def _bytes(size: str) -> int:
    try:
        return int(parse_size_bytes(size))
    except ValueError as error:
        raise BadInput(f"--ship-limit: {error}", "write it like 500Mi or 20Gi") from None


def _path(text: str) -> tuple[str | int, ...]:
    """`spec.tasks[0].name` -> `("spec", "tasks", 0, "name")`."""
    return tuple(name or int(index) for name, index in _PART.findall(text))


def _ended(hub: Hub, made: Submission) -> HubJob:
    from tuneyard.cli.jobs.wait import wait_for_end

    print(f"{made.job.label}: {made.outcome}", file=sys.stderr)
    return wait_for_end(hub, made.job.name, made.job.namespace)


def _tell(made: Submission, hub: Hub, estimates: list[dict[str, Any]], now: datetime) -> None:
    print(outcome_words(made, hub.address.hub), file=sys.stderr)
    if made.dry_run:
        for line in _estimate(estimates, now):
            print(line, file=sys.stderr)
    else:
        print(f"follow it: tuneyard wait {made.job.name} -n {made.job.namespace}", file=sys.stderr)


def _estimates(hub: Hub, made: Submission, document: Document, now: datetime) -> list[dict[str, Any]]:
    """Estimates for the first tasks of the job, by the hub's own scheduler, from the present state of the clusters."""
    from tuneyard.admission import ask_of

    assert isinstance(document.resource, JobSpec)
    job = document.resource.model_copy(deep=True)
    job.metadata.namespace = made.job.namespace
    status = made.job.status
    waiting = waiting_tasks(job, status)
    if not waiting:
        return []
    snapshot = hub.snapshot()
    asks = [ask_of(job, now.timestamp(), task, status, snapshot.skus) for task in waiting]
    return [estimate(outlook, snapshot, now) for outlook in snapshot.outlook(asks, now, named=job.spec.team)]


def estimate(outlook: Outlook, snapshot: Snapshot, now: datetime) -> dict[str, Any]:
    """Plan, placement, start, duration and cost of one task; unknown values are None."""
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
        "duration_from": place.ask.basis if place is not None else None,
        "cost": snapshot.cost(place) if place is not None else None,
        "why": outlook.why_there if place is not None else (wait.reason if wait is not None else ""),
        "unchecked": place.ask.fit if place is not None and not place.ask.least else "",
    }
    return found


def _estimate(estimates: list[dict[str, Any]], now: datetime) -> list[str]:
    from tuneyard.federation import duration_words
    from tuneyard.tracking.progress.words import gang_words, start_words

    lines = []
    for each in estimates:
        if each["cluster"] is None:
            starts_s = datetime.fromisoformat(each["expected_start"]).timestamp() if each["expected_start"] else None
            starts = f"; expected start: {start_words(starts_s, now.timestamp())}" if starts_s is not None else ""
            lines.append(f"{each['task']}: would wait behind {each['ahead']}{starts}: {each['why']}")
            continue
        gang = gang_words(each["gpus"], each["sku"], len(each["nodes"]))
        takes = duration_words(each["duration_s"], each["duration_from"])
        known = "cost" if each["duration_from"] != "assumed" else "cost, if so,"
        cost = f"; {known} {each['cost']:.2f}" if each["cost"] else ""
        unchecked = f"; {each['unchecked']}" if each["unchecked"] else ""
        lines.append(f"{each['task']}: would start now on {each['cluster']}, {gang}, for {takes}{cost}{unchecked}")
    return lines


def _facts(made: Submission, job: HubJob, estimates: list[dict[str, Any]], shipment: Shipment) -> dict[str, Any]:
    return {
        "name": job.name,
        "namespace": job.namespace,
        "uid": job.uid,
        "outcome": made.outcome,
        "dry_run": made.dry_run,
        "phase": str(job.phase),
        "shipped": [{"name": p.text, "uri": shipment.uri(p), "size_bytes": p.size_bytes} for p in shipment.parcels],
        "estimate": estimates or None,
    }
