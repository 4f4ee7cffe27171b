"""Ways to read the same data, in turns: samples per second and CPU second, and seconds until the first batch after a resume."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Way:
    """One reader. `batches(state)`: opens the data and gives batches, from a state or (None) from the beginning. `state(fraction)`: where
    a reader stands after a share of an epoch; None: it has no such state. `rows`: of an epoch."""

    name: str
    rows: int
    batches: Callable[[Any], Iterator[Any]]
    state: Callable[[float], Any] | None = None
    count: Callable[[Any], int] = len


@dataclass(frozen=True)
class Reading:
    """Seconds that one reading took: of a CPU until the first batch, and of a CPU and of the clock for `rows` rows."""

    opening_cpu_s: float
    cpu_s: float
    wall_s: float
    rows: int


def cpu_s() -> float:
    """CPU seconds of this process, of its children that have ended, and of all processes below it that live."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + _living_s()


def _living_s() -> float:
    ticks, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])  # its own, and those of its children that have ended
    below = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(ticks[one] for one in below - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


def read(way: Way, most: int, *, whole: bool) -> Reading:
    """One reading of `most` rows, or of what there is: all of it (`whole`), or what follows the first batch."""
    before, start = cpu_s(), time.perf_counter()
    batches = iter(way.batches(None))
    rows = way.count(next(batches))
    opened = counted_from = cpu_s()
    if whole:
        counted_from = before
    else:
        start, rows = time.perf_counter(), 0
    while rows < most:
        batch = next(batches, None)
        if batch is None:
            break
        rows += way.count(batch)
    return Reading(opened - before, cpu_s() - counted_from, time.perf_counter() - start, rows)


def in_turns(ways: Sequence[Way], rounds: int, most: int, *, whole: bool) -> dict[str, list[Reading]]:
    """All ways once to warm up, then in turns, every second round from the last to the first."""
    found: dict[str, list[Reading]] = {way.name: [] for way in ways}
    for way in ways:
        read(way, most, whole=whole)
    for number in range(rounds):
        for way in ways if number % 2 == 0 else ways[::-1]:
            found[way.name].append(read(way, most, whole=whole))
            print(f"  round {number}: {way.name}: {found[way.name][-1]}", flush=True)
    return found


def first_batch_s(way: Way, state: Any, rounds: int) -> float:
    """Median seconds from nothing to the first batch from a state."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        batches = iter(way.batches(state))
        next(batches)
        seconds.append(time.perf_counter() - start)
        del batches
    return statistics.median(seconds)
