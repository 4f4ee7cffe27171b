"""`tuneyard data columns` and `tuneyard data reorder`: the order of columns of a wide table, by an access log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuneyard.cli.output import Format, OutputOption, print_json, print_table, size_text
from tuneyard.cli.terminal import console

if TYPE_CHECKING:
    from tuneyard.data.tables import Coalescing, Savings, Table

_SHOWN = 20

TableArgument = Annotated[str, typer.Argument(help="Parquet file, folder, glob, s3://, gs://, hdfs:// or webhdfs://", metavar="TABLE")]
LogOption = Annotated[list[Path], typer.Option("--log", help="access log, which readers write (access_log=…); may be given several times")]
FlattenOption = Annotated[
    float | None,
    typer.Option("--flatten", min=0, max=1, help="entries of map columns in at least this share of the rows read become columns"),
]
HoleOption = Annotated[
    int | None,
    typer.Option(
        "--hole-kib", min=0, help="largest gap that one request reads over; readers take 1024 on remote stores, 64 on local disks"
    ),
]


def columns(
    table: TableArgument,
    log: LogOption,
    flatten: FlattenOption = None,
    hole_kib: HoleOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the features that jobs read, and the bytes that a table in the order of the access log would save.

    Only footers are read, and with --flatten one row group of the map columns.

    Example: `tuneyard data columns s3://ads/clicks --log access.jsonl`
    """
    from tuneyard.data.tables import open_table, read_log, savings

    opened = open_table(table)
    found = savings(opened, read_log(log), rule=_rule(hole_kib), flatten=flatten)
    if output is Format.JSON:
        print_json(_as_json(opened, found))
    else:
        _show(opened, found)


def reorder(
    table: TableArgument,
    log: LogOption,
    out: Annotated[str, typer.Option("--out", help="new folder or URI; nothing is overwritten")],
    flatten: FlattenOption = None,
    hole_kib: HoleOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Write a table again, so that features which are read together lie side by side.

    Rows, files and row groups stay as they are. The same command continues a rewrite that was killed.

    Example: `tuneyard data reorder s3://ads/clicks --log access.jsonl --out s3://ads/clicks-ordered`
    """
    from tuneyard.data.tables import open_table, read_log
    from tuneyard.data.tables import reorder as rewrite

    opened = open_table(table)
    with _progress() as on_file:
        done = rewrite(opened, read_log(log), out, rule=_rule(hole_kib), flatten=flatten, on_file=on_file)
    if output is Format.JSON:
        print_json({**asdict(done), "source_bytes": opened.size_bytes})
        return
    kept = f", {done.kept:,} {'was' if done.kept == 1 else 'were'} there from an earlier start" if done.kept else ""
    files = f"{done.files:,} {'file' if done.files == 1 else 'files'} written"
    typer.echo(f"{done.uri}: {files}{kept}; {size_text(done.size_bytes)}, source {size_text(opened.size_bytes)}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("rewriting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    terminal = console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _rule(hole_kib: int | None) -> Coalescing:
    from tuneyard.data.tables import Coalescing

    return Coalescing(hole_bytes=(1024 if hole_kib is None else hole_kib) << 10)


def _as_json(table: Table, found: Savings) -> dict[str, Any]:
    return {
        "table": table.uri,
        "rows": table.rows,
        "columns": len(table.schema),
        "before": asdict(found.before),
        "after": asdict(found.after),
        "ratio": found.ratio,
        "order": list(found.columns),
        "flattened": list(found.entries),
        "popularity": dict(found.popularity),
        "unknown": list(found.unknown),
    }


def _show(table: Table, found: Savings) -> None:
    size = size_text(table.size_bytes)
    typer.echo(f"{table.uri}: {table.rows:,} rows, {len(table.schema):,} columns, {size}; {len(found.popularity):,} features were read\n")
    rows = [
        {"order": name, "read": size_text(reads.read_bytes), "wanted": size_text(reads.wanted_bytes), "requests": f"{reads.requests:,}"}
        for name, reads in (("as it is", found.before), ("by the log", found.after))
    ]
    print_table(("order", "read", "wanted", "requests"), rows, right=("read", "wanted", "requests"))
    flattened = f", with {len(found.entries):,} entries of maps as columns" if found.entries else ""
    typer.echo(f"\nAfter a rewrite, the reads of the log would take {found.ratio:.2f} x the bytes{flattened}.")
    popular = [{"feature": name, "share of rows read": f"{share:.1%}"} for name, share in list(found.popularity.items())[:_SHOWN]]
    typer.echo()
    print_table(("feature", "share of rows read"), popular, right=("share of rows read",))
    if len(found.popularity) > _SHOWN:
        typer.echo(f"… and {len(found.popularity) - _SHOWN:,} features more (-o json has all)")
    if found.unknown:
        typer.echo(f"note: the log names {len(found.unknown):,} features that the table does not have, such as {found.unknown[0]}")
