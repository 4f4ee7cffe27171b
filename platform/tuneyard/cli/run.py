"""`tuneyard run`: a job on this machine, from its file to its report."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuneyard.api import TuneyardError, load_jobspec
from tuneyard.api.quoting import quoted
from tuneyard.cli.output import Format, OutputOption
from tuneyard.cli.template_files import TemplatesOption, templates_in

if TYPE_CHECKING:
    from tuneyard.tracking import Report

_STOPPED = 1


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JobSpec in YAML")],
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="folder or URI for all output; default: storage.output, or runs/NAME-N")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue in DIR: finished tasks are skipped")] = False,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="join this Ray cluster (HOST:PORT, or auto) instead of one of its own")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="start from this model instead of the one the job builds or names")
    ] = None,
    templates: TemplatesOption = None,
    base: Annotated[Path | None, typer.Option("--base", hidden=True, help="folder of relative paths; default: that of FILE")] = None,
    output: OutputOption = Format.TABLE,
) -> int:
    """Run a job on this machine: all its tasks, in order.

    The last line of stdout is the path of report.json. The first Ctrl-C stops at the next step and keeps a checkpoint; the second
    ends at once. Exit code 0: all tasks succeeded; 1: one failed, or the job was stopped; 2: bad input, nothing was started.

    Example: tuneyard run job.yaml --out runs/first
    """
    from tuneyard.cli.progress.views import open_progress
    from tuneyard.runtime import default_output, run_job, stop_on_interrupt

    job = load_jobspec(file, templates_in(templates))
    target = out or default_output(job, resume=resume)
    written: list[str] = []
    with open_progress(job) as progress, stop_on_interrupt(progress.stopping) as should_stop:
        try:
            report = run_job(
                job,
                base_dir=base or file.absolute().parent,
                out=target,
                resume=resume,
                ray_address=ray,
                listener=progress,
                model=model,
                should_stop=should_stop,
                on_report=written.append,
            )
        except KeyboardInterrupt:
            if written:
                print(f"ended at once; go on: {_again(file, target, model, templates)}", file=sys.stderr)
            raise
        except TuneyardError as error:
            failure: TuneyardError | None = error
        else:
            failure = None
    if failure is not None:
        _point_to(written)
        raise _with_command(failure, _again(file, target, model, templates)) from failure
    _show(report, output)
    if report.status == "stopped":
        _say_how_to_resume(report, file, target, model, templates)
    elif report.status == "succeeded" and any(_can_answer(task) for task in report.tasks.values()):
        print(f"next: tuneyard chat {quoted(target)} asks it, tuneyard serve {quoted(target)} serves it", file=sys.stderr)
    _point_to(written)
    return 0 if report.status == "succeeded" else _STOPPED


def _can_answer(task: Mapping[str, Any]) -> bool:
    """True for a task that has made a language model. The model of a program answers no prompts."""
    return task.get("kind") == "train" and "program" not in (task.get("details") or {})


def _show(report: Report, output: Format) -> None:
    if output is Format.JSON:
        import json

        # On one line: the path stays the last line, and all lines before it are the report.
        print(json.dumps(json.loads(report.to_json())))
        return
    from tuneyard.cli.summary import print_summary

    print_summary(report)


def _say_how_to_resume(report: Report, file: Path, target: str, model: str | None, templates: list[Path] | None) -> None:
    print(f"{report.message.split(';')[0]}; go on: {_again(file, target, model, templates)}", file=sys.stderr)


def _again(file: Path, target: str, model: str | None, templates: list[Path] | None = None) -> str:
    given: list[tuple[str, str | Path]] = [("--out", target), *([("--model", model)] if model else [])]
    given += [("--templates", path) for path in templates or ()]
    return " ".join(["tuneyard run", quoted(file), *(f"{option} {quoted(value)}" for option, value in given), "--resume"])


def _with_command(failure: TuneyardError, again: str) -> TuneyardError:
    """The error with the command appended to "try again": the code that raised it does not know the command."""
    if not failure.next_step.endswith("; then try again"):
        return failure
    return type(failure)(failure.cause, f"{failure.next_step}: {again}", kind=failure.kind, blame=failure.blame)


def _point_to(written: list[str]) -> None:
    """Print the last line of stdout: the path of report.json, if the job has one."""
    for uri in written:
        print(uri, flush=True)
