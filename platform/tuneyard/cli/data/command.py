"""`tuneyard data`: a look into data sets."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from tuneyard.api import BadInput
from tuneyard.api.data import FileType
from tuneyard.api.quoting import quoted
from tuneyard.cli.data.columns import columns as show_columns
from tuneyard.cli.data.columns import reorder
from tuneyard.cli.data.roles import (
    ColumnsOption,
    SheetOption,
    SpeakersOption,
    TemplateOption,
    roles_of,
    say_columns,
    speakers_of,
    template_of,
)
from tuneyard.cli.output import size_text
from tuneyard.cli.progress.sample_text import highlighted
from tuneyard.cli.terminal import console

if TYPE_CHECKING:
    from rich.console import Console

    from tuneyard.data import Inspection

_SHOWN_COLUMNS = 100
_FILE_TYPES: tuple[str, ...] = get_args(FileType)
_FILE_TYPES_TEXT = f"{', '.join(_FILE_TYPES[:-1])} or {_FILE_TYPES[-1]}"

app = typer.Typer(help="Look into data sets.", no_args_is_help=True)


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


app.command("columns")(show_columns)
app.command()(reorder)


@app.callback()
def data() -> None:
    """Look into data sets."""


@app.command()
def inspect(
    uri: Annotated[str, typer.Argument(help="file, folder, glob, s3://, gs://, hdfs://, webhdfs:// or hf://owner/name")],
    tokenizer: Annotated[str | None, typer.Option(help="folder or Hugging Face name of a tokenizer: adds lengths in tokens")] = None,
    split: Annotated[str | None, typer.Option(help="split of a Hugging Face data set, or of a folder with files per split")] = None,
    file_type: Annotated[str, typer.Option(help=_FILE_TYPES_TEXT)] = "auto",
    columns: ColumnsOption = None,
    roles: SpeakersOption = None,
    template: TemplateOption = None,
    sheet: SheetOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="read the first N rows only")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="read all rows of a large data set, instead of a sample")] = False,
    picture: Annotated[Path | None, typer.Option(help="draw lengths and shares into this SVG file")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="how to print")] = Output.TABLE,
) -> None:
    """Show a data set: format, columns, lengths, bad rows, and a sample with the text that carries loss.

    For a data set above 128 MiB, rows are sampled from all of its files. Exit code 0; 2 where no row is usable, or the format is not clear
    from the columns.

    Examples: `tuneyard data inspect chats.jsonl` · `tuneyard data inspect s3://corpus/chats --tokenizer Qwen/Qwen2.5-0.5B -o json` ·
    `tuneyard data inspect s3://corpus/chats --picture chats.svg`
    """
    from tuneyard.data import inspect as look

    if file_type not in _FILE_TYPES:
        raise BadInput(f"--file-type {file_type}: no such type", f"use {_FILE_TYPES_TEXT}")
    if picture is not None and picture.suffix != ".svg":
        raise BadInput(f"--picture {picture}: pictures are SVG files", f"name it {picture.with_suffix('.svg')}")
    how: dict[str, Any] = {"file_type": file_type, "split": split, "limit": limit, "everything": everything}
    how |= {"columns": roles_of(columns) or None, "roles": speakers_of(roles) or None, "sheet": sheet}
    how["template"] = template_of(template)
    with _progress() as on_progress:
        found = look(uri, tokenizer=_tokenizer(tokenizer), on_progress=on_progress, **how)
    if picture is not None:
        _draw(found, picture)
    if output is Output.JSON:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        show(found, console())
    if found.bad and not found.samples:
        raise BadInput(f"{uri}: no row can be used; {found.bad_examples[0]}", found.advice or "repair the file, or give another")
    if found.format == "unknown":
        raise BadInput(f"{uri}: {found.why}", say_columns(f"tuneyard data inspect {quoted(uri)}", found.advice))


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _done, _of: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("looking", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of or None)


def _draw(found: Inspection, path: Path) -> None:
    from tuneyard.data.picture import picture

    try:
        path.write_text(picture(found), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--picture {path}: {error.strerror}", "give a file in a folder that can be written to") from error


def _tokenizer(name: str | None) -> Any:
    if name is None:
        return None
    from tuneyard.data.tokenizer import read_tokenizer

    return read_tokenizer(name)


def show(found: Inspection, console: Console) -> None:
    """Print an inspection for people."""
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(found):
        facts.add_row(Text(name, style="bold"), Text(value))
    console.print(facts)
    table = Table("column", "types", "used as", box=None, header_style="dim")
    # Used columns come first: a person looks for them among thousands.
    columns = sorted(found.columns, key=lambda column: not column.role)
    for column in columns[:_SHOWN_COLUMNS]:
        table.add_row(Text(column.name), Text(", ".join(column.types)), Text(column.role or "-"))
    console.print(table)
    if len(columns) > _SHOWN_COLUMNS:
        console.print(Text(f"… and {len(columns) - _SHOWN_COLUMNS:,} columns more (-o json has all)"))
    for example in found.bad_examples:
        console.print(Text(f"bad  {example}", style="red"))
    if found.advice and found.samples:  # without samples, an error has this advice as its next step
        console.print(Text(f"next {found.advice}", style="red"))
    for note in found.notes:
        console.print(Text(f"note {note}", style="yellow"))
    for number, pieces in enumerate(found.shown, start=1):
        how = "highlighted" if console.is_terminal else "marked «»"
        console.rule(f"sample {number}: {how} text carries loss", style="dim")
        console.print(highlighted([(piece.text, piece.loss) for piece in pieces], marks=not console.is_terminal))


def _shares(longer_than: Mapping[int, float]) -> str:
    return "   ".join(f"{limit}: {share:.1%}" for limit, share in longer_than.items())


def _facts(found: Inspection) -> list[tuple[str, str]]:
    rows = (
        f"{found.samples:,} good"
        + (f", {found.bad:,} bad" if found.bad else "")
        + (f", {found.left_out:,} labelled false, which training leaves out" if found.left_out else "")
        + ("" if found.complete or found.sampled else " (of the first rows only)")
    )
    facts = [
        ("source", f"{found.uri}  ({found.files} x {found.file_type}, {size_text(found.size_bytes)})"),
        ("format", f"{found.format}  ({found.why})"),
        ("rows", rows),
    ]
    if found.sampled:
        size = f"{size_text(found.sampled.read_bytes)} of {size_text(found.size_bytes)}"
        facts.append(("sample", f"{size}, from all of the files; about {found.sampled.rows:,} rows in all (--everything reads them)"))
    if found.empty:
        facts.append(("empty", f"{found.empty:,} of the bad rows"))
    at_most = f"; at most {found.most_duplicates:.1%} of all rows" if found.sampled else ""
    facts.append(("duplicates", f"{found.duplicate_fraction:.1%}{at_most}"))
    for name, lengths in (("characters", found.characters), ("tokens", found.tokens)):
        if lengths is not None:
            facts.append((name, f"p50 {lengths.p50:,}   p90 {lengths.p90:,}   p99 {lengths.p99:,}   max {lengths.max:,}"))
    if found.loss_token_fraction is not None:
        facts.append(("loss on", f"{found.loss_token_fraction:.1%} of tokens"))
        if found.ends_with is not None:
            facts.append(
                ("answers end", f"with {found.ends_with}" if found.ends_with else "with no token: engines stop at the length limit")
            )
        facts.append(("longer than", _shares(found.longer_than)))
    elif found.longer_than_assumed:
        facts.append(("longer than", f"{_shares(found.longer_than_assumed)}   (tokens, at 4 characters each; --tokenizer counts them)"))
    return facts
