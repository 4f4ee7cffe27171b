"""`python -m tuneyard.ranking.make_clicks FOLDER`: a log of clicks with known causes, a Parquet file for each day, the last day apart."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

_BATCH = 10_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Write `days/day-1.parquet` … and `next-day/day-N.parquet` below the folder."""
    options = _parser().parse_args(arguments)
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tuneyard.ranking.click_log import generated_clicks

    each = -(-options.rows // options.days // _BATCH) * _BATCH
    for day in range(1, options.days + 1):
        folder = options.folder / ("next-day" if day == options.days else "days")
        folder.mkdir(parents=True, exist_ok=True)
        batches = generated_clicks(each, seed=options.seed, batch=_BATCH, first_row=(day - 1) * each)
        table = pa.Table.from_batches(list(batches)).append_column("day", pa.array([day] * each, pa.int32()))
        pq.write_table(table, folder / f"day-{day}.parquet", row_group_size=_BATCH)
        print(f"day {day} of {options.days}: {each:,} rows", flush=True)


def _parser() -> argparse.ArgumentParser:
    clicks = argparse.ArgumentParser(prog="python -m tuneyard.ranking.make_clicks", description=__doc__)
    clicks.add_argument("folder", type=Path, help="folder for the log")
    clicks.add_argument("--rows", type=int, default=200_000, help="rows of all days together, rounded up to 10,000 a day")
    clicks.add_argument("--days", type=int, default=4, help="days; the last one is for evaluation")
    clicks.add_argument("--seed", type=int, default=1, help="the same seed makes the same log")
    return clicks


if __name__ == "__main__":
    main()
