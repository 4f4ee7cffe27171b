"""An engine of a score task on a machine of a cluster: its output goes to a log that can be followed, and it says where it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tuneyard.runtime.mailbox import RankProcess, this_process
from tuneyard.runtime.process_log import output_to
from tuneyard.scoring import PartWorker
from tuneyard.scoring.worker import WorkOrder


@dataclass(frozen=True)
class EngineLogs:
    """`folder`: on each machine, for logs; `on_place` is told where an engine runs, whenever one has started."""

    folder: Path
    on_place: Callable[[RankProcess], None]


class LoggedEngine(PartWorker):
    """A PartWorker whose process writes to `log`, with all that the engine starts."""

    def __init__(self, order: WorkOrder, rank: int, log: Path) -> None:
        self._place = this_process(rank, str(log))
        self._output = ExitStack()
        self._output.enter_context(output_to(log, attempt=1))
        super().__init__(order)

    def place(self) -> RankProcess:
        return self._place
