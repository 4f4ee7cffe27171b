"""A form: how the rows of one exporter become rows whose columns have the names of roles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneyard.data.bad_sample import BadSample
from tuneyard.data.meaning.paths import value_at
from tuneyard.data.meaning.role_names import REQUIRED, FormatName, is_filled

Row = Mapping[str, Any]
_ODD = (KeyError, TypeError, AttributeError, IndexError)
"""What values of unexpected types raise."""
_NAMED = 20


@dataclass(frozen=True)
class Form:
    """One entry of the table of forms.

    `fits`: whether a row has this form. `read`: the row by roles (`messages`, `prompt`, `completion`, `chosen`, …); raises BadSample.
    `uses`: the columns or paths of a row whose content `read` takes. `note`: what `read` decides for the user. `late`: tried after columns
    that are named for roles. `refusal`: cause and next step, for rows that are known and cannot be read one by one.
    """

    name: str
    format: FormatName
    fits: Callable[[Row], bool]
    example: Row
    read: Callable[[Row], dict[str, Any]] = dict
    uses: Callable[[Row], Iterable[str]] = field(default=lambda row: row)
    note: str = ""
    late: bool = False
    refusal: tuple[str, str] | None = None

    def has(self, row: Row) -> bool:
        """Whether a row has this form, whatever its values are."""
        try:
            return self.fits(row)
        except _ODD:
            return False

    def shaped(self, row: Row) -> dict[str, Any]:
        """The row by roles. Raises BadSample."""
        if not self.has(row):
            columns = ", ".join(map(str, list(row)[:_NAMED])) or "none"
            raise BadSample(f"not of the form {self.name}, which the first rows have; columns of this row: {columns}")
        try:
            return self.read(row)
        except _ODD as error:
            raise BadSample(f"not readable as {self.name}: {type(error).__name__}: {error}") from error


def by_paths(name: str, format: FormatName, example: Row, *, late: bool = False, note: str = "", **paths: str) -> Form:
    """A form in which each role stands at one path. `paths`: role=path. Rows of the form have values for all required roles."""
    required = [paths[role] for role in REQUIRED[format]] + ([paths["prompt"]] if "prompt" in paths else [])

    def read(row: Row) -> dict[str, Any]:
        return {role: value_at(row, path) for role, path in paths.items()}

    return Form(
        name,
        format,
        lambda row: all(is_filled(value_at(row, path)) for path in required),
        example,
        read,
        lambda _row: paths.values(),
        note,
        late,
    )


def texts(row: Row, *names: str) -> list[str]:
    """Those of these columns that hold text."""
    return [name for name in names if isinstance(row.get(name), str) and row[name].strip()]
