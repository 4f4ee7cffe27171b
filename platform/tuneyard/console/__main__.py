"""`python -m tuneyard.console`: the console of a hub, for many readers. `tuneyard console` is the one for a person's own machine."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import sys

from tuneyard.api import BadInput, TuneyardError
from tuneyard.extras import need

_KEY, _PROXY_SECRET = "TUNEYARD_CONSOLE_KEY", "TUNEYARD_CONSOLE_PROXY_SECRET"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tuneyard.console", description="The console of a hub, for many readers")
    parser.add_argument("--kubeconfig", help="default: the pod's service account, else $KUBECONFIG")
    parser.add_argument("--port", type=int, default=8080, help="port of the pages")
    parser.add_argument("--metrics-port", type=int, default=9090, help="port of /metrics, /healthz and /readyz")
    parser.add_argument("--host", action="append", default=[], metavar="NAME", help="name by which browsers reach the console; repeatable")
    parser.add_argument("--auth", choices=("token", "proxy"), default="token", help="how a reader is known")
    hours = "longest life of a session, in hours"
    parser.add_argument("--session-hours", type=float, default=12.0, metavar="H", help=hours)
    parser.add_argument("--user-header", default="X-Forwarded-User", metavar="NAME", help="header in which the proxy names the user")
    parser.add_argument("--groups-header", default="X-Forwarded-Groups", metavar="NAME", help="header with the user's groups")
    parser.add_argument("--group", action="append", default=[], metavar="NAME", help="group that the proxy may name; repeatable")
    secret = f"header in which the proxy sends the secret in {_PROXY_SECRET}"
    parser.add_argument("--secret-header", default="X-Tuneyard-Proxy", metavar="NAME", help=secret)
    parser.add_argument("--proxy-network", action="append", default=[], metavar="CIDR", help="addresses of the proxy; repeatable")
    parser.epilog = f"{_KEY}: secret of all replicas, for sessions and forms; default: a random one, for one replica."
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    try:
        need("console", "the console")
        need("operator", "the console of a hub")
        _serve(arguments)
    except TuneyardError as error:
        print(f"error: {error.cause}\nnext: {error.next_step}", file=sys.stderr)
        return error.exit_code
    return 0


def _serve(arguments: argparse.Namespace) -> None:
    from tuneyard.cluster import HubAccess
    from tuneyard.console.hosted import ProxyReaders, ProxyTrust, Sessions, TokenReaders, hosted_app
    from tuneyard.console.hosted.metrics import ConsoleMetrics
    from tuneyard.console.hosted.proxy import networks_of
    from tuneyard.console.hosted.service import serve

    key = os.environ.get(_KEY, "").encode() or secrets.token_bytes(32)
    if arguments.session_hours <= 0:
        raise BadInput("--session-hours is not above 0", "leave it out for 12")
    access = HubAccess(kubeconfig=arguments.kubeconfig)
    readers: TokenReaders | ProxyReaders
    if arguments.auth == "proxy":
        trust = ProxyTrust(
            user_header=arguments.user_header,
            groups_header=arguments.groups_header,
            groups=frozenset(arguments.group),
            secret_header=arguments.secret_header,
            secret=os.environ.get(_PROXY_SECRET, ""),
            networks=networks_of(arguments.proxy_network),
        )
        readers = ProxyReaders(access, trust)
    else:
        readers = TokenReaders(access, Sessions(key, arguments.session_hours))
    metrics = ConsoleMetrics()
    app = hosted_app(readers, key=key, hosts=arguments.host, metrics=metrics)
    asyncio.run(serve(app, metrics, port=arguments.port, metrics_port=arguments.metrics_port))


if __name__ == "__main__":
    sys.exit(main())
