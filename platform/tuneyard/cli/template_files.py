"""`--templates`: files with ModelTemplates for jobs that name one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tuneyard.api import BadInput, FindTemplate, ModelTemplate, load_templates
from tuneyard.api.loading_reasons import did_you_mean
from tuneyard.api.templates import no_template

VARIABLE = "TUNEYARD_TEMPLATES"
TemplatesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--templates",
        metavar="PATH",
        envvar=VARIABLE,
        help="file with ModelTemplates, or folder of such files, for jobs that name one in spec.template; may be given several times",
    ),
]


def templates_in(paths: Sequence[Path] | None) -> FindTemplate:
    """A lookup of templates in files and folders. Raises BadInput for an unreadable file, and for two templates with one name."""
    found: dict[str, tuple[ModelTemplate, Path]] = {}
    for path in (file for given in paths or () for file in _files(given)):
        for name, template in load_templates(path).items():
            if name in found and found[name][1].resolve() != path.resolve():
                raise BadInput(f"{path}: holds a ModelTemplate {name}, and so does {found[name][1]}", "leave one of the two out")
            found[name] = template, path

    def find(name: str) -> ModelTemplate:
        if name in found:
            return found[name][0]
        if not found:
            return no_template(name)
        raise BadInput(f"there is no ModelTemplate {name} here{did_you_mean(name, found)}", f"there are: {', '.join(sorted(found))}")

    return find


def templates_of_environment() -> list[Path]:
    """The default of `--templates`, for programs and notebooks."""
    return [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]


def _files(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
