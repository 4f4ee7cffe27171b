"""`tuneyard schema`: the machine-readable form of the file formats."""

from __future__ import annotations

from typing import Annotated

import typer

from tuneyard.api import BadInput
from tuneyard.api.loading import KINDS
from tuneyard.api.loading_reasons import did_you_mean
from tuneyard.api.schema import crds_yaml, json_schema
from tuneyard.cli.output import print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Print the CRDs, or the JSON schema for editors.")


@app.command()
def crd() -> None:
    """Print the CustomResourceDefinitions of all kinds.

    Example: tuneyard schema crd | kubectl apply --server-side -f -
    """
    typer.echo(crds_yaml(), nl=False)


@app.command("json")
def as_json(kind: Annotated[str | None, typer.Option(help=f"one of {', '.join(KINDS)}; default: all of them")] = None) -> None:
    """Print the JSON schema that editors check YAML files with.

    Example: tuneyard schema json > .tuneyard-schema.json
    """
    if kind is not None and kind not in KINDS:
        raise BadInput(f"there is no kind {kind!r}{did_you_mean(kind, KINDS)}", f"use one of: {', '.join(KINDS)}")
    print_json(json_schema(kind))
