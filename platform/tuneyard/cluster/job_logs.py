"""The logs of a job: through the hub with the reader's Kubernetes rights, else from storage with keys that the reader has or may read.

The hub is asked first. The client reads storage itself where the hub serves no logs (an older hub) or has no access to this job's storage.
It does so too where the hub refuses or does not answer and the reader's environment holds keys of storage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tuneyard.api import Attempt, StorageError
from tuneyard.cluster.errors import NotAllowed, NotInstalled, NotReadable, Unreachable
from tuneyard.cluster.hub import Hub
from tuneyard.cluster.hub_job import HubJob
from tuneyard.cluster.log_api import MOST_TAIL_LINES, LogQuery
from tuneyard.cluster.storage_access import has_own_keys, storage_access
from tuneyard.storage import open_store
from tuneyard.tracking.task_logs import AttemptLogs, LogNews, LogPart, LogReader


@dataclass(frozen=True)
class JobLogs:
    """`of` opens the logs of one attempt. `lack`: the reason for missing keys, as the end of a StorageError's sentence."""

    of: Callable[[Attempt], AttemptLogs]
    lack: str = ""

    def explained(self, error: StorageError) -> StorageError:
        """`error`, with the reason for missing keys."""
        return StorageError(f"{error.cause}{self.lack}", error.next_step) if self.lack else error


@dataclass(frozen=True)
class HubLogs:
    """The logs of one attempt, as the hub reads them. Every method raises what `Hub.log` raises."""

    hub: Hub
    job: HubJob
    attempt: int

    def sources(self) -> list[str]:
        return list(self._ask(LogQuery(self.attempt, limit_bytes=0, uid=self.job.uid)).sources)

    def news(self, wanted: Collection[str], cursors: Mapping[str, int]) -> LogNews:
        return self._ask(LogQuery(self.attempt, tuple(wanted), cursors, uid=self.job.uid))

    def tail(self, source: str, lines: int) -> LogPart:
        found = self._ask(LogQuery(self.attempt, (source,), tail_lines=min(lines, MOST_TAIL_LINES), uid=self.job.uid))
        return LogPart(found.parts.get(source, ""), found.cursors.get(source, 0))

    def _ask(self, query: LogQuery) -> LogNews:
        found = self.hub.log(self.job.name, self.job.namespace, query)
        return LogNews(found.sources, found.parts, found.cursors, found.more)


def open_logs(hub: Hub, job: HubJob, environment: Mapping[str, str]) -> JobLogs:
    """The logs of a job that has begun.

    Raises NotAllowed, Unreachable and StorageError where the hub cannot be asked and there is no other way; NotAllowed where the job
    names a server that no Cluster of the hub names.
    """
    why = ""
    try:
        hub.log(job.name, job.namespace, LogQuery(limit_bytes=0, uid=job.uid))
        return JobLogs(lambda attempt: HubLogs(hub, job, attempt.number))
    except NotInstalled:
        pass
    except NotReadable as error:
        why = f"; the hub: {error.cause}"
    except (NotAllowed, Unreachable) as error:
        if not has_own_keys(environment):
            raise
        why = f"; the hub was asked first: {error.cause}"
    return _directly(hub, job, environment, why)


def _directly(hub: Hub, job: HubJob, environment: Mapping[str, str], why: str) -> JobLogs:
    access = storage_access(hub, job, environment)
    os.environ.update(access.variables)  # stores look for credentials there
    store = open_store(job.output)
    return JobLogs(lambda attempt: LogReader(store, attempt.task, attempt.number), f"{access.lack}{why}")
