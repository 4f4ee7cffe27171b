"""`tuneyard validate`: all errors of files at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput, FindTemplate, load_templates
from tuneyard.cli.checks import check_file, warnings_of
from tuneyard.cli.output import Format, OutputOption, print_json
from tuneyard.cli.template_files import TemplatesOption, templates_in


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML files: JobSpec, Cluster, Team, Schedule, ModelTemplate")],
    templates: TemplatesOption = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="print jobs with the defaults of their templates filled in, as YAML")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Check files: fields, rules, SKUs. Exit code 0, or 2 with one line per error.

    A relative path that is missing, or that holds data with unusable first rows or with columns that are not used, is a warning on stderr:
    the JobSpec may be meant for another machine. A deadline before the planned end is a warning too, for tasks with `steps` on models of
    the catalog (docs/planning.md). So are rows that a model cannot take, by a config.json that is at hand.

    Example: tuneyard validate jobspecs/*.yaml
    """
    find = templates_in([*(templates or ()), *(file for file in files if _holds_templates(file))])
    answers = [_validate(path, find) for path in files]
    if output is Format.JSON:
        print_json([{key: value for key, value in answer.items() if resolved or key != "resolved"} for answer in answers])
    else:
        for answer in answers:
            for line in answer["errors"]:
                typer.echo(line, err=True)
            for line in answer["warnings"]:
                typer.echo(f"warning: {line}", err=True)
            if answer["valid"] and resolved:
                _print_yaml(answer["resolved"])
            elif answer["valid"]:
                typer.echo(f"{answer['file']}: ok ({', '.join(answer['objects'])})")
    if not all(answer["valid"] for answer in answers):
        raise typer.Exit(BadInput.exit_code)


def _holds_templates(file: Path) -> bool:
    """True for a file with readable templates. The check of the file itself reports its errors."""
    try:
        return bool(load_templates(file))
    except BadInput:
        return False


def _print_yaml(documents: list[Any]) -> None:
    import yaml

    for document in documents:
        typer.echo("---")
        typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100), nl=False)


def _validate(path: Path, find: FindTemplate) -> dict[str, Any]:
    try:
        documents = check_file(path, find=find)
    except BadInput as error:
        return {"file": str(path), "valid": False, "objects": [], "errors": error.cause.splitlines(), "warnings": [], "resolved": []}
    warnings = [line for document in documents for line in warnings_of(document, path.absolute().parent)]
    objects = [f"{type(document.resource).__name__} {document.resource.metadata.name}" for document in documents]
    made = [document.value for document in documents]
    return {"file": str(path), "valid": True, "objects": objects, "errors": [], "warnings": warnings, "resolved": made}
