"""`tuneyard wait`: wait for the end of a job on the hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from tuneyard.api import BadInput, JobFailed, Phase, TuneyardError
from tuneyard.api.quantities import parse_duration_s
from tuneyard.cli.hub_options import ContextOption, JobArgument, KubeconfigOption, NamespaceOption
from tuneyard.cli.progress.views import open_job_view
from tuneyard.cluster import Hub, HubJob, open_hub


def wait(
    name: JobArgument,
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="give up after this time, such as 90s, 15m or 2h")] = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Wait for the end of a job, and show its progress. The command outlives an outage of the hub.

    Exit code 0: the job has succeeded; 1: it failed or was cancelled, or the time is over (the job continues).

    Example: tuneyard wait support-bot --timeout 2h
    """
    limit_s = timeout_s(timeout)
    hub = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)
    job = wait_for_end(hub, name, timeout_s=limit_s)
    must_succeed(job)
    typer.echo(f"{job.label}: {job.phase}")


def wait_for_end(hub: Hub, name: str, namespace: str | None = None, *, timeout_s: float | None = None) -> HubJob:
    """The ended job. Raises TuneyardError after `timeout_s`, and the errors of `Hub.follow`."""
    with open_job_view() as view:
        return followed(hub, name, namespace, view, view.away, timeout_s=timeout_s)


def followed(
    hub: Hub,
    name: str,
    namespace: str | None,
    seen: Callable[[HubJob], None],
    away: Callable[[TuneyardError], None],
    *,
    timeout_s: float | None = None,
) -> HubJob:
    """As `wait_for_end`. `seen` gets the job at each change, `away` the error of a hub that does not answer."""
    job: HubJob | None = None
    for job in hub.follow(name, namespace, timeout_s=timeout_s, on_away=away):
        seen(job)
        if job.ended:
            return job
    assert job is not None  # `follow` answers once at least, or raises
    doing = f", {job.status.message}" if job.status.message else ""
    again = f"tuneyard wait {job.name} -n {job.namespace}"
    raise TuneyardError(f"{job.label} has not ended within {timeout_s:g} s: {job.phase}{doing}", f"the job continues; wait again: {again}")


def must_succeed(job: HubJob) -> None:
    """Raises JobFailed with the operator's message for a job that has not succeeded."""
    if job.phase is Phase.SUCCEEDED:
        return
    look = f"tuneyard status {job.name} -n {job.namespace}"
    if job.phase is Phase.CANCELLED:
        raise JobFailed(f"{job.label} was cancelled", f"see its progress: {look}")
    why = f": {job.status.message}" if job.status.message else ""
    raise JobFailed(f"{job.label} failed{why}", job.next_step() or f"see why: {look}")


def timeout_s(text: str | None) -> float | None:
    """Seconds of `--timeout`. Raises BadInput."""
    if text is None:
        return None
    try:
        return float(parse_duration_s(float(text) if text.isdigit() else text))
    except ValueError as error:
        raise BadInput(f"--timeout: {error}", "write it like 90s, 15m, 2h or 1h30m") from error
