"""`python -m tuneyard_operators hub`: the hub operator."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime

from tuneyard.api import BadInput
from tuneyard.catalog import kinds
from tuneyard.extras import need
from tuneyard.federation import POLICIES

try:
    need("operator", "the hub")
except BadInput as lacking:
    print(f"error: {lacking.cause}\nnext: {lacking.next_step}", file=sys.stderr)
    raise SystemExit(lacking.exit_code) from None

import uvloop

from tuneyard.tracing import is_on
from tuneyard_operators.history import HistorySettings
from tuneyard_operators.hub import Settings, run_hub
from tuneyard_operators.hub.clock import Clock, utc_now
from tuneyard_operators.rendering import Defaults


class _JsonLines(logging.Formatter):
    """A line of JSON per record, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "job"):
            fields["job"] = record.job
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tuneyard_operators", description="Tuneyard's operators")
    hub = parser.add_subparsers(dest="operator", required=True).add_parser("hub", help="run this cluster's JobSpecs on its members")
    own = Settings()
    hub.add_argument("--kubeconfig", help="default: the pod's service account, else $KUBECONFIG")
    hub.add_argument("--namespace", default=own.namespace, help="namespace of the hub's lease and of the Secrets with members' kubeconfigs")
    hub.add_argument("--output", default="", help="URI prefix for the output of jobs without storage.output")
    hub.add_argument("--image", default="", help="image for jobs without spec.image")
    grace = "seconds that a stopping attempt has for a step and a checkpoint, before its pods are removed"
    hub.add_argument("--stop-grace", type=float, default=own.stop_grace_s, metavar="S", help=grace)
    hub.add_argument("--metrics-port", type=int, default=9090, help="port of /metrics, /healthz and /readyz; 0: any free port")
    hub.add_argument("--logs-port", type=int, default=0, help="port of the aggregated API of logs, over TLS; default: not served")
    hub.add_argument("--qps", type=float, default=own.qps, help="most requests a second to the hub's API server")
    hub.add_argument("--member-qps", type=float, default=own.member_qps, help="most requests a second to each member's API server")
    hub.add_argument(
        "--member-lost-after", type=float, default=own.member_lost_s, metavar="S", help="seconds until an unreachable member is lost"
    )
    hub.add_argument(
        "--settle-after", type=float, default=own.policy.settled_s, metavar="S", help="seconds for which a team may keep borrowed GPUs"
    )
    hub.add_argument(
        "--webhook-host",
        action="append",
        metavar="PATTERN",
        help=f"host that webhooks of Schedules may have, such as *.example.com; repeatable; default: {own.webhook_hosts[0]}",
    )
    nodes = "name node of HDFS, as HOST or HOST:PORT, on which Schedules may wait for data over WebHDFS; repeatable; default: none"
    hub.add_argument("--name-node", action="append", metavar="HOST", help=nodes)

    history = "database of run history, as TUNEYARD_HISTORY_URL holds it, which is the default; none: jobs are not recorded"
    hub.add_argument("--history-url", default=os.environ.get("TUNEYARD_HISTORY_URL", ""), metavar="URL", help=history)
    hold = "longest time for which a deleted JobSpec waits for its record"
    hub.add_argument("--history-hold", type=float, default=own.history.hold_s, metavar="S", help=hold)
    hub.add_argument(
        "--history-thin-days", type=float, default=own.history.thin_days, help="age at which the series of an attempt are thinned; 0: never"
    )
    hub.add_argument("--history-series-days", type=float, default=own.history.series_days, help="age at which they are removed; 0: never")
    shared = "whose training runs a search learns from, as figures without names; default: all"
    hub.add_argument("--search-history", choices=("all", "namespace", "none"), default=own.history.shared, help=shared)
    hub.add_argument("--log-format", choices=("json", "text"), default="json")
    hub.add_argument("--log-level", default="info")
    return parser.parse_args()


def main(clock: Clock = utc_now) -> int:
    """Run the operator that the command line names. `clock`: the present time for Schedules."""
    arguments = _arguments()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if arguments.log_format == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=arguments.log_level.upper(), handlers=[handler])
    settings = Settings(
        namespace=arguments.namespace,
        defaults=Defaults(image=arguments.image, output=arguments.output, stop_grace_s=arguments.stop_grace, traces=is_on(os.environ)),
        qps=arguments.qps,
        member_qps=arguments.member_qps,
        member_lost_s=arguments.member_lost_after,
        webhook_hosts=tuple(arguments.webhook_host or Settings().webhook_hosts),
        name_nodes=tuple(arguments.name_node or ()),
        policy=replace(POLICIES["tuneyard"], settled_s=arguments.settle_after),
        history=HistorySettings(
            url=arguments.history_url,
            hold_s=arguments.history_hold,
            thin_days=arguments.history_thin_days,
            series_days=arguments.history_series_days,
            shared=arguments.search_history,
        ),
    )
    try:
        kinds()  # an unreadable entry of the catalog ends the hub before it becomes leader
        if settings.history.url:
            from tuneyard.tracking.history import check_url

            check_url(settings.history.url)
        if settings.defaults.traces:
            need("otel", "a hub that sends traces")
    except BadInput as wrong:
        logging.getLogger("tuneyard_operators").error("%s: %s", wrong.cause, wrong.next_step)
        return wrong.exit_code
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(
                run_hub(
                    settings,
                    kubeconfig=arguments.kubeconfig,
                    metrics_port=arguments.metrics_port,
                    logs_port=arguments.logs_port,
                    clock=clock,
                )
            )
    except Exception:
        logging.getLogger("tuneyard_operators").exception("the hub ends")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
