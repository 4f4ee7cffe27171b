"""`python -m tuneyard.data.forms.page FOLDER`: writes forms.md, the page of all forms, from their table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tuneyard.api import BadInput
from tuneyard.data.canonical import Canonical
from tuneyard.data.forms import FORMS, Form
from tuneyard.data.meaning.proposals import IN_OTHER_LANGUAGES
from tuneyard.data.notations.speakers import ALIASES
from tuneyard.data.roles import detect
from tuneyard.data.shown import plain_pieces

NAME = "forms.md"
_HEAD = """# Forms of rows

<!-- Written by `make docs` from the code: change the code, not this page. -->

Rows of these exporters and data sets are read as they are. The first form that more than half of the first 100 rows have is used;
`tuneyard data inspect` names it. Rows that do not have it are bad rows. A form is not used where `data.columns` is given. Score tasks
use the columns `prompt` and `completion` of a form where the rows themselves have no such column.

"""
_SPEAKERS = """
## Speakers

Names of speakers, in any case, that mean a usual role. `data.roles` adds others.

| role | also written as |
|---|---|
"""

_COLUMNS = """
## Column names in other languages

Names of columns, in any case, by which `tuneyard init` proposes `data.columns`.

| language | prompt | completion |
|---|---|---|
"""


def page() -> str:
    """The page as text."""
    roles = {role: [name for name, other in ALIASES.items() if other == role] for role in dict.fromkeys(ALIASES.values())}
    rows = [f"| `{role}` | {', '.join(f'`{name}`' for name in names)} |" for role, names in roles.items()]
    columns = [
        f"| {language} | {', '.join(f'`{word}`' for word in words['prompt'])} | {', '.join(f'`{word}`' for word in words['completion'])} |"
        for language, words in IN_OTHER_LANGUAGES.items()
    ]
    return "\n".join([_HEAD + "\n".join(map(_entry, FORMS.values())) + _SPEAKERS + "\n".join(rows), _COLUMNS + "\n".join(columns), ""])


def _entry(form: Form) -> str:
    shown = json.dumps(form.example, ensure_ascii=False)
    try:
        sample = Canonical(detect([form.example]), needs_assistant=False)(form.example)
        reading = "".join(f"«{piece.text}»" if piece.loss else piece.text for piece in plain_pieces(sample))
        said = f"Read as {form.format}; the text in «» carries loss:\n\n```\n{reading.strip()}\n```\n"
    except BadInput as error:
        said = f"Refused: {error.cause.partition(': ')[2].partition('; columns found')[0]}. Next: {error.next_step}.\n"
    note = f"\n{form.note[0].upper()}{form.note[1:]}.\n" if form.note else ""
    return f"## {form.name}\n\n```json\n{shown}\n```\n\n{said}{note}"


if __name__ == "__main__":
    (Path(sys.argv[1]) / NAME).write_text(page(), encoding="utf-8")
