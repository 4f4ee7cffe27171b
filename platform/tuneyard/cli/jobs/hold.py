"""`tuneyard suspend` and `tuneyard resume`: hold a job, and let it go on."""

from __future__ import annotations

from pathlib import Path

import typer

from tuneyard.cli.hub_options import ContextOption, JobArgument, KubeconfigOption, NamespaceOption
from tuneyard.cluster import open_hub


def suspend(
    name: JobArgument, namespace: NamespaceOption = None, context: ContextOption = None, kubeconfig: KubeconfigOption = None
) -> None:
    """Hold a job. Its running attempts stop, training at a checkpoint, and give their machines back. `tuneyard resume` lets it go on.

    Suspending a job twice, or after its end, changes nothing.

    Example: tuneyard suspend support-bot
    """
    _hold(name, namespace, context, kubeconfig, hold=True)


def resume(
    name: JobArgument, namespace: NamespaceOption = None, context: ContextOption = None, kubeconfig: KubeconfigOption = None
) -> None:
    """Let a suspended job go on: it is queued for machines. A server that has ended for lack of requests starts again.

    Resuming a job that is not suspended, or has ended, changes nothing.

    Example: tuneyard resume support-bot
    """
    _hold(name, namespace, context, kubeconfig, hold=False)


def _hold(name: str, namespace: str | None, context: str | None, kubeconfig: Path | None, *, hold: bool) -> None:
    job, changed = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig).suspend(name, hold=hold)
    if job.ended:
        said = f"has ended already: {job.phase}"
    elif job.cancelled:
        said = "is being cancelled"
    elif changed:
        said = "is suspended: tuneyard resume lets it go on" if hold else "goes on once there are machines: tuneyard status follows it"
    else:
        said = "was suspended already" if hold else "is not suspended"
    typer.echo(f"{job.label} {said}")
