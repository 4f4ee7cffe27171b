"""`tuneyard logs`: the logs of ranks, engines and drivers, on any member, through the hub or from the job's output storage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from tuneyard.api import Attempt, BadInput, StorageError, TuneyardError
from tuneyard.cli.hub_options import ContextOption, JobArgument, KubeconfigOption, NamespaceOption
from tuneyard.cli.logs.choice import LogChoice
from tuneyard.cli.logs.following import LogFollower
from tuneyard.cli.logs.printer import LogPrinter, speaker
from tuneyard.cluster import Hub, HubJob, open_hub
from tuneyard.cluster.job_logs import open_logs


def logs(
    name: JobArgument,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="default: the running task, or the last one")] = None,
    rank: Annotated[int | None, typer.Option(min=0, metavar="N", help="one rank, or engine of a score task; default: all")] = None,
    source: Annotated[str | None, typer.Option(metavar="SOURCE", help="one source: driver, rank-0, engine-1")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, metavar="N", help="number of an attempt; default: the last one of its task")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="follow new lines, through retries and tasks, to the end of the job")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="all attempts of all tasks")] = False,
    tail: Annotated[int | None, typer.Option(min=1, metavar="N", help="the last N lines of each source only")] = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show the logs of a job: live, and after its pods are gone. New lines appear within a few seconds.

    The hub reads logs from the job's output storage, for users with the right to get jobspecs/log. If the hub cannot read them, this
    machine reads them, with the credentials in the environment, or with the Secrets of the job, if you may read these. The server of the
    storage comes from a Cluster of the hub, or from AWS_ENDPOINT_URL.

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
            raise TuneyardError(f"the hub reports no output of {job.label}", f"tuneyard status {job.name} -n {job.namespace}")
        self._logs = open_logs(hub, job, os.environ)

    def run(self, follow: bool) -> None:
        try:
            self._follow() if follow else self._once()
        except StorageError as error:
            raise self._logs.explained(error) from error

    def _follow(self) -> None:
        printer = _printer(prefixed=not self._choice.one_source)
        follower = LogFollower(self._choice, self._logs.of, self._to(printer), _say)
        job = follower.run(self._hub, self._job)
        if job.ended:
            _say(f"{job.label}: {job.phase}{f': {job.status.message}' if job.status.message else ''}")

    def _once(self) -> None:
        attempts = self._choice.attempts(self._job)
        there = {attempt.number: self._logs.of(attempt).sources() for attempt in attempts}
        parts = [(attempt, source) for attempt in attempts for source in self._choice.sources(there[attempt.number])]
        show = self._to(_printer(prefixed=len(parts) > 1))
        for attempt, source in parts:
            for text in self._texts(attempt, source):
                show(attempt, source, text)
        if any(there.values()) and not parts:
            raise self._choice.missing([source for sources in there.values() for source in sources])
        for attempt in attempts:
            if not there[attempt.number]:
                _say(f"{_silent(attempt)}{self._logs.lack}")

    def _texts(self, attempt: Attempt, source: str) -> Iterator[str]:
        """The whole log in pieces, or its tail."""
        reader = self._logs.of(attempt)
        if self._tail is not None:
            yield reader.tail(source, self._tail).text
            return
        news = reader.news((source,), {})
        while source in news.parts:
            yield news.parts[source]
            news = reader.news((source,), news.cursors)

    def _to(self, printer: LogPrinter) -> Callable[[Attempt, str, str], None]:
        several = self._choice.everything
        return lambda attempt, source, text: printer(speaker(attempt.task, source, attempt.number if several else None), text)


def _until_begun(hub: Hub, job: HubJob, choice: LogChoice) -> HubJob:
    """The job with its first attempt. Raises TuneyardError if the job ends without one."""
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
    """The reason for empty logs: the attempt has just begun, or its containers never did."""
    what = f"attempt {attempt.number} of {attempt.task}"
    if not attempt.failure:
        return f"{what} has printed nothing yet ({attempt.phase}{f', {attempt.message}' if attempt.message else ''})"
    tail = f"\n{attempt.log_tail.rstrip()}" if attempt.log_tail else ""
    return f"{what} has left no logs; it failed: {attempt.failure}: {attempt.message}{tail}"


def _printer(*, prefixed: bool) -> LogPrinter:
    return LogPrinter(sys.stdout, prefixed=prefixed, coloured=sys.stdout.isatty() and "NO_COLOR" not in os.environ)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
