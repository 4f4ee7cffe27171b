"""`tuneyard console`: web pages over the run history of this machine."""

from __future__ import annotations

import threading
import webbrowser
from typing import Annotated

import typer

from tuneyard.extras import need


def console(
    port: Annotated[int | None, typer.Option(min=0, max=65535, metavar="N", help="default: 7420, or any free one; 0: any free one")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="open the page in a browser")] = True,
) -> None:
    """Show the runs of this machine in a browser: live curves, logs, comparisons, rows of score tasks side by side.

    Answers this machine alone (127.0.0.1), until Ctrl-C.

    Example: tuneyard console --port 8000 --no-browser
    """
    need("console", "`tuneyard console`")
    from tuneyard.console import serve
    from tuneyard.console.local import LocalHistory

    def ready(address: str) -> None:
        print(f"console: {address}", flush=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    serve(LocalHistory.open(), port=port, on_ready=ready)
