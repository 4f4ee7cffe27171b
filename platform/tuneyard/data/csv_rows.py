"""Rows of CSV, with detection of rows that a stray quotation mark swallows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tuneyard.api import BadInput
from tuneyard.data.encoding import Decoded, convert, converted_names
from tuneyard.data.file_types import DataFile, is_tab_separated
from tuneyard.data.lines import LONGEST_ROW_BYTES

_SWALLOWED_FROM = 5
_LIKE_ROWS = 0.9
_ALONE, _TRIED = 4, 200
SEPARATORS = ",;\t|"
_SEPARATORS_TEXT = ", ; tab |"
_FOREIGN = re.compile(r"^[^\W_][\w -]*(?P<sign>[\^~§¦\x00-\x08\x0e-\x1f])[\w -]+((?P=sign)[\w -]+)*$")
"""A header of words between signs that are no known separator."""
_NEVER_CLOSED = "unexpected end of data"
"""How `csv` says that a quotation mark is open at the end of the data."""
_STRAY_QUOTE = "close the quotation mark, or double it if it is part of the text"


_NO_SEPARATOR = f"the header has no known separator ({_SEPARATORS_TEXT})"
_CONVERT = f"write the file with one of these separators: {_SEPARATORS_TEXT}"


def _command(how: str, names: tuple[str, str] = ("IN", "OUT")) -> str:
    """A command that rewrites CSV. `how`: arguments of Python's csv.reader, without double quotation marks."""
    before, after = names
    return f'convert it: python3 -c "import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, {how}))" < {before} > {after}'


@dataclass(frozen=True)
class CsvRow:
    """One row. `line`: its first line, where 1 is the first line after the header. `fault`: why it is bad. `count`: rows that are lost
    by the fault, this one included.
    """

    line: int
    values: dict[str, str] = field(default_factory=dict)
    fault: str = ""
    advice: str = ""
    count: int = 1


class CsvRows:
    """Rows of CSV with a header.

    A field may hold line breaks. A quotation mark that is never closed therefore swallows all lines that follow; a stray one that another
    stray one closes swallows the lines between. Each swallowed line counts as a bad row. Lines count as swallowed where a row spans seven
    lines or more, and nine of ten inner lines are rows by themselves, with as many fields as the header. Behind a mark that is never closed
    each such line counts. Any other bad row is one row, whatever lines it spans. A field of more than LONGEST_ROW_BYTES ends its row.
    """

    def __init__(self, lines: Decoded, header: list[str], delimiter: str) -> None:
        csv.field_size_limit(LONGEST_ROW_BYTES)
        self._lines = lines
        self._header = header
        self._delimiter = delimiter
        self._taken: list[str] = []
        self._reader = csv.reader(self._taking(), delimiter=delimiter, strict=True)

    def __iter__(self) -> Iterator[CsvRow]:
        while True:
            begins = self._reader.line_num + 1
            self._taken.clear()
            try:
                fields = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield self._bad(begins, *self._unreadable(error), is_open=str(error) == _NEVER_CLOSED)
                continue
            if not fields:
                continue
            if len(fields) != len(self._header):
                yield self._bad(begins, *self._uneven(len(fields)))
            elif swallowed := self._swallowed():
                yield self._bad(begins, f"a field holds {swallowed} lines that are rows by themselves", _STRAY_QUOTE)
            else:
                yield CsvRow(begins, dict(zip(self._header, fields, strict=True)))

    def _taking(self) -> Iterator[str]:
        for line in self._lines:
            self._taken.append(line)
            yield line

    def _unreadable(self, error: csv.Error) -> tuple[str, str]:
        """The reason why a row is not CSV, and the next step."""
        if len(self._taken) > 1:
            return f"not CSV: {error}", _STRAY_QUOTE
        return (f"not CSV: {_NO_SEPARATOR}", _CONVERT) if len(self._header) == 1 else (f"not CSV: {error}", "")

    def _uneven(self, fields: int) -> tuple[str, str]:
        """The reason why a row has another number of fields than the header, and the next step."""
        cause = f"{fields} fields where the header has {len(self._header)}"
        if len(self._header) == 1:
            return f"{cause}: {_NO_SEPARATOR}", _CONVERT
        if "'" in self._taken[0] and self._is_row("".join(self._taken), quote="'"):
            return f"{cause}: fields seem to be quoted with ', and CSV quotes with \"", _command(
                f"quotechar=chr(39), delimiter={self._delimiter!r}"
            )
        return cause, ""

    def _bad(self, begins: int, fault: str, advice: str = "", *, is_open: bool = False) -> CsvRow:
        """`is_open`: a quotation mark takes all lines up to the end of the data."""
        lost = sum(map(self._is_row, self._taken[1:])) if is_open else len(self._taken) - 1 if self._swallowed() else 0
        return CsvRow(begins, fault=fault, advice=advice, count=1 + lost)

    def _swallowed(self) -> int:
        """Number of inner lines of the last row that are rows by themselves; 0 where they are few enough to be text."""
        inside = self._taken[1:-1]
        if len(inside) < _SWALLOWED_FROM or len(self._header) < 2:
            return 0
        rows = sum(self._is_row(line) for line in inside)
        return rows if rows >= _LIKE_ROWS * len(inside) else 0

    def _is_row(self, line: str, quote: str = '"') -> bool:
        try:
            fields = next(csv.reader([line], delimiter=self._delimiter, quotechar=quote), [])
        except csv.Error:
            return False
        return len(fields) == len(self._header)


_SEP = re.compile(r'"?sep=(?P<sign>.)"?[\r\n]*', re.IGNORECASE)
"""The first line by which Excel tells the separator."""


def header_of(file: DataFile, lines: Decoded) -> tuple[list[str], str, int]:
    """Names of the columns without blanks around them, the separator, and the number of lines up to the header.

    Raises BadInput where the first line cannot be a header.
    """
    line, above, told = next(lines, ""), 1, ""
    if match := _SEP.fullmatch(line.lstrip("\ufeff")):
        line, above, told = next(lines, ""), 2, match["sign"]
    if fault := lines.take_fault():
        raise BadInput(f"{file.uri}:{above}: {fault}", convert(file))
    delimiter = told or ("\t" if is_tab_separated(file.path) else max(SEPARATORS, key=line.count))
    if not told and delimiter not in line and (foreign := _FOREIGN.match(line.strip().lstrip("\ufeff"))):
        sign = foreign["sign"]
        cause = f"{file.uri}:1: {_NO_SEPARATOR}; it seems to be {sign!r}"
        raise BadInput(cause, _command(f"delimiter={sign!r}", converted_names(file, "comma")))
    try:
        header = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error as error:
        cause = f"{file.uri}:1: the header is not CSV: {str(error).partition(' - ')[0]}"
        raise BadInput(cause, "save it as CSV in UTF-8 whose lines end in LF or CRLF, or set data.fileType") from error
    names = [name.strip() or f"column {number}" for number, name in enumerate(header, start=1)]
    if len(set(names)) < len(names):
        raise BadInput(f"{file.uri}:{above}: two columns have the same name", "rename one of them")
    return names, delimiter, above


def whole_rows(lines: Sequence[str], fields: int, delimiter: str) -> tuple[int, int]:
    """[first, end) of the whole rows among lines from the middle of a file, where the first line may lie inside a field.

    Whole rows begin after the first line from which several rows in sequence have as many fields as the header. They end before a row
    that is cut.
    """
    for start in range(min(len(lines), _TRIED)):
        ends = list(islice(_row_ends(lines[start:], fields, delimiter), _ALONE))
        if len(ends) == _ALONE and all(good for _, good in ends):
            begin = start + ends[0][0]  # the first row here may be the rest of a longer one
            last = max((end for end, good in _row_ends(lines[begin:], fields, delimiter) if good), default=0)
            return begin, begin + last
    return 0, 0


def _row_ends(lines: Sequence[str], fields: int, delimiter: str) -> Iterator[tuple[int, bool]]:
    """For each row: the number of lines up to its end, and whether it has as many fields as the header."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            yield reader.line_num, False
            continue
        if row is None:
            return
        yield reader.line_num, len(row) == fields
