"""Workers of a score task with a log of their own, for clusters: the log can be followed, and each worker tells its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.runtime.gang.mailbox import RankProcess, this_process
from tuneyard.runtime.gang.process_log import output_to
from tuneyard.scoring.endpoint.worker import EndpointWorker
from tuneyard.scoring.ranker.worker import RankerWorker
from tuneyard.scoring.vllm_worker import VllmWorker


@dataclass(frozen=True)
class EngineLogs:
    """`folder`: folder for logs on each machine; `on_place` is called with the process of each engine that has started."""

    folder: Path
    on_place: Callable[[RankProcess], None]


class _Logged:
    """Redirects the output of a worker's process and its children to `log`. It precedes the worker among the base classes."""

    def __init__(self, order: Any, rank: int, log: Path) -> None:
        self._place = this_process(rank, str(log))
        self._log = ExitStack()
        self._log.enter_context(output_to(log, attempt=1))
        super().__init__(order)  # type: ignore[call-arg]  # the worker's constructor

    def place(self) -> RankProcess:
        return self._place


class LoggedEngine(_Logged, VllmWorker):
    """A VllmWorker with a log."""


class LoggedClient(_Logged, EndpointWorker):
    """An EndpointWorker with a log."""


class LoggedRanker(_Logged, RankerWorker):
    """A RankerWorker with a log."""


LOGGED: Mapping[type, type] = {VllmWorker: LoggedEngine, EndpointWorker: LoggedClient, RankerWorker: LoggedRanker}
