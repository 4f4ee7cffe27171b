"""`tuneyard data`: a look into data sets."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuneyard.api import BadInput
from tuneyard.cli.output import size_text
from tuneyard.cli.sample_text import highlighted
from tuneyard.cli.terminal import console

if TYPE_CHECKING:
    from rich.console import Console

    from tuneyard.data import Inspection

_SHOWN_COLUMNS = 100

app = typer.Typer(help="Look into data sets.", no_args_is_help=True)


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


@app.callback()
def data() -> None:
    """Look into data sets."""


@app.command()
def inspect(
    uri: Annotated[str, typer.Argument(help="file, folder, glob, s3://, gs://, hdfs://, webhdfs:// or hf://owner/name")],
    tokenizer: Annotated[str | None, typer.Option(help="folder or Hugging Face name of a tokenizer: adds lengths in tokens")] = None,
    split: Annotated[str | None, typer.Option(help="split of a Hugging Face data set, or of a folder with files per split")] = None,
    file_type: Annotated[str, typer.Option(help="auto, parquet, jsonl, csv, text or hf")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="read the first N rows only")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="how to print")] = Output.TABLE,
) -> None:
    """Show what a data set holds: format, columns, lengths, bad rows, and a sample with the text that carries loss.

    Exit code 0; 2 where no row can be used.

    Examples: `tuneyard data inspect chats.jsonl` · `tuneyard data inspect s3://corpus/chats --tokenizer Qwen/Qwen2.5-0.5B -o json`
    """
    from tuneyard.data import inspect as look

    if file_type not in ("auto", "parquet", "jsonl", "csv", "text", "hf"):
        raise BadInput(f"--file-type {file_type}: no such type", "use auto, parquet, jsonl, csv, text or hf")
    found = look(uri, tokenizer=_tokenizer(tokenizer), file_type=file_type, split=split, limit=limit)
    if output is Output.JSON:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        show(found, console())
    if found.bad and not found.samples:
        raise BadInput(f"{uri}: no row can be used; {found.bad_examples[0]}", found.advice or "repair the file, or give another")


def _tokenizer(name: str | None) -> Any:
    if name is None:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        cause = str(error).splitlines()[0]
        raise BadInput(f"--tokenizer {name}: {cause}", "give a folder with tokenizer.json, or the name of a model") from error


def show(found: Inspection, console: Console) -> None:
    """Print an inspection for people."""
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(found):
        facts.add_row(Text(name, style="bold"), Text(value))
    console.print(facts)
    table = Table("column", "types", "used as", box=None, header_style="dim")
    # Those that are used come first: they are what a person looks for among thousands.
    columns = sorted(found.columns, key=lambda column: not column.role)
    for column in columns[:_SHOWN_COLUMNS]:
        table.add_row(Text(column.name), Text(", ".join(column.types)), Text(column.role or "-"))
    console.print(table)
    if len(columns) > _SHOWN_COLUMNS:
        console.print(Text(f"… and {len(columns) - _SHOWN_COLUMNS:,} columns more (-o json has all)"))
    for example in found.bad_examples:
        console.print(Text(f"bad  {example}", style="red"))
    for note in found.notes:
        console.print(Text(f"note {note}", style="yellow"))
    for number, pieces in enumerate(found.shown, start=1):
        how = "highlighted" if console.is_terminal else "marked «»"
        console.rule(f"sample {number}: {how} text carries loss", style="dim")
        console.print(highlighted([(piece.text, piece.loss) for piece in pieces], marks=not console.is_terminal))


def _facts(found: Inspection) -> list[tuple[str, str]]:
    rows = (
        f"{found.samples:,} good"
        + (f", {found.bad:,} bad" if found.bad else "")
        + (f", {found.left_out:,} labelled false, which training leaves out" if found.left_out else "")
        + ("" if found.complete else " (of the first rows only)")
    )
    facts = [
        ("source", f"{found.uri}  ({found.files} x {found.file_type}, {size_text(found.size_bytes)})"),
        ("format", f"{found.format}  ({found.why})"),
        ("rows", rows),
        ("duplicates", f"{found.duplicate_fraction:.1%}"),
    ]
    for name, lengths in (("characters", found.characters), ("tokens", found.tokens)):
        if lengths is not None:
            facts.append((name, f"p50 {lengths.p50:,}   p90 {lengths.p90:,}   p99 {lengths.p99:,}   max {lengths.max:,}"))
    if found.loss_token_fraction is not None:
        facts.append(("loss on", f"{found.loss_token_fraction:.1%} of tokens"))
        if found.ends_with is not None:
            facts.append(
                ("answers end", f"with {found.ends_with}" if found.ends_with else "with no token: engines stop at the length limit")
            )
        facts.append(("longer than", "   ".join(f"{limit}: {share:.1%}" for limit, share in found.longer_than.items())))
    return facts
