"""Traces of jobs as CSV, plain or gzipped. Every row is checked, and each error names its line and column."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, TypeVar

from tuneyard.api import BadInput
from tuneyard.api.loading import unreadable
from tuneyard.api.loading_reasons import did_you_mean, nearest
from tuneyard.federation import PRIORITIES
from tuneyard.federation.simulation import TraceJob

T = TypeVar("T")
_MOST_SHOWN = 10
_LARGEST = 10**12
"""The largest number of seconds and of GPUs. The scheduler's core counts in 64 bits."""


@dataclass(frozen=True)
class _Form:
    """The columns of one form of a trace. `submit` reads a cell of `submit_column`."""

    submit_column: str
    submit: Callable[[str], float]
    duration: str
    gpus: str
    team: str
    priority: str | None = None

    @property
    def required(self) -> tuple[str, ...]:
        return (self.submit_column, self.duration, self.gpus, self.team)


def read_trace(path: Path) -> list[TraceJob]:
    """The jobs of a trace by time of submission, which counts from the first submission. Jobs of the same instant keep the file's order.

    The header tells one of two forms: `submit_s,duration_s,gpus,team[,priority]`, or the Philly trace of the Sia simulator,
    `timestamp,duration,num_gpus,cluster` (a virtual cluster is a team). Other columns are ignored. Raises BadInput with one line per
    problem.
    """
    with _opened(path) as file:
        rows = csv.reader(file)
        header = [name.strip() for name in next(rows, [])]
        form = _form(header, path)
        jobs, problems = _jobs(rows, header, form, str(path))
    if problems:
        shown = problems[:_MOST_SHOWN] + ([f"and {len(problems) - _MOST_SHOWN:,} more"] if len(problems) > _MOST_SHOWN else [])
        raise BadInput("\n".join(shown), "correct these rows, or leave them out of the trace")
    if not jobs:
        raise BadInput(f"{path}: holds no jobs", f"give one row per job under the header {','.join(form.required)}")
    jobs.sort(key=lambda job: (job.submit_s, job.name))
    return jobs


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig", newline="") as file
        ):
            yield file
    except (OSError, EOFError) as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not a text file in UTF-8 (byte {error.start})", "give a CSV file, or one packed by gzip") from None
    except csv.Error as error:
        raise BadInput(f"{path}: is not CSV: {error}", "give a CSV file with a header") from None


def _form(header: Sequence[str], path: Path) -> _Form:
    plain = _Form("submit_s", _number, "duration_s", "gpus", "team", "priority")
    philly = _Form("timestamp", _timestamp, "duration", "num_gpus", "cluster")
    form = max((plain, philly), key=lambda form: sum(name in header for name in form.required))
    missing = [name for name in form.required if name not in header]
    if missing:
        hints = "".join(did_you_mean(name, header).replace("did you mean", "is it") for name in missing)
        raise BadInput(
            f"{path}:1: the header has no column {', '.join(missing)}{hints}",
            f"write {','.join(plain.required)}[,{plain.priority}], or {','.join(philly.required)}",
        )
    doubled = next((name for name in (*form.required, form.priority) if name and header.count(name) > 1), None)
    if doubled is not None:
        raise BadInput(f"{path}:1: the header has two columns {doubled}", "take one of them out")
    if form.priority and form.priority not in header:
        meant = nearest(form.priority, [name for name in header if name not in form.required])
        if meant is not None:
            raise BadInput(f"{path}:1: unknown column {meant} (did you mean {form.priority}?)", "correct the header")
    return form


def _jobs(rows: Iterator[list[str]], header: Sequence[str], form: _Form, filename: str) -> tuple[list[TraceJob], list[str]]:
    jobs: list[TraceJob] = []
    problems: list[str] = []
    line = 1
    for number, cells in enumerate(_numbered(rows)):
        line, values = cells
        if not values:
            continue
        if len(values) != len(header):
            problems.append(f"{filename}:{line}: has {len(values)} cells under a header of {len(header)}")
            continue
        try:
            jobs.append(_job(f"{number:07}", dict(zip(header, values, strict=True)), form))
        except ValueError as error:
            problems.append(f"{filename}:{line}: {error}")
    first = min((job.submit_s for job in jobs), default=0.0)
    return [TraceJob(**{**vars(job), "submit_s": job.submit_s - first}) for job in jobs], problems


def _numbered(rows: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Rows with their line numbers. A number is right where no cell holds a line break."""
    line = 1
    for row in rows:
        line += 1
        yield line, row


def _job(name: str, row: Mapping[str, str], form: _Form) -> TraceJob:
    """The job of a row. Raises ValueError that names the column."""
    return TraceJob(
        name=name,
        submit_s=_read(row, form.submit_column, form.submit),
        duration_s=_read(row, form.duration, _duration),
        gpus=_read(row, form.gpus, _gpus),
        team=_read(row, form.team, _name),
        priority=_read(row, form.priority, _priority) if form.priority and form.priority in row else "normal",
    )


def _read(row: Mapping[str, str], column: str, read: Callable[[str], T]) -> T:
    text = row[column].strip()
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{column}: {error}") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"expected a number; found {text!r}")
    if abs(value) > _LARGEST:
        raise ValueError(f"is beyond {_LARGEST:,}; found {text}")
    return value


def _duration(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise ValueError(f"must be above 0; found {text}")
    return value


def _gpus(text: str) -> int:
    value = _number(text)
    if value < 1 or value != int(value):
        raise ValueError(f"expected a whole number of at least 1; found {text!r}")
    return int(value)


def _name(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


def _priority(text: str) -> str:
    if text and text not in PRIORITIES:
        raise ValueError(f"{text!r} is none of: {', '.join(PRIORITIES)}{did_you_mean(text, PRIORITIES)}")
    return text or "normal"


def _timestamp(text: str) -> float:
    """Seconds since the epoch. A time without a time zone counts as UTC, because only differences matter."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected a time such as 2017-10-09 07:01:55; found {text!r}") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
