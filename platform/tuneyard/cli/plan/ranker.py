"""The number of steps of a rank task: its own `steps`, or by the rows of its table, where the table is on this machine."""

from __future__ import annotations

from pathlib import Path

from tuneyard.api import RankTask
from tuneyard.planning import steps_of_epochs


def known_steps(rank: RankTask, base_dir: Path) -> int | None:
    """The number of steps. None for a table that a task makes, and for a table in a store: plans read nothing over the network."""
    if rank.steps is not None:
        return rank.steps
    if rank.negative_rate < 1 or any(step.output is None for step in rank.transforms):
        return None  # sampled rows are counted when they are read
    rows = _rows_of(rank.table.source, base_dir)
    if rows is None:
        return None
    counted = min(rows, rank.table.limit) if rank.table.limit is not None else rows
    training = max(1, round(counted * (1 - rank.validation_fraction)))
    return round(steps_of_epochs(rank.epochs or 1.0, training, rank.batch.rows))


def _rows_of(source: str | None, base_dir: Path) -> int | None:
    """Rows of local Parquet, by the footers of its files. None for other files, which the task itself refuses."""
    if source is None or "://" in source or not (path := base_dir / source).exists():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    try:
        return sum(pq.read_metadata(file).num_rows for file in files) or None
    except (OSError, pa.ArrowException):
        return None
