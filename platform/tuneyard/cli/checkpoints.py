"""`tuneyard checkpoints`: list, verify, convert and prune the checkpoints of a train task."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tuneyard.api import BadInput
from tuneyard.api.quantities import parse_size_bytes
from tuneyard.cli.output import Format, OutputOption, print_json, print_table, size_text

if TYPE_CHECKING:
    from tuneyard.training.checkpoint.catalogue import Listing

_FAILED = 1
_EVERY_S = 10.0

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Look at, check, convert and remove checkpoints of train tasks."
)

Uri = Annotated[str, typer.Argument(metavar="URI", help="output of a train task (the folder that has checkpoints/), or of its job")]
Step = Annotated[int | None, typer.Option(min=1, help="the checkpoint of this step")]


class Dtype(StrEnum):
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


@app.callback()
def _group() -> None:
    """Look at, check, convert and remove checkpoints of train tasks."""


@app.command("list")
def list_(uri: Uri, output: OutputOption = Format.TABLE) -> None:
    """List committed checkpoints, the oldest first, with the writing attempt and the remains of dead attempts.

    Example: tuneyard checkpoints list runs/first/train -o json
    """
    from tuneyard.training.checkpoint.catalogue import list_checkpoints, open_task

    found = list_checkpoints(open_task(uri))
    if output is Format.JSON:
        print_json(asdict(found))
        return
    if found.checkpoints:
        rows = [asdict(stored) | {"committed": stored.committed_at, "size": size_text(stored.size_bytes)} for stored in found.checkpoints]
        columns = ["step", "committed", "size", "workers", "zero", "token", "folder"]
        print_table([column for column in columns if any(row[column] is not None for row in rows)], rows)
        for stored in found.checkpoints:
            if not stored.whole:
                typer.echo(f"damaged: {stored.folder} has no manifest that can be read")
    else:
        typer.echo("no committed checkpoint yet")
    typer.echo(_holder(found))
    for left in found.leftovers:
        typer.echo(f"not committed: {left.folder} ({size_text(left.size_bytes)})")


def _holder(found: Listing) -> str:
    if not found.holder:
        return "never held by any attempt"
    holder = found.holder
    who = f"{holder.get('job')}, attempt {holder.get('attempt')}, process {holder.get('pid')} on {holder.get('host')}"
    if not found.held:
        return f"given back by {who}"
    return f"held by {who}: {'alive' if found.alive else 'dead' if found.alive is False else 'alive or dead, unknown from this machine'}"


@app.command()
def verify(uri: Uri, step: Step = None, output: OutputOption = Format.TABLE) -> int:
    """Read every file of all committed checkpoints, or of one, and compare it with the committed manifest.

    Exit code 1, with one line per damaged file, if any file is damaged.

    Example: tuneyard checkpoints verify s3://bucket/runs/first/train --step 400
    """
    from tuneyard.training.checkpoint.catalogue import open_task
    from tuneyard.training.checkpoint.catalogue import verify as look

    store = open_task(uri)
    with _progress("verifying") as on_progress:
        found = look(store, step=step, on_progress=on_progress)
    if output is Format.JSON:
        print_json(asdict(found))
    else:
        for damage in found.damages:
            typer.echo(f"damaged: {damage.path} {damage.reason}")
        steps = ", ".join(str(step) for step in found.steps)
        outcome = f"{len(found.damages)} damaged" if found.damages else "whole"
        typer.echo(f"{'steps' if len(found.steps) > 1 else 'step'} {steps}: {outcome}")
    return _FAILED if found.damages else 0


@app.command()
def convert(
    uri: Uri,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="a new folder, or a URI")],
    step: Step = None,
    max_shard: Annotated[str, typer.Option(metavar="SIZE", help="largest file of weights, such as 500Mi or 5G")] = "2Gi",
    dtype: Annotated[Dtype | None, typer.Option(help="default: bf16, or fp32 if the run was in fp32")] = None,
) -> None:
    """Write a checkpoint, by default the newest, as weights or an adapter that from_pretrained, PEFT and vLLM load.

    The last line of stdout is TARGET. Memory: one file of weights and one layer.

    Example: tuneyard checkpoints convert runs/first/train models/at-400 --step 400
    """
    try:
        max_shard_bytes = parse_size_bytes(max_shard)
    except ValueError as error:
        raise BadInput(f"--max-shard: {error}", "write it like 500Mi or 2Gi") from error
    if max_shard_bytes < 1:
        raise BadInput("--max-shard is 0", "write it like 500Mi or 2Gi")
    from tuneyard.training.checkpoint.catalogue import open_task
    from tuneyard.training.checkpoint.convert import convert as write

    store = open_task(uri)
    with _progress("reading") as on_progress:
        made = write(
            store, target, step=step, max_shard_bytes=max_shard_bytes, dtype=dtype.value if dtype else None, on_progress=on_progress
        )
    count = len(made.files)
    print(f"step {made.step} in {made.dtype}: {count} file{'s' * (count > 1)}, {size_text(made.size_bytes)}", file=sys.stderr)
    typer.echo(made.uri)


@app.command()
def prune(
    uri: Uri,
    keep: Annotated[int, typer.Option(min=1, help="checkpoints to keep, the newest ones")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be removed, and remove nothing")] = False,
) -> None:
    """Remove old checkpoints, and the remains of dead attempts. The best checkpoint of an early stop is kept.

    The command refuses while an attempt writes there.

    Example: tuneyard checkpoints prune runs/first/train --keep 1 --dry-run
    """
    from tuneyard.training.checkpoint.catalogue import open_task
    from tuneyard.training.checkpoint.catalogue import prune as remove

    made = remove(open_task(uri), keep=keep, dry_run=dry_run, on_wait=lambda message: print(message, file=sys.stderr))
    for folder in made.removed:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {folder.folder} ({size_text(folder.size_bytes)})")
    kept = ", ".join(str(step) for step in made.kept) or "none"
    typer.echo(f"{size_text(made.size_bytes)} {'would be freed' if dry_run else 'freed'}; kept: {kept}")


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Progress on stderr: a bar on a terminal, elsewhere a line every ten seconds."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, of: bar.update(task, completed=done, total=of)
        return
    said = time.monotonic()

    def say(done: int, of: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _EVERY_S:
            said = time.monotonic()
            print(f"{label} {size_text(done)} of {size_text(of)}", file=sys.stderr, flush=True)

    yield say
