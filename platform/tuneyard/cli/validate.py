"""`tuneyard validate`: everything that is wrong with files, at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput
from tuneyard.cli.checks import check_file, local_file_warnings
from tuneyard.cli.output import Format, OutputOption, print_json


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML files: JobSpec, Cluster, Team, Schedule, ModelTemplate")],
    output: OutputOption = Format.TABLE,
) -> None:
    """Check files: fields, rules, SKUs. Exit code 0, or 2 with one line per error.

    A file or folder that is named by relative path and is not there, or holds data that cannot serve by their first rows, is a warning on
    stderr: the JobSpec may be meant for another machine.

    Example: tuneyard validate jobspecs/*.yaml
    """
    answers = [_validate(path) for path in files]
    if output is Format.JSON:
        print_json(answers)
    else:
        for answer in answers:
            for line in answer["errors"]:
                typer.echo(line, err=True)
            for line in answer["warnings"]:
                typer.echo(f"warning: {line}", err=True)
            if answer["valid"]:
                typer.echo(f"{answer['file']}: ok ({', '.join(answer['objects'])})")
    if not all(answer["valid"] for answer in answers):
        raise typer.Exit(BadInput.exit_code)


def _validate(path: Path) -> dict[str, Any]:
    try:
        documents = check_file(path)
    except BadInput as error:
        return {"file": str(path), "valid": False, "objects": [], "errors": error.cause.splitlines(), "warnings": []}
    warnings = [line for document in documents for line in local_file_warnings(document, path.absolute().parent)]
    objects = [f"{type(document.resource).__name__} {document.resource.metadata.name}" for document in documents]
    return {"file": str(path), "valid": True, "objects": objects, "errors": [], "warnings": warnings}
