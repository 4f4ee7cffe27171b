"""`tuneyard why`: the scheduler's reasons, and its prediction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from tuneyard.cli.hub_options import ContextOption, JobArgument, KubeconfigOption, NamespaceOption
from tuneyard.cli.output import Format, OutputOption, print_json, table_lines
from tuneyard.cluster import HubJob, Outlook, open_hub
from tuneyard.federation import REFERENCE_SKU, Ask, duration_words
from tuneyard.tracing import job_spans, span_facts
from tuneyard.tracing import timeline as span_lines
from tuneyard.tracking.progress.words import age, gang_words, start_words

TimelineOption = Annotated[bool, typer.Option("--timeline", help="show where the time went instead: each piece of the job's way")]
NO_MEMBERS = "it waits for a member cluster: none is registered with this hub"
ADD_ONE = "add one as docs/install.md says; tuneyard clusters lists them"


def why(
    name: JobArgument,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
    timeline: TimelineOption = False,
) -> None:
    """Show why a job waits: the obstacle on each cluster, the number of tasks ahead, and the expected start.

    The hub's own scheduler answers, from the present state of the clusters. Durations are predictions.

    Example: tuneyard why support-bot

    Where the time went, from submit to the result: tuneyard why support-bot --timeline
    """
    hub = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)
    job = hub.job(name)
    if timeline:
        spans = job_spans({"metadata": job.metadata, "spec": job.spec}, job.status)
        if output is Format.JSON:
            print_json({"name": job.name, "namespace": job.namespace, "spans": [span_facts(span) for span in spans]})
            return
        for line in span_lines(spans, datetime.now(UTC)):
            typer.echo(line)
        return
    snapshot = hub.snapshot()
    now = datetime.now(UTC)
    item = next((each for each in snapshot.jobs if each["metadata"].get("uid") == job.uid), None)
    read = snapshot.read_job(item) if item is not None else None
    asks, obstacle = snapshot.asks(read[0], job.created_at.timestamp(), read[1]) if read is not None else ([], "")
    outlooks = snapshot.outlook(asks, now) if asks else []
    if output is Format.JSON:
        print_json({"name": job.name, "namespace": job.namespace, "phase": str(job.phase), "tasks": [facts(each) for each in outlooks]})
        return
    for line in lines(job, outlooks, now, obstacle) if snapshot.clusters or not outlooks else no_members(job, now):
        typer.echo(line)
    if snapshot.partial:
        typer.echo(f"note: {snapshot.partial}")


def no_members(job: HubJob, now: datetime) -> list[str]:
    """The page for people on a hub without members, where sizes and times mean nothing."""
    return [_title(job, now), "", NO_MEMBERS, f"next: {ADD_ONE}"]


def lines(job: HubJob, outlooks: list[Outlook], now: datetime, obstacle: str = "") -> list[str]:
    """The page for people. `obstacle`: why the job's tasks cannot be judged."""
    found = [_title(job, now)]
    if not outlooks:
        found.append(job.status.message or obstacle or "none of its tasks waits for a placement")
    for outlook in outlooks:
        found += ["", *_task(outlook, now)]
    return found


def _title(job: HubJob, now: datetime) -> str:
    return f"{job.label}  {job.phase}, submitted {age((now - job.created_at).total_seconds())} ago"


def _task(outlook: Outlook, now: datetime) -> list[str]:
    if outlook.place is not None:
        place = outlook.place
        gang = gang_words(place.workers, place.sku, len(place.nodes))
        return [f"{outlook.task} can start now on {place.cluster}, {gang} ({outlook.why_there})"]
    assert outlook.wait is not None
    wait = outlook.wait
    found = [f"{outlook.task} waits for {_wanted(wait.ask)}; {outlook.ahead} ahead of it"]
    if wait.held:
        found.append(f"  {wait.held}")
    if wait.reasons:
        rows = [{"cluster": cluster, "why": reason} for cluster, reason in wait.reasons.items()]
        found += [f"  {line}" for line in table_lines(("cluster", "why"), rows)]
    if wait.unchecked:
        found.append(f"  {wait.unchecked}")
    found.append(f"  takes {duration_words(wait.ask.seconds, wait.ask.basis)} (on {REFERENCE_SKU})")
    found.append(f"  expected start: {start_words(wait.starts, now.timestamp())}")
    return found


def _wanted(ask: Ask) -> str:
    """The possible numbers of GPUs, with the least number of each SKU if it is known."""
    least = [f"{ask.smallest(sku)} x {sku}" for sku, gpus in ask.least if gpus <= max(ask.worlds)]
    if least:
        return ("at least " if len(ask.worlds) > 1 else "") + " or ".join(least)
    return " or ".join(str(world) for world in ask.worlds[:4]) + " x " + (" or ".join(ask.skus) or "any SKU")


def facts(outlook: Outlook) -> dict[str, Any]:
    """The same for programs."""
    place, wait = outlook.place, outlook.wait
    ask = place.ask if place is not None else wait.ask if wait is not None else None
    return {
        "task": outlook.task,
        "ahead": outlook.ahead,
        "can_start": place is not None,
        "cluster": place.cluster if place is not None else None,
        "sku": place.sku if place is not None else None,
        "held": wait.held if wait is not None else "",
        "unchecked": ask.fit if ask is not None and not ask.least else "",
        "reasons": dict(wait.reasons) if wait is not None else {},
        "duration_s": round(ask.seconds) if ask is not None else None,
        "duration_from": ask.basis if ask is not None else None,
        "expected_start": datetime.fromtimestamp(wait.starts, UTC).isoformat() if wait is not None and wait.starts is not None else None,
    }
