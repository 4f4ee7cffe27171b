"""The application for a hub's readers."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI

from tuneyard.console.app import create_app
from tuneyard.console.hosted.metrics import ConsoleMetrics, Counted
from tuneyard.console.hosted.proxy import ProxyReaders
from tuneyard.console.hosted.sign_in import SignIn
from tuneyard.console.hosted.tokens import TokenReaders
from tuneyard.console.hub import HubJobs
from tuneyard.console.safety import LOOPBACK, GuardRules

MOST_STREAMS = 400


def hosted_app(
    readers: TokenReaders | ProxyReaders, *, key: bytes, hosts: Iterable[str] = (), metrics: ConsoleMetrics | None = None
) -> FastAPI:
    """The console for `readers`. `key`: secret of all replicas, for the tokens of forms; `hosts`: the names by which browsers reach it,
    beside those of loopback, by which `kubectl port-forward` does."""
    source = HubJobs(readers, most_streams=MOST_STREAMS)
    rules = GuardRules(hosts=LOOPBACK | {host.lower() for host in hosts}, secret=key, own_user_only=False)
    sign_in = SignIn(readers).router() if isinstance(readers, TokenReaders) else None
    app = create_app(source, rules, sign_in=sign_in)
    if metrics is not None:
        metrics.streams.set_function(lambda: source.streams.open)
        app.add_middleware(Counted, metrics=metrics)
    return app
