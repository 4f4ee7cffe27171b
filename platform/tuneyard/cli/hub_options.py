"""Options of the commands that ask the hub: kubectl's own flags, and the name of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="namespace of the job; default: that of the kubeconfig's context")
]
ContextOption = Annotated[str | None, typer.Option(metavar="NAME", help="context of the kubeconfig; default: its current one")]
KubeconfigOption = Annotated[Path | None, typer.Option(metavar="FILE", help="default: KUBECONFIG, or ~/.kube/config")]


def job_names(ctx: typer.Context) -> list[str]:
    """Completions of a job's name: the jobs of the hub by the flags so far; none if the hub does not answer."""
    from tuneyard.api import TuneyardError
    from tuneyard.cluster import open_hub

    flags: dict[str, Any] = {name: ctx.params.get(name) for name in ("namespace", "context", "kubeconfig")}
    try:
        return sorted(job.name for job in open_hub(**flags).jobs())
    except TuneyardError:
        return []


JobArgument = Annotated[str, typer.Argument(metavar="NAME", help="name of the job", autocompletion=job_names)]
