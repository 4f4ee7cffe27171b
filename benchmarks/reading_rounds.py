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

FRACTIONS = (0.0, 0.5, 0.9)


@dataclass(frozen=True)
class Way:
    """One reader. `batches(state)`: opens the data and gives batches, from a state or (None) from the beginning. `state(fraction)`: where
    a reader stands after a share of an epoch; None: it has no such state. `rows`: of one reading."""

    name: str
    rows: int
    batches: Callable[[Any], Iterator[Any]]
    state: Callable[[float], Any] | None = None
    count: Callable[[Any], int] = len


@dataclass(frozen=True)
class Reading:
    """Seconds that one reading took: of a CPU, and of the clock."""

    cpu_s: float
    wall_s: float


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


def read(way: Way) -> Reading:
    """One reading of `way.rows` rows, the opening included."""
    before, start, rows = cpu_s(), time.perf_counter(), 0
    batches = way.batches(None)
    while rows < way.rows:
        rows += way.count(next(batches))
    del batches
    return Reading(cpu_s() - before, time.perf_counter() - start)


def in_turns(ways: Sequence[Way], rounds: int) -> dict[str, list[Reading]]:
    """All ways once to warm up, then in turns, every second round from the last to the first."""
    found: dict[str, list[Reading]] = {way.name: [] for way in ways}
    for way in ways:
        read(way)
    for number in range(rounds):
        for way in ways if number % 2 == 0 else ways[::-1]:
            found[way.name].append(read(way))
            print(f"  round {number}: {way.name}: {found[way.name][-1].cpu_s * 1000 / way.rows * 1000:.0f} CPU µs a row", flush=True)
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


def reading_table(ways: Sequence[Way], found: dict[str, list[Reading]]) -> Iterator[str]:
    """Ratios are those of the rounds: CPU seconds per row over those of the first way."""
    yield "| reader | samples/s | CPU s per 1,000 samples | samples per CPU s | CPU, Tuneyard = 1 |"
    yield "|---|---:|---:|---:|---:|"
    rows = {way.name: way.rows for way in ways}
    base = found[ways[0].name]
    for name, readings in found.items():
        cpu, wall = (statistics.median(each) / rows[name] for each in zip(*((one.cpu_s, one.wall_s) for one in readings), strict=True))
        ratios = [theirs.cpu_s / rows[name] / (ours.cpu_s / rows[ways[0].name]) for ours, theirs in zip(base, readings, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        yield f"| {name} | {1 / wall:,.0f} | {cpu * 1000:.3f} | {1 / cpu:,.0f} | {spread} |"


def resume_table(ways: Sequence[Way], rounds: int) -> Iterator[str]:
    yield "| reader | at 0 %, s | at 50 %, s | at 90 %, s |"
    yield "|---|---:|---:|---:|"
    for way in ways:
        seconds = [first_batch_s(way, way.state(fraction), rounds) for fraction in FRACTIONS] if way.state else []
        yield f"| {way.name} | {' | '.join(f'{each:.3f}' for each in seconds) or 'no state | no state | no state'} |"
