"""Data workers in a search on this machine: whether they affect a task, which numbers to try, and the expected stall."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from tuneyard.admission import Machine
from tuneyard.api import TrainData
from tuneyard.catalog.cpu import usable_cores
from tuneyard.planning import DataRate, Machines, feed_of, usual_rate
from tuneyard.training.request import TrainRequest


class Feeding:
    """The data workers of a train task with resolved references. `rates`: rates of data workers in past runs, by format."""

    def __init__(self, request: TrainRequest, machine: Machine, rates: Mapping[str, DataRate]) -> None:
        self._task, self._machine, self._rates = request.task, machine, rates

    @cached_property
    def streamed(self) -> bool:
        """Whether rows are probably made while the task trains. Lists the sources if it must. Raises BadInput, StorageError."""
        from tuneyard.data.mix_parts import part_data

        data = self._task.data
        if self._task.program is not None:
            return data.asks_for_stream
        return any(self._streams(part) for part in ([part_data(data, part) for part in data.mix] or [data]))

    def _streams(self, data: TrainData) -> bool:
        from tuneyard.data.sources import locate
        from tuneyard.data.ways import expects_stream

        source = data.source or ""
        if data.streaming is False or (source.startswith("hf://") and data.streaming is None):
            return False  # the size of a Hugging Face data set is known only after a download
        located = locate(source, file_type=data.file_type, split=data.split)
        return expects_stream(data, located.size_bytes, steps=self._task.steps, cores=usable_cores())

    def no_choice(self) -> str:
        """Why the number of data workers cannot matter; empty if it can."""
        if self._task.data.service is not None:
            return "its service has as many data workers as the ranks need"
        return "" if self.streamed else "its data are prepared before the first step"

    def choices(self) -> tuple[int, ...]:
        """Numbers of data workers to try: powers of two, up to the number of cores. Empty if they cannot matter."""
        if self.no_choice():
            return ()
        return tuple(2**power for power in range(4) if 2**power <= max(1, usable_cores()))

    def stall(self, request: TrainRequest) -> float:
        """Share of the time in which the ranks of a plan of this task wait for rows, 0 to 1."""
        speed = request.plan.speed
        if speed is None or not self.streamed:
            return 0.0
        count = -(-request.plan.workers // max(1, self._machine.devices))
        of_each = -(-request.plan.workers // count)
        machines = Machines(count=count, ranks_of_each=of_each, spare_cores=max(0, usable_cores() - of_each))
        return feed_of(request.task.data, speed.tokens_per_s, self._rate(request.task.data), machines).asked.stall

    def _rate(self, data: TrainData) -> DataRate:
        format = data.format if data.format != "auto" else "text" if self._task.objective == "clm" else "chat"
        return self._rates.get(format) or usual_rate(format, "")
