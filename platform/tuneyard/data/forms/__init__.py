"""Forms of exporters: rows whose columns are not named for roles, or mean something else than their names say.

The table `FORMS` has one entry for each form, the more special ones first. An entry lies in the file of its exporters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.data.forms import accounts, answers, chats, choices, corpora, labels, openai, traces, trees, verdicts
from tuneyard.data.forms.form import Form

FORMS: dict[str, Form] = {
    form.name: form for file in (openai, accounts, chats, trees, verdicts, choices, answers, labels, traces, corpora) for form in file.FORMS
}
DETECTION_SHARE = 0.5
"""Share of the first rows that must have a form."""

__all__ = ["FORMS", "Form", "form_of"]


def form_of(rows: Sequence[Mapping[str, Any]], *, late: bool = False, formats: Sequence[str] = ()) -> Form | None:
    """The form of most of the first rows; None where they have none. `late`: only forms that are tried after columns named for roles.
    `formats`: only forms of these formats; default: all.
    """
    for form in FORMS.values():
        if form.late is not late or (formats and form.format not in formats):
            continue
        if rows and sum(map(form.has, rows)) > DETECTION_SHARE * len(rows):
            return form
    return None
