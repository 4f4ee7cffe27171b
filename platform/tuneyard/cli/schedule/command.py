"""`tuneyard schedule`: follow, show, pause and backfill Schedules, on a hub or on this machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput
from tuneyard.api.loading_reasons import did_you_mean
from tuneyard.api.moments import written
from tuneyard.api.quoting import quoted
from tuneyard.api.schedule_parts import Backfill
from tuneyard.api.schedule_status import ScheduledRun
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption, NamespaceOption
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.cli.schedule.follow import follow
from tuneyard.cli.schedule.source import LocalOption, source_of
from tuneyard.cli.schedule.tables import COLUMNS, RUN_COLUMNS, compared, facts, row, run_facts, run_row
from tuneyard.schedules.last_good import measure_after
from tuneyard.schedules.view import ScheduleView

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Follow, pause and backfill jobs that run on a schedule."
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="name of the Schedule")]
app.command("run")(follow)


@app.callback()
def _group() -> None:
    """Follow, pause and backfill jobs that run on a schedule.

    Commands ask the hub, or with --local the data folders of `tuneyard schedule run` on this machine.
    """


@app.command("list")
def list_schedules(
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Schedules of all namespaces")] = False,
    local: LocalOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List Schedules: last run and its verdict, next run, runs under way.

    Example: tuneyard schedule list -n maps
    """
    found = source_of(local, namespace, context, kubeconfig, everywhere=everywhere).all()
    if output is Format.JSON:
        print_json([facts(schedule) for schedule in found])
    elif found:
        print_table(COLUMNS, [row(schedule) for schedule in found])
    else:
        on_hub = "apply one, or " if local is None else ""
        typer.echo(f"there are no Schedules here: {on_hub}follow one on this machine with `tuneyard schedule run FILE`")


@app.command()
def show(
    name: NameArgument,
    local: LocalOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one Schedule: times, runs under way, runs that wait for data, conditions.

    Example: tuneyard schedule show nightly -n maps
    """
    schedule = source_of(local, namespace, context, kubeconfig).one(name)
    if output is Format.JSON:
        print_json({**facts(schedule), "runs": [run_facts(run) for run in schedule.runs]})
        return
    for title, text in _lines(schedule):
        typer.echo(f"{title:<10} {text}")


@app.command()
def pause(
    name: NameArgument,
    local: LocalOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Start no more runs of a Schedule. Runs under way go on; runs that fall due meanwhile are left out for good.

    Example: tuneyard schedule pause nightly -n maps
    """
    source_of(local, namespace, context, kubeconfig).change(name, {"suspend": True})
    typer.echo(f"{name} is paused; go on: tuneyard schedule resume {_again(name, local)}")


@app.command()
def resume(
    name: NameArgument,
    local: LocalOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Start runs of a paused Schedule again.

    Example: tuneyard schedule resume nightly -n maps
    """
    source_of(local, namespace, context, kubeconfig).change(name, {"suspend": False})
    typer.echo(f"{name} goes on")


@app.command("run-now")
def run_now(
    name: NameArgument,
    first: Annotated[str | None, typer.Option("--from", metavar="DATE", help="backfill: first date, such as 2026-11-01")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="DATE", help="backfill: last date; default: yesterday")] = None,
    parallel: Annotated[int, typer.Option(min=1, max=100, help="backfill: most runs at a time")] = 1,
    local: LocalOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Start a run now, or with --from the runs of past dates, at the times of the cron line. A paused Schedule does so too.

    Each run writes to a folder of its own, also where a date has run before.

    Example: tuneyard schedule run-now nightly --from 2026-11-01 --to 2026-11-14 --parallel 3
    """
    source = source_of(local, namespace, context, kubeconfig)
    now = datetime.now(UTC)
    if first is None:
        if last is not None:
            raise BadInput("--to is given without --from", "give both, as in --from 2026-11-01 --to 2026-11-14")
        source.change(name, {"runNow": written(now)})
        when = "starts a run" if local is None else "starts a run as soon as a runner follows it"
        typer.echo(f"{name} {when}; see it: tuneyard schedule history {_again(name, local)}")
        return
    last = last or (now - timedelta(days=1)).date().isoformat()
    request = {"from": first, "to": last, "parallel": parallel, "id": f"{now:%Y%m%dT%H%M%S}"}
    _check(request, source.one(name), now)
    source.change(name, {"backfill": request})
    typer.echo(f"{name} runs the dates {first} to {last}, {parallel} at a time; see them: tuneyard schedule history {_again(name, local)}")


def _again(name: str, local: Path | None) -> str:
    """The arguments that name the same Schedule in another command."""
    return name if local is None else f"{name} --local {quoted(local)}"


@app.command()
def accept(
    name: NameArgument,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="the run to accept; default: the newest that has regressed")] = None,
    local: LocalOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Accept the figures of a run that has regressed: later runs are compared with it.

    The limits `below` and `above` stay as they are.

    Example: tuneyard schedule accept nightly -n maps
    """
    source = source_of(local, namespace, context, kubeconfig)
    found = _regressed(source.one(name), run)
    source.change(name, {"accept": found.name})
    typer.echo(f"{found.name} is accepted; it was: {found.message}")
    when = "" if local is None else " as soon as a runner follows the Schedule"
    typer.echo(f"later runs are compared with it{when}; see: tuneyard schedule show {_again(name, local)}")


def _regressed(schedule: ScheduleView, name: str | None) -> ScheduledRun:
    """The run that is to be accepted. Raises BadInput unless it has regressed."""
    regressed = {run.name: run for run in schedule.runs if run.verdict == "regressed"}
    if name is None:
        if not regressed:
            raise BadInput(f"no run of {schedule.name} has regressed", f"see its runs: tuneyard schedule history {schedule.name}")
        name = next(iter(regressed))
    if name not in regressed:
        runs = {run.name: run for run in schedule.runs}
        why = f"is {runs[name].verdict or 'still running'}" if name in runs else f"is no run of {schedule.name}{did_you_mean(name, runs)}"
        raise BadInput(f"{name} {why}: only a run that has regressed is accepted", f"there are: {', '.join(regressed) or 'none'}")
    later = measure_after(schedule.runs, regressed[name].due)
    if later is not None:
        raise BadInput(
            f"{name} cannot become the measure: {later.name}, which was due later, is {later.verdict}, and later runs are compared with it",
            f"see its runs: tuneyard schedule history {schedule.name}",
        )
    return regressed[name]


@app.command()
def history(
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=1, help="runs to show, newest first")] = 20,
    local: LocalOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> int:
    """Show the runs of a Schedule: figures, and the verdict against the last good run.

    Exit code 1 where the newest run with a verdict has regressed, failed or was missed.

    Example: tuneyard schedule history nightly -n maps
    """
    schedule = source_of(local, namespace, context, kubeconfig).one(name)
    runs = schedule.runs[:limit]
    if output is Format.JSON:
        print_json([run_facts(run) for run in runs])
    elif runs:
        print_table(RUN_COLUMNS, [run_row(run) for run in runs])
    else:
        typer.echo(f"{name} has not run yet; its next run: {schedule.status.next_run or 'none'}")
    return 1 if schedule.is_bad else 0


def _check(request: dict[str, Any], schedule: ScheduleView, now: datetime) -> None:
    from pydantic import ValidationError

    from tuneyard.schedules.requests import why_refused

    try:
        wanted = Backfill.model_validate(request)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadInput(f"the dates cannot be used: {reason}", "write them as --from 2026-11-01 --to 2026-11-14") from None
    refused = why_refused(schedule.cron, schedule.zone, wanted, now)
    if refused:
        raise BadInput(f"a backfill has too many runs: {refused.partition(': ')[0]}", "give fewer dates, and the rest after these have run")


def _last(schedule: ScheduleView) -> str:
    run = schedule.last
    return f"{run.due}, {run.name}: {run.verdict}" if run is not None else schedule.last_due or "none"


def _lines(schedule: ScheduleView) -> list[tuple[str, str]]:
    status = schedule.status
    lines = [
        ("name", f"{schedule.namespace}/{schedule.name}"),
        ("cron", f"{schedule.cron} ({schedule.zone})" + (", paused" if schedule.suspended else "")),
        ("last run", _last(schedule)),
        ("next run", status.next_run or "none"),
        *(("active", run) for run in status.active),
        *(("waiting", f"{each.name} for {each.path}: {each.message or 'not there yet'}") for each in status.waiting),
    ]
    if schedule.last is not None and (against := compared(schedule.last)) is not None:
        lines.append(("compared", f"{schedule.last.name} with {against}"))
    accepted = next((run for run in schedule.runs if run.verdict == "accepted"), None)
    if accepted is not None:
        lines.append(("accepted", f"{accepted.name}: {accepted.message}"))
    if status.backfill is not None:
        state = status.backfill.message or ("all started" if status.backfill.done else "goes on")
        lines.append(("backfill", f"{status.backfill.started} of {status.backfill.of} runs started, {state}"))
    lines += [(each.type, f"{each.status}: {each.message or each.reason}") for each in status.conditions]
    return lines + ([("message", status.message)] if status.message else [])
