"""The flags by which every command that asks the hub finds it: kubectl's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="namespace of the job; default: that of the kubeconfig's context")
]
ContextOption = Annotated[str | None, typer.Option(metavar="NAME", help="context of the kubeconfig; default: its current one")]
KubeconfigOption = Annotated[Path | None, typer.Option(metavar="FILE", help="default: KUBECONFIG, or ~/.kube/config")]
