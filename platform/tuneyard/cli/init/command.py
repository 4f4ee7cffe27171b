"""`tuneyard init`: a JobSpec for one's own data, with settings that fit it and a comment on each."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuneyard.api import BadInput, JobSpec
from tuneyard.api.quoting import quoted
from tuneyard.cli.checks import check_file, configs_at_hand
from tuneyard.cli.data.roles import ColumnsOption, SheetOption, SpeakersOption, roles_of, say_columns, speakers_of
from tuneyard.cli.init.proposal import TOLERATED_AT_MOST, propose
from tuneyard.cli.init.reading import Reading, proposed_reading, with_form_of_prompts
from tuneyard.cli.probed import findings_of, probes_of

if TYPE_CHECKING:
    from tuneyard.data import Inspection

_REPAIR = "repair the file, or give another"
_READ_ROWS = 20_000
"""Enough for format and lengths. Reading a whole large data set takes minutes."""


def init(
    data: Annotated[
        str | None,
        typer.Option(metavar="URI", help="data to train on: file, folder, glob, s3://, gs://, hdfs://, hf://; default: the one file here"),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="the JobSpec to write")] = Path("job.yaml"),
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Hugging Face name, or model folder, to start from; default: by the data")
    ] = None,
    columns: ColumnsOption = None,
    roles: SpeakersOption = None,
    sheet: SheetOption = None,
    force: Annotated[bool, typer.Option("--force", help="write over FILE")] = False,
) -> None:
    """Look at data, and write a JobSpec that trains on it: a commented file to read, change and run.

    Example: tuneyard init --data chats.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --out job.yaml
    """
    if model == "":
        raise BadInput("--model names no model", "give a Hugging Face name or a folder, or leave it out")
    if out.exists() and not force:
        raise BadInput(f"{out} is there already", "give another --out, or --force to write over it")
    if not out.parent.is_dir():
        raise BadInput(f"--out {out}: there is no folder {out.parent}", "make it, or give a file in a folder that exists")
    uri = data or _only_data_here()
    found, reading = _look(uri, Reading(roles_of(columns), speakers_of(roles), sheet), _has_template(model))
    proposed = [f"{name}: {_shown(getattr(reading, name))}, {why}" for name, why in reading.why.items()]
    how: Any = {"source": _from(out, uri), "model": _from(out, model) if model else None, "reading": reading}
    proposal = propose(found, **how)
    job = _write(out, proposal.text())
    if config := configs_at_hand(job.spec, out.absolute().parent).get("train"):
        how["config"] = config
    probes = probes_of(job, out.absolute().parent)
    if (probe := probes["train"].probe() if probes else None) is not None and probe.tokens:
        how["tokens"] = probe.tokens
    if how.keys() & {"config", "tokens"}:
        proposal = propose(found, **how)
        job = _write(out, proposal.text())
    proposed += [f"warning: {finding}" for _, finding in findings_of(job, probes_of(job, out.absolute().parent))]
    why = found.why.replace(" (given)", " (proposed)") if "columns" in reading.why else found.why
    lines = [f"{uri}: {found.format}, {proposal.rows_text}; {why}", *proposed, *proposal.notes]
    print("\n".join(lines), file=sys.stderr)
    file = quoted(out)
    print(f"next: tuneyard plan {file}, then tuneyard run {file} (or tuneyard submit {file})", file=sys.stderr)
    typer.echo(out)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {each}" for key, each in value.items())
    return "true" if value is True else repr(value)


def _has_template(model: str | None) -> bool | None:
    """Whether the model's tokenizer has a chat template; None where it is not on this machine. The proposed models have one."""
    from tuneyard.runtime.tokenizer_files import has_chat_template

    return True if model is None else has_chat_template(model, revision=None, base_dir=Path.cwd())


def _look(uri: str, given: Reading, has_template: bool | None) -> tuple[Inspection, Reading]:
    """The inspected data, and how they are read: as given, or as proposed where nothing was given and the columns do not say it.
    `has_template`: see `with_form_of_prompts`.

    Raises BadInput if they yield no sample, or too many of their rows are bad.
    """
    from tuneyard.data import inspect

    found = inspect(uri, **given.arguments(), limit=_READ_ROWS)
    proposed = proposed_reading(uri, found, given)
    if proposed != given:
        given, found = proposed, inspect(uri, **proposed.arguments(), limit=_READ_ROWS)
    formed = with_form_of_prompts(found, given, has_template)
    if formed != given:  # a chat needs a question, where a pair of texts does not
        given, found = formed, inspect(uri, **formed.arguments(), limit=_READ_ROWS)
    if found.format == "unknown":
        step = say_columns(f"tuneyard init --data {quoted(uri)}", found.advice) if found.samples else found.advice or _REPAIR
        raise BadInput(f"{uri}: {found.why}", step)
    if not found.samples:
        cause = f"{uri}: no row can be trained on; {'; '.join(found.bad_examples)}"
        raise BadInput(cause, found.advice or f"tuneyard data inspect {quoted(uri)} shows more")
    rows = found.bad + found.samples
    if found.bad > TOLERATED_AT_MOST * rows:
        cause = f"{uri}: {found.bad:,} of {rows:,} rows cannot be used, such as {found.bad_examples[0]}; settings need the other rows too"
        raise BadInput(cause, found.advice or f"repair these rows, or take them out: `tuneyard data inspect {quoted(uri)}` shows more")
    return found, given


def _only_data_here() -> str:
    """The only data file of the working folder. Raises BadInput if there is none, or more than one."""
    from tuneyard.data.file_types import COMPRESSED_ENDINGS, ENDINGS

    there = sorted(path.name for path in Path().iterdir() if path.is_file() and not path.name.startswith("."))
    found = [name for name in there if any(name.removesuffix(packed).endswith(tuple(ENDINGS)) for packed in ("", *COMPRESSED_ENDINGS))]
    if len(found) != 1:
        what = f"several files here may be the data: {', '.join(found)}" if found else "no file here is data (.jsonl, .csv, .parquet, …)"
        raise BadInput(f"--data is missing, and cannot be guessed: {what}", f"tuneyard init --data {quoted(found[0]) if found else 'FILE'}")
    return found[0]


def _from(out: Path, name: str) -> str:
    """A local path as it is written in the file: relative to the file's folder. URIs and names stay."""
    path = Path(name)
    if "://" in name or path.is_absolute() or not (path.exists() or any(mark in name for mark in "*?[")):
        return name
    return os.path.relpath(path, out.parent)


def _write(out: Path, text: str) -> JobSpec:
    """Write the file, after a check of its draft. Returns its job."""
    draft = out.with_name(f".{out.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        [document] = check_file(draft)
        draft.replace(out)
    except (OSError, UnicodeError) as error:
        raise BadInput(f"{out} cannot be written: {error}", "give a file in a folder that you may write to") from error
    finally:
        draft.unlink(missing_ok=True)
    assert isinstance(document.resource, JobSpec)
    return document.resource
