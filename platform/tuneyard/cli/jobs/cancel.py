"""`tuneyard cancel`: the end of a job, at a checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from tuneyard.api import Attempt
from tuneyard.cli.hub_options import ContextOption, JobArgument, KubeconfigOption, NamespaceOption
from tuneyard.cluster import HubJob, open_hub


def cancel(
    name: JobArgument,
    wait: Annotated[bool, typer.Option("--wait", help="wait until it has ended")] = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """End a job. Its running attempt commits a checkpoint, then its machines are freed. The job stays listed, and its output stays.

    Cancelling a job twice, or after its end, changes nothing. Exit code 0, also with --wait, for every end of the job.

    Example: tuneyard cancel support-bot --wait
    """
    hub = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)
    job, asked = hub.cancel(name)
    typer.echo(_said(job, asked))
    if wait and not job.ended:
        from tuneyard.cli.jobs.wait import wait_for_end

        ended = wait_for_end(hub, name)
        typer.echo(f"{ended.label}: {ended.phase}")


def _said(job: HubJob, asked: bool) -> str:
    if job.ended:
        return f"{job.label} has ended already: {job.phase}"
    first = "will end" if asked else "is being cancelled already"
    return f"{job.label} {first}: {_what_happens(job)}; remove it for good: kubectl delete jobspec {job.name} -n {job.namespace}"


def _what_happens(job: HubJob) -> str:
    running = [attempt for attempt in job.status.attempts if not attempt.ended_at and not attempt.phase.final]
    if not running:
        return "nothing of it has started"
    return f"{' and '.join(map(_named, running))} will commit what is done, then give the machines back"


def _named(attempt: Attempt) -> str:
    return f"attempt {attempt.number} of {attempt.task}"
