"""Workers of a score task with a log of their own, for clusters: the log can be followed, and each worker tells its place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.runtime.gang.mailbox import RankProcess, this_process
from tuneyard.runtime.gang.process_log import output_to


@dataclass(frozen=True)
class EngineLogs:
    """`folder`: folder for logs on each machine; `on_place` is called with the process of each engine that has started."""

    folder: Path
    on_place: Callable[[RankProcess], None]


class LoggedWorker:
    """A worker of the class `worker` (see `scoring.Work`), with the output of its process and children in `log`. Its process imports the
    libraries of this class alone."""

    def __init__(self, worker: type, order: Any, rank: int, log: Path) -> None:
        self._place = this_process(rank, str(log))
        self._log = ExitStack()
        self._log.enter_context(output_to(log, attempt=1))
        self._worker = worker(order)

    def place(self) -> RankProcess:
        return self._place

    def load(self) -> Any:
        return self._worker.load()

    def score(self, part: int) -> Any:
        return self._worker.score(part)

    def open_work(self) -> Any:
        return self._worker.open_work()

    def close(self) -> Any:
        return self._worker.close()
