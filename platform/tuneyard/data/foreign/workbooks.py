"""Rows of a sheet of an Excel or OpenDocument workbook. The first row names the columns.

calamine reads what was stored: the last value of a formula, and of merged cells the first one. Rows in which either would lose something
are bad rows.
"""

from __future__ import annotations

import datetime
import io
import re
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.data.file_types import DataFile
from tuneyard.data.meaning.paths import shown
from tuneyard.data.row_records import BadRow, Record
from tuneyard.extras import need

_MOST_BYTES, _MOST_UNPACKED = 256 << 20, 2 << 30
"""Limits of a workbook, which is read into memory as a whole. The largest sheet has 1,048,576 rows."""
_FAULTS = ("#REF!", "#N/A", "#VALUE!", "#DIV/0!", "#NAME?", "#NULL!", "#NUM!")
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def sheet_records(file: DataFile) -> Iterator[Record | BadRow]:
    """The rows of the sheet `file.sheet`, or of the only sheet that is visible and filled.

    Raises BadInput: no workbook, a password, several sheets, no such sheet, a first row that cannot name columns.
    """
    need("excel", file.uri)
    content = _content(file)
    name, sheet = _sheet(file, content)
    cells = sheet.to_python(skip_empty_area=False)
    merged = _merged_rows(sheet)
    names = _header(file, cells, merged)
    uncomputed = _uncomputed(content, name)
    for number, row in enumerate(cells[1:], start=2):
        place = f"{file.uri}:row {number}"
        if number in merged:
            yield BadRow(place, f"cells {merged[number]} are merged, so that rows share a value", advice="unmerge the cells, and fill each")
        elif number in uncomputed:
            fault = f"{uncomputed[number]} is a formula without a value"
            yield BadRow(place, fault, advice="open the workbook in Excel or LibreOffice and save it, which computes its formulas")
        elif fault := next((value for value in row if value in _FAULTS), ""):
            yield BadRow(place, f"a formula ended with {fault}")
        elif any(value != "" for value in row):
            yield Record(place, {column: _value(value) for column, value in zip(names, row, strict=False) if column})


def _content(file: DataFile) -> bytes:
    if file.size_bytes > _MOST_BYTES:
        raise BadInput(f"{file.uri}: a workbook of more than {_MOST_BYTES >> 20} MiB", "save its sheet as CSV in UTF-8")
    with file.open() as stream:
        content = stream.read()
    if content.startswith(b"PK"):
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                unpacked = sum(part.file_size for part in archive.infolist())
        except zipfile.BadZipFile as error:
            raise BadInput(f"{file.uri}: not a complete workbook: {error}", "copy it again, or save it again") from error
        if unpacked > _MOST_UNPACKED:
            raise BadInput(f"{file.uri}: a workbook of {unpacked >> 20} MiB unpacked", "save its sheet as CSV in UTF-8")
    return content


def _sheet(file: DataFile, content: bytes) -> tuple[str, Any]:
    """The name of the sheet, and the sheet."""
    import python_calamine as calamine

    try:
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
        visible = [each.name for each in book.sheets_metadata if each.visible == calamine.SheetVisibleEnum.Visible]
        if file.sheet:
            if file.sheet not in book.sheet_names:
                raise BadInput(f"{file.uri}: no sheet {file.sheet}; sheets: {', '.join(book.sheet_names)}", "set data.sheet to one of them")
            return file.sheet, book.get_sheet_by_name(file.sheet)
        filled = {name: sheet for name in visible if (sheet := book.get_sheet_by_name(name)).height}
    except calamine.PasswordError as error:
        raise BadInput(f"{file.uri}: the workbook is protected by a password", "save it without one") from error
    except calamine.CalamineError as error:
        raise BadInput(f"{file.uri}: not a readable workbook: {said_by(error)}", "save it as .xlsx again, or as CSV") from error
    if len(filled) != 1:
        what = f"several sheets: {', '.join(filled)}" if filled else "no sheet with cells that is visible"
        raise BadInput(f"{file.uri}: {what}", f"set data.sheet: {next(iter(filled))}" if filled else "write rows into a sheet")
    return next(iter(filled.items()))


def _header(file: DataFile, cells: Sequence[Sequence[Any]], merged: dict[int, str]) -> list[str]:
    """Names of the columns; empty for columns without any cell."""
    place = f"{file.uri}: row 1"
    first = list(cells[0]) if cells else []
    filled = [value for value in first if value != ""]
    widest = max((sum(value != "" for value in row) for row in cells[1:20]), default=0)
    if 1 in merged or len(filled) < min(2, widest):
        what = f"has the merged cells {merged[1]}" if 1 in merged else f"holds {shown(filled[0]) if filled else 'nothing'}"
        raise BadInput(
            f"{place} {what}, and must name the columns", "delete the rows above the names of the columns, or save that part as CSV"
        )
    used = [any(number < len(row) and row[number] != "" for row in cells[1:]) for number in range(len(first))]
    names = [("" if value == "" else str(_value(value)).strip()) or (f"column {n + 1}" if used[n] else "") for n, value in enumerate(first)]
    named = [name for name in names if name]
    if len(set(named)) < len(named):
        raise BadInput(f"{place}: two columns have the same name", "rename one of them")
    return names


def _value(value: Any) -> Any:
    """A cell. Excel knows no whole numbers: those of its numbers that are whole become such. Empty cells are null."""
    if value == "":
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return (
        value.isoformat()
        if isinstance(value, (datetime.date, datetime.time))
        else str(value)
        if isinstance(value, datetime.timedelta)
        else value
    )


def _merged_rows(sheet: Any) -> dict[int, str]:
    """Rows with merged cells (counted from 1), and the range. Cells that are merged within one row hide nothing of other rows."""
    rows = {}
    for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
        if bottom > top or top == 0:
            rows.update(dict.fromkeys(range(top + 1, bottom + 2), f"{_letters(left)}{top + 1}:{_letters(right)}{bottom + 1}"))
    return rows


def _letters(column: int) -> str:
    return (_letters(column // 26 - 1) if column > 25 else "") + chr(65 + column % 26)


def _uncomputed(content: bytes, name: str) -> dict[int, str]:
    """Rows (counted from 1) with a formula that has no stored value, and its cell. Programs that write workbooks often store none."""
    if not content.startswith(b"PK"):
        return {}
    found: dict[int, str] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        part = _part(archive, name)
        if part is None or b"<f" not in archive.read(part):
            return {}
        for _, cell in ET.iterparse(archive.open(part)):
            if cell.tag != f"{_MAIN}c":
                continue
            if cell.find(f"{_MAIN}f") is not None and not (cell.findtext(f"{_MAIN}v") or cell.findtext(f"{_MAIN}is/{_MAIN}t")):
                place = cell.get("r", "")
                found.setdefault(int(re.sub(r"\D", "", place) or 0), place)
            cell.clear()
    return found


def _part(archive: zipfile.ZipFile, name: str) -> str | None:
    """The part of an .xlsx archive that holds a sheet; None where there is none."""
    try:
        book, links = (ET.fromstring(archive.read(part)) for part in ("xl/workbook.xml", "xl/_rels/workbook.xml.rels"))
    except (KeyError, ET.ParseError):
        return None
    identity = next((sheet.get(_RELATION) for sheet in book.iter(f"{_MAIN}sheet") if sheet.get("name") == name), None)
    target = next((str(link.get("Target")) for link in links if link.get("Id") == identity), "")
    part = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
    return part if part in archive.namelist() else None
