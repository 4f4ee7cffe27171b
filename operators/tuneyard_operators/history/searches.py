"""What a search on a member learns from the hub's history: figures of the latest training runs, in its head pod's environment."""

from __future__ import annotations

import logging

from tuneyard.api import JobSpec, TuneyardError
from tuneyard.cluster.history_api import HistoryQuery
from tuneyard.tuning.passed_on import packed
from tuneyard_operators.history.reader import HistoryReader
from tuneyard_operators.history.settings import Shared
from tuneyard_operators.kube import ApiError, Connection
from tuneyard_operators.logs.problems import Problem

log = logging.getLogger(__name__)
_PAGES = 2
"""Pages of 500 runs. As much as fits is given."""


class SearchHistory:
    """`shared`: whose runs a search learns from."""

    def __init__(self, connection: Connection, url: str, shared: Shared) -> None:
        self._reader = HistoryReader(connection, url)
        self._shared = shared

    async def given(self, job: JobSpec, task: str) -> str:
        """The past runs for an attempt at a task (`packed`); empty where it needs none, and where history cannot be read: a search works
        without."""
        own = job.spec.task(task)
        if self._shared == "none" or own.tune is None or job.spec.gang_of(own).train is None:
            return ""
        namespace = job.metadata.namespace if self._shared == "namespace" else ""
        runs, after = [], ""
        try:
            for _ in range(_PAGES):
                page, after = await self._reader.training_runs(namespace, HistoryQuery(after=after))
                runs += page
                if not after:
                    break
        except (Problem, ApiError, TuneyardError) as error:
            log.warning("the search of %s/%s begins without history: %s", job.metadata.namespace, job.metadata.name, error)
            return ""
        return packed(runs)
