"""The console: web pages over the run history of this machine, or over a hub with the reader's own rights.

`serve` binds a loopback port, says where the console answers, and runs until it is interrupted. `create_app` makes the application for a
`Source`: the pages of one kind of data (`local` or `hub`). A page is rendered on this machine by Jinja; htmx swaps parts of it, and a page
of a running job gets its changes as server-sent events. Nothing is asked of any other host.

This room needs the extra [console]. Importing `tuneyard.console` loads none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.console.app import create_app
    from tuneyard.console.server import serve

__all__ = ["create_app", "serve"]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from tuneyard.console.app import create_app

        return create_app
    if name == "serve":
        from tuneyard.console.server import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
