"""Small workbooks as bytes: Excel's and OpenDocument's, as other programs write them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from html import escape

Cells = Sequence[Sequence[object]]
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_HIDDEN = ' state="hidden"'
_SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def xlsx(sheets: Mapping[str, Cells], *, merged: Sequence[str] = (), hidden: Sequence[str] = ()) -> bytes:
    """A workbook. Texts that start with = are formulas, without a value. `merged`: ranges of the first sheet. `hidden`: names of sheets."""
    names = list(sheets)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_SHEET}.sheet.main+xml"/>'
        + "".join(f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{_SHEET}.worksheet+xml"/>' for n, _ in enumerate(names))
        + "</Types>",
        "_rels/.rels": _links([("officeDocument", "xl/workbook.xml")]),
        "xl/_rels/workbook.xml.rels": _links([("worksheet", f"worksheets/sheet{n}.xml") for n, _ in enumerate(names)]),
        "xl/workbook.xml": f'<workbook {_MAIN} xmlns:r="{_OFFICE}/relationships"><sheets>'
        + "".join(
            f'<sheet name="{escape(name)}" sheetId="{n + 1}" r:id="r{n}"{_HIDDEN if name in hidden else ""}/>'
            for n, name in enumerate(names)
        )
        + "</sheets></workbook>",
    }
    for number, name in enumerate(names):
        rows = "".join(
            f'<row r="{r}">{"".join(_cell(f"{chr(65 + c)}{r}", value) for c, value in enumerate(row))}</row>'
            for r, row in enumerate(sheets[name], start=1)
        )
        ranges = "".join(f'<mergeCell ref="{each}"/>' for each in merged) if number == 0 else ""
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f"<worksheet {_MAIN}><sheetData>{rows}</sheetData>" + (f"<mergeCells>{ranges}</mergeCells>" if ranges else "") + "</worksheet>"
        )
    return _archive({name: _HEAD + text for name, text in parts.items()})


def ods(cells: Cells) -> bytes:
    """An OpenDocument workbook with one sheet of texts."""
    space = "urn:oasis:names:tc:opendocument:xmlns"
    rows = "".join(
        "<table:table-row>"
        + "".join(f'<table:table-cell office:value-type="string"><text:p>{escape(str(v))}</text:p></table:table-cell>' for v in row)
        + "</table:table-row>"
        for row in cells
    )
    content = (
        f'{_HEAD}<office:document-content xmlns:office="{space}:office:1.0" xmlns:table="{space}:table:1.0" xmlns:text="{space}:text:1.0" '
        f'office:version="1.2"><office:body><office:spreadsheet><table:table table:name="Rows">{rows}</table:table></office:spreadsheet>'
        "</office:body></office:document-content>"
    )
    manifest = f'{_HEAD}<manifest:manifest xmlns:manifest="{space}:manifest:1.0"/>'
    return _archive(
        {"mimetype": "application/vnd.oasis.opendocument.spreadsheet", "content.xml": content, "META-INF/manifest.xml": manifest}
    )


def _cell(place: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return f'<c r="{place}"><v>{value}</v></c>'
    text = str(value)
    if text.startswith("="):
        return f'<c r="{place}"><f>{escape(text[1:])}</f><v></v></c>'
    return f'<c r="{place}" t="inlineStr"><is><t>{escape(text)}</t></is></c>'


def _links(targets: Sequence[tuple[str, str]]) -> str:
    each = (f'<Relationship Id="r{n}" Type="{_OFFICE}/relationships/{kind}" Target="{to}"/>' for n, (kind, to) in enumerate(targets))
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{"".join(each)}</Relationships>'


def _archive(parts: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()
