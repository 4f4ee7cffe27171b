"""`--columns prompt=question,completion=reply`: the role of each column; `--roles customer=user`: the role of each speaker."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

import typer

from tuneyard.api import BadInput
from tuneyard.api.prompt_templates import prompt_template

ColumnsOption = Annotated[
    str | None,
    typer.Option(metavar="ROLE=COLUMN,…", help="which column or path plays which part, such as prompt=question,completion=answers.text[0]"),
]


SpeakersOption = Annotated[
    str | None, typer.Option("--roles", metavar="SPEAKER=ROLE,…", help="who speaks in chats, such as customer=user,clerk=assistant")
]
SheetOption = Annotated[str | None, typer.Option(help="sheet of an Excel workbook; default: the only one that is visible and filled")]

TemplateOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="prompt of each row, with columns in braces, such as 'Summarize: {article}', or response, alpaca"),
]


def template_of(text: str | None) -> str | None:
    """The template of an option, checked. Raises BadInput."""
    try:
        if text is not None:
            prompt_template(text)
        return text
    except ValueError as error:
        raise BadInput(f"--template {error}", "write it like --template 'Summarize: {article}'") from error


def speakers_of(roles: str | None) -> dict[str, str]:
    """`customer=user,clerk=assistant` -> speaker -> role. Raises BadInput."""
    from tuneyard.data.notations.speakers import ROLES

    pairs = [entry.partition("=") for entry in (roles or "").split(",") if entry]
    if any(not speaker.strip() or role.strip() not in ROLES for speaker, _, role in pairs):
        raise BadInput(
            f"--roles {roles} is not SPEAKER=ROLE,…", f"write it like --roles customer=user,clerk=assistant; roles: {', '.join(ROLES)}"
        )
    return {speaker.strip(): role.strip() for speaker, _, role in pairs}


def roles_of(columns: str | None) -> dict[str, str]:
    """`prompt=question,completion=reply` -> role -> column. Raises BadInput."""
    pairs = [entry.partition("=") for entry in (columns or "").split(",") if entry]
    if any(not role.strip() or not column.strip() for role, _, column in pairs):
        raise BadInput(f"--columns {columns} is not ROLE=COLUMN,…", "write it like --columns prompt=question,completion=reply")
    return {role.strip(): column.strip() for role, _, column in pairs}


def say_columns(command: str, advice: str = "") -> str:
    """The next step where columns tell no format. `command`: the line before `--columns`. `advice`: the next step of detection."""
    from tuneyard.data.meaning.suggestions import GENERAL

    given = re.search(r"data\.columns: \{(?P<pairs>[^}]*)\}", advice) if advice != GENERAL else None
    if advice not in ("", GENERAL) and given is None:
        return advice
    said = f"say which column plays which part: {command} --columns"
    if given is None:
        return f"{said} prompt=…,completion=…; for a prompt of several columns: --columns completion=… --template '{{…}} {{…}}'"
    return f"{said} {_option(given['pairs'])}"


def say_roles(command: str, advice: str) -> str:
    """Advice of the reader of rows, with `data.roles` as an option of `command`."""
    return re.sub(r"data\.roles: \{([^}]*)\}", lambda given: f"{command} --roles {_option(given[1])}", advice)


def _option(pairs: str) -> str:
    """`a: b, c: d` of YAML as the value of an option."""
    return shlex.quote(pairs.replace(": ", "=").replace(", ", ",").replace("'", ""))
