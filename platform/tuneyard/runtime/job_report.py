"""Writes the report of a run: whole, by the one process that runs the job, or as a section of a joint report."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.score.comparing import with_comparisons
from tuneyard.tracking import Report, write_report


class JobReport(Protocol):
    """The report that the conductor writes."""

    @property
    def required(self) -> Collection[str]:
        """Statuses of required reports: the run fails if such a report cannot be written."""
        ...

    def write(self, own: Report) -> object:
        """Write the present report. Raises StorageError."""
        ...


class WholeReport:
    """The report of a job that one process runs. It is not required after a failure: the job's own error matters more."""

    required = ("running", "succeeded")

    def __init__(self, output: JobOutput) -> None:
        self._output = output

    def write(self, own: Report) -> None:
        write_report(self._output.store, with_comparisons(own, self._output.store))
