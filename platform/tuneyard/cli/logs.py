"""`tuneyard logs`: what ranks, engines and drivers have printed, on any member, from the job's output storage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from tuneyard.api import Attempt, BadInput, StorageError, TuneyardError
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption, NamespaceOption
from tuneyard.cli.log_choice import LogChoice
from tuneyard.cli.log_following import LogFollower
from tuneyard.cli.log_printer import LogPrinter, speaker
from tuneyard.cluster import Hub, HubJob, StorageAccess, open_hub, storage_access
from tuneyard.storage import open_store
from tuneyard.tracking.task_logs import LogReader


def logs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="name of the job")],
    task: Annotated[str | None, typer.Option(metavar="TASK", help="default: what runs, or ran last")] = None,
    rank: Annotated[int | None, typer.Option(min=0, metavar="N", help="one rank, or engine of a score task; default: all")] = None,
    source: Annotated[str | None, typer.Option(metavar="SOURCE", help="one source: driver, rank-0, engine-1")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, metavar="N", help="number of an attempt; default: the last one of its task")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on as it grows, through retries and tasks, until the job has ended")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="all attempts of all tasks")] = False,
    tail: Annotated[int | None, typer.Option(min=1, metavar="N", help="the last N lines of each source only")] = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show the logs of a job: live, and after its pods are gone. New lines appear within a few seconds.

    They are read from the job's output storage, with the credentials in the environment; without any, with those of the Secrets that
    the job names, if you may read them.

    Example: tuneyard logs support-bot --task train --rank 0 -f
    """
    if rank is not None and source is not None:
        raise BadInput("--rank and --source name the same thing twice", "leave out one of them")
    if follow and tail is not None:
        raise BadInput("--tail shows the end of a log, -f the rest of it as it comes", "leave out one of them")
    choice = LogChoice(task, attempt, source, rank, everything)
    hub = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)
    job = hub.job(name)
    chosen = choice.attempts(job)
    if follow and not (chosen and job.output):
        job = _until_begun(hub, job, choice)
    elif not chosen:
        raise TuneyardError(f"{job.label} has no logs yet: {_where(job)}", f"wait for them: tuneyard logs {name} -n {job.namespace} -f")
    _Shown(hub, job, choice, tail).run(follow)


class _Shown:
    """One call of the command, once the job has begun."""

    def __init__(self, hub: Hub, job: HubJob, choice: LogChoice, tail: int | None) -> None:
        self._hub, self._job, self._choice, self._tail = hub, job, choice, tail
        if not job.output:
            raise TuneyardError(
                f"the hub does not say where the output of {job.label} is", f"tuneyard status {job.name} -n {job.namespace}"
            )
        self._access = storage_access(hub, job, os.environ)
        os.environ.update(self._access.variables)  # what opens stores looks for credentials there
        self._store = open_store(job.output)

    def run(self, follow: bool) -> None:
        try:
            self._follow() if follow else self._once()
        except StorageError as error:
            raise _with_notes(error, self._access) from error

    def _follow(self) -> None:
        printer = _printer(prefixed=not self._choice.one_source)
        follower = LogFollower(self._choice, self._reader, self._to(printer), _say)
        job = follower.run(self._hub, self._job)
        if job.ended:
            _say(f"{job.label}: {job.phase}{f': {job.status.message}' if job.status.message else ''}")

    def _once(self) -> None:
        attempts = self._choice.attempts(self._job)
        there = {attempt.number: self._reader(attempt).sources() for attempt in attempts}
        parts = [(attempt, source) for attempt in attempts for source in self._choice.sources(there[attempt.number])]
        show = self._to(_printer(prefixed=len(parts) > 1))
        for attempt, source in parts:
            for text in self._texts(attempt, source):
                show(attempt, source, text)
        if any(there.values()) and not parts:
            raise self._choice.missing([source for sources in there.values() for source in sources])
        for attempt in attempts:
            if not there[attempt.number]:
                _say(_silent(attempt))

    def _texts(self, attempt: Attempt, source: str) -> Iterator[str]:
        """The whole log in pieces, or its tail."""
        reader = self._reader(attempt)
        if self._tail is not None:
            yield reader.tail(source, self._tail).text
            return
        cursor, part = 0, reader.read(source)
        while part.cursor != cursor:
            yield part.text
            cursor, part = part.cursor, reader.read(source, part.cursor)

    def _reader(self, attempt: Attempt) -> LogReader:
        return LogReader(self._store, attempt.task, attempt.number)

    def _to(self, printer: LogPrinter) -> Callable[[Attempt, str, str], None]:
        several = self._choice.everything
        return lambda attempt, source, text: printer(speaker(attempt.task, source, attempt.number if several else None), text)


def _until_begun(hub: Hub, job: HubJob, choice: LogChoice) -> HubJob:
    """The job once there is an attempt to show. Raises TuneyardError where it ends without one."""
    said = ""
    for found in hub.follow(job.name, job.namespace, on_away=lambda error: _say(f"{error.cause}; waiting for it")):
        if choice.attempts(found) and found.output:
            return found
        if found.ended:
            raise TuneyardError(f"{found.label} has no logs: {_where(found)}", f"tuneyard status {found.name} -n {found.namespace}")
        if said != (said := _where(found)):
            _say(f"{found.label} has no logs yet: {said}")
    raise AssertionError("unreachable")  # without a timeout, following ends by an error or by us


def _where(job: HubJob) -> str:
    return f"{job.phase}{f', {job.status.message}' if job.status.message else ''}"


def _silent(attempt: Attempt) -> str:
    """Why there may be nothing: it has only just begun, or its containers never did."""
    what = f"attempt {attempt.number} of {attempt.task}"
    if not attempt.failure:
        return f"{what} has printed nothing yet ({attempt.phase}{f', {attempt.message}' if attempt.message else ''})"
    tail = f"\n{attempt.log_tail.rstrip()}" if attempt.log_tail else ""
    return f"{what} has left no logs; it failed: {attempt.failure}: {attempt.message}{tail}"


def _with_notes(error: StorageError, access: StorageAccess) -> StorageError:
    """Storage refuses those without credentials in many words; why there are none is known here."""
    notes = f"; no credentials are in the environment, and {'; '.join(access.notes)}" if access.notes else ""
    return StorageError(f"{error.cause}{notes}", error.next_step)


def _printer(*, prefixed: bool) -> LogPrinter:
    return LogPrinter(sys.stdout, prefixed=prefixed, coloured=sys.stdout.isatty() and "NO_COLOR" not in os.environ)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
