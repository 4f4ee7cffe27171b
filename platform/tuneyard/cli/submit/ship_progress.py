"""The files that `submit` ships, on stderr: names, sizes and target, a bar on a terminal, and the files that were there already."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tuneyard.cli.output import size_text
from tuneyard.cluster import Parcel, Sent, Shipment
from tuneyard.cluster.uploads import OnProgress


def announcement(shipment: Shipment, *, dry_run: bool) -> list[str]:
    """One line for all parcels, and one per parcel. Empty for a job without files."""
    if not shipment.parcels:
        return []
    lines = [f"{'would ship' if dry_run else 'ships'} {size_text(shipment.size_bytes)} to {shipment.root}:"]
    for parcel in shipment.parcels:
        count = "" if parcel.single else f", {len(parcel.files):,} file{'s' * (len(parcel.files) > 1)}"
        lines.append(f"  {_short(parcel)}  {size_text(parcel.size_bytes)}{count}")
    return lines


def conclusion(sent: Sent | None) -> list[str]:
    """One line: bytes sent, and parcels that were there already. Empty for a job without files."""
    if sent is None:
        return []
    new = size_text(sum(parcel.size_bytes for parcel in sent.new))
    there = f"; {len(sent.there)} of {len(sent.new) + len(sent.there)} were there already" if sent.there else ""
    return [f"shipped {new if sent.new else 'nothing new'}{there}"]


@contextmanager
def open_ship_progress() -> Iterator[OnProgress]:
    """A bar on a terminal; elsewhere a line for each tenth."""
    if not sys.stderr.isatty():
        yield _plain()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("shipping {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda name, done, of: bars.update(task, description=name[:40].replace("[", r"\["), completed=done, total=of)


def _plain() -> OnProgress:
    tenths = 0

    def say(name: str, done: int, of: int) -> None:
        nonlocal tenths
        if of and (now := done * 10 // of) > tenths:
            tenths = now
            print(f"shipping {name}: {size_text(done)} of {size_text(of)}", file=sys.stderr, flush=True)

    return say


def _short(parcel: Parcel) -> str:
    return parcel.text if len(parcel.text) <= 80 else f"{parcel.text[:77]}..."
