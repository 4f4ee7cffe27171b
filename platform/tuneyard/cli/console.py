"""`tuneyard console`: web pages over the run history of this machine, or over a hub."""

from __future__ import annotations

import threading
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuneyard.cli.hub_options import ContextOption, KubeconfigOption, NamespaceOption
from tuneyard.extras import need

if TYPE_CHECKING:
    from tuneyard.console.app import Source


def console(
    port: Annotated[int | None, typer.Option(min=0, max=65535, metavar="N", help="default: 7420, or any free one; 0: any free one")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="open the page in a browser")] = True,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show the runs of this machine in a browser: live curves, logs, comparisons, rows of score tasks side by side.

    With --context, --kubeconfig or --namespace: a hub, with your own rights there: queue, jobs, clusters, teams.

    Answers this machine alone (127.0.0.1), until Ctrl-C.

    Example: tuneyard console --port 8000 --no-browser
    """
    need("console", "`tuneyard console`")
    from tuneyard.console import serve

    def ready(address: str) -> None:
        print(f"console: {address}", flush=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    with suppress(KeyboardInterrupt):  # the way to end it
        serve(_source(namespace, context, kubeconfig), port=port, on_ready=ready)


def _source(namespace: str | None, context: str | None, kubeconfig: Path | None) -> Source:
    if namespace is not None or context is not None or kubeconfig is not None:
        from tuneyard.cluster import open_hub
        from tuneyard.console.hub import HubJobs, OneReader

        return HubJobs(OneReader(open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)))
    from tuneyard.console.local import LocalHistory

    return LocalHistory.open()
