"""`tuneyard status`: the jobs of the hub, or one job in full."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from tuneyard.api import TuneyardError
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption, NamespaceOption, job_names
from tuneyard.cli.jobs.page import page
from tuneyard.cli.jobs.table import COLUMNS, facts, rows, summary
from tuneyard.cli.output import Format, OutputOption, print_json, print_table, table_lines
from tuneyard.cli.terminal import console
from tuneyard.cluster import Hub, HubError, HubJob, open_hub

_EVERY_S = 2.0


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="name of a job; default: a table of all", autocompletion=job_names)
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="jobs of all namespaces")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="show each change, of one job to its end")] = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the jobs of a namespace, the newest first, or one job: tasks, attempts, failures, artifacts and the next step.

    Example: tuneyard status support-bot -n maps
    """
    hub = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)
    if watch:
        changes = hub.follow(name, on_away=_say) if name else _lists(hub, everywhere)
        _watch(changes, _shown_as(everywhere, output))
    elif name:
        job = hub.job(name)
        print_json(facts(job, _now())) if output is Format.JSON else typer.echo(page(job, _now()))
    else:
        _list(hub, everywhere, output)


def _list(hub: Hub, everywhere: bool, output: Format) -> None:
    jobs = hub.jobs(everywhere=everywhere)
    if output is Format.JSON:
        print_json([summary(job, _now()) for job in jobs])
    elif jobs:
        print_table(COLUMNS, rows(jobs, _now(), namespace=everywhere, bars=sys.stdout.isatty()))
    else:
        where = "on the hub" if everywhere else f"in namespace {hub.address.namespace}"
        typer.echo(f"no jobs {where}: start one with `tuneyard submit FILE`{'' if everywhere else '; -A looks in all namespaces'}")


Seen = HubJob | list[HubJob]


def _watch(changes: Iterator[Seen], shown: Callable[[Seen], str]) -> None:
    """Redraw on a terminal. Elsewhere print each change. Ends with the job."""
    if sys.stdout.isatty():
        from rich.live import Live
        from rich.text import Text

        with Live(console=console(), auto_refresh=False, vertical_overflow="visible") as live:
            for seen in changes:
                live.update(Text(shown(seen)), refresh=True)
                if _ended(seen):
                    return
        return
    last: object = None
    for seen in changes:
        if _versions(seen) != last:
            print(shown(seen), flush=True)
            last = _versions(seen)
        if _ended(seen):
            return


def _shown_as(everywhere: bool, output: Format) -> Callable[[Seen], str]:
    """JSON on one line per change; a page; or a table."""

    def shown(seen: Seen) -> str:
        if output is Format.JSON:
            value: Any = facts(seen, _now()) if isinstance(seen, HubJob) else [summary(job, _now()) for job in seen]
            return json.dumps(value)
        if isinstance(seen, HubJob):
            return page(seen, _now())
        return "\n".join(table_lines(COLUMNS, rows(seen, _now(), namespace=everywhere, bars=sys.stdout.isatty())))

    return shown


def _lists(hub: Hub, everywhere: bool) -> Iterator[list[HubJob]]:
    """All jobs, every two seconds. An outage of the hub is waited out."""
    yield hub.jobs(everywhere=everywhere)
    away = False
    while True:
        time.sleep(_EVERY_S)
        try:
            jobs = hub.jobs(everywhere=everywhere)
        except HubError as error:
            if not away:
                _say(error)
            away = True
        else:
            away = False
            yield jobs


def _versions(seen: Seen) -> list[tuple[str, str]]:
    """Label and version of each job, without ages: they differ after a change of any job."""
    return [(job.label, job.version) for job in (seen if isinstance(seen, list) else [seen])]


def _ended(seen: Seen) -> bool:
    return isinstance(seen, HubJob) and seen.ended


def _say(error: TuneyardError) -> None:
    print(f"{error.cause}; waiting for it", file=sys.stderr, flush=True)


def _now() -> datetime:
    return datetime.now(UTC)
