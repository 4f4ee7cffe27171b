"""`tuneyard schedule run`: follows a Schedule in the foreground."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tuneyard.api import BadInput, FindTemplate, ModelTemplate, Schedule
from tuneyard.cli.checks import check_file
from tuneyard.cli.lasting import lasting_output
from tuneyard.cli.template_files import TemplatesOption, templates_in


def follow(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Schedule in YAML")],
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="end then, after the runs under way: 2026-12-24T18:00 (UTC, or with an offset), or `now`: only what is due",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="data folder; default: runs/NAME")] = None,
    templates: TemplatesOption = None,
) -> int:
    """Follow a Schedule on this machine: start its runs in time, each as `tuneyard run` does.

    A runner that was killed goes on where it was: no run is started twice, and the run under way resumes. The first Ctrl-C ends it, and
    asks the run under way to keep a checkpoint; the second ends at once. Exit code 0: all runs that ended were good; 1: one has
    regressed, failed or was missed.

    Example: tuneyard schedule run nightly.yaml
    """
    from tuneyard.runtime import stop_on_interrupt
    from tuneyard.runtime.scheduled import Runner, ScheduleFolder, SystemClock

    find, end = templates_in(templates), _moment(until)
    schedule = read_schedule(file, find)
    folder = ScheduleFolder(out or Path("runs", schedule.metadata.name))
    with folder.locked() as is_ours:
        if not is_ours:
            _say(f"another runner follows {folder.path} now")
            return 0 if until == "now" else BadInput.exit_code
        item = folder.item()
        if item is not None and item["metadata"]["name"] != schedule.metadata.name:
            raise BadInput(f"{folder.path} holds the Schedule {item['metadata']['name']}", "give another folder: --out DIR")
        runner = Runner(_Rereading(file, find, schedule), folder, file.absolute().parent, SystemClock(), _say)
        stopping = "stopping: the run under way keeps a checkpoint; Ctrl-C again ends at once"
        with lasting_output(), stop_on_interrupt(lambda: _say(stopping)) as should_stop:
            good = runner.run(should_stop, end)
    return 0 if good else 1


def read_schedule(file: Path, find: FindTemplate) -> Schedule:
    """The only Schedule in a file. Raises BadInput, as `tuneyard validate` reports it."""
    found = [document.resource for document in check_file(file, find=find) if not isinstance(document.resource, ModelTemplate)]
    if len(found) != 1 or not isinstance(found[0], Schedule):
        kinds = ", ".join(type(each).__name__ for each in found) or "nothing"
        raise BadInput(f"{file}: holds {kinds}, and one Schedule is expected here", "give a file with one `kind: Schedule`")
    return found[0]


class _Rereading:
    """The Schedule of a file, read again when the file has changed."""

    def __init__(self, file: Path, find: FindTemplate, schedule: Schedule) -> None:
        self._file, self._find, self._schedule = file, find, schedule
        self._mark = self._now()

    def __call__(self) -> Schedule:
        mark = self._now()
        if mark != self._mark:
            self._mark = mark  # a file that cannot be read is told once
            found = read_schedule(self._file, self._find)
            if found.metadata.name != self._schedule.metadata.name:
                raise BadInput(f"{self._file} names another Schedule now, {found.metadata.name}", "start another runner for it")
            self._schedule = found
        return self._schedule

    def _now(self) -> tuple[int, int]:
        try:
            found = self._file.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_size


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    if text == "now":
        return datetime.now(UTC)
    try:
        written = datetime.fromisoformat(text)
        found = (written if written.tzinfo else written.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(
            f"--until {text}: not a time", "write it like 2026-12-24T18:00, which is UTC, or 2026-12-24T18:00+01:00, or now"
        ) from None
    if found < datetime.now(UTC):
        raise BadInput(f"--until {text}: is over", "give a time to come, or now")
    return found


def _say(text: str) -> None:
    print(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S%z} {text}", file=sys.stderr, flush=True)
