"""Where the report of a run is written: whole, by the one process that runs the job, or as a section of a joint report."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tuneyard.runtime.output import JobOutput
from tuneyard.tracking import Report, write_report


class JobReport(Protocol):
    """Where the conductor writes its report."""

    @property
    def required(self) -> Collection[str]:
        """Statuses whose report must be written, or the run fails."""
        ...

    def write(self, own: Report) -> object:
        """Write the report as of now. Raises StorageError."""
        ...


class WholeReport:
    """The report of a job that one process runs. After a failure the job's own error is the one to show, not a lost report's."""

    required = ("running", "succeeded")

    def __init__(self, output: JobOutput) -> None:
        self._output = output

    def write(self, own: Report) -> None:
        write_report(self._output.store, own)
