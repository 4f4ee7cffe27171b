"""Files become records: rows as dicts with their place (`file:line`), and bad rows with the reason.

All readers stream: at most one batch of a columnar file, or one line of a text file, is in memory. A JSON array is the exception.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.data.access import reading
from tuneyard.data.columns import rows_of
from tuneyard.data.csv_rows import CsvRows, header_of
from tuneyard.data.encoding import Decoded, NotUtf8, convert
from tuneyard.data.file_types import DataFile
from tuneyard.data.foreign.json_documents import SeveralLists, rows_of_document
from tuneyard.data.foreign.workbooks import sheet_records
from tuneyard.data.json_text import HALF_CHARACTER, KeyTwice, has_half_character, parsed_documents, parsed_json
from tuneyard.data.lines import ONE_ARRAY, LongLine, lines_of, whole_of
from tuneyard.data.read_limit import PIECE_BYTES, limit
from tuneyard.data.reading_ahead import read_ahead
from tuneyard.data.row_records import BadRow, Record

__all__ = ["BadRow", "Record", "read_records"]

BATCH_ROWS = 512


def read_records(files: Iterable[DataFile]) -> Iterator[Record | BadRow]:
    """All rows of `files`, in order.

    Raises BadInput for a file that is unreadable as a whole or that changes meanwhile, StorageError for a lost network.
    """
    readers = {"parquet": _parquet, "arrow": _arrow, "jsonl": _jsonl, "json": _json, "csv": _csv, "text": _text, "excel": sheet_records}
    for file in read_ahead(files):
        with reading(file.uri):
            yield from readers[file.kind](file)
            file.check_unchanged()


def parquet_file(file: DataFile, *, buffer_bytes: int = 0) -> Any:
    """A `pyarrow.parquet.ParquetFile`. `buffer_bytes`: read columns in pieces of this size, to read only the first rows of a group.

    Raises BadInput where the footer is missing: the rows cannot even be counted.
    """
    import pyarrow.parquet as pq

    file.check_unchanged()
    try:
        source = file.path if file.is_local else file.open_raw()
        # Arrow fetches whole column chunks ahead unless it is told not to.
        return pq.ParquetFile(source, buffer_size=buffer_bytes, pre_buffer=not buffer_bytes)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        if isinstance(error, OSError) and (error.errno or not file.is_local):
            raise
        raise BadInput(
            f"{file.uri}: not a complete Parquet file ({file.size_bytes} bytes): {said_by(error)}",
            "was the copy or the write cut off? make the file again, or point at the folder's good files",
        ) from error


def _parquet(file: DataFile) -> Iterator[Record | BadRow]:
    yield from parquet_rows(file)


def parquet_rows(file: DataFile, groups: range | None = None) -> Iterator[Record | BadRow]:
    """The rows of a Parquet file, or of some row groups. A damaged group is one BadRow that counts all its rows. Raises BadInput."""
    parquet = parquet_file(file, buffer_bytes=0 if limit() is None else PIECE_BYTES)
    counts = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
    for group in range(len(counts)) if groups is None else groups:
        yield from row_group_records(file, parquet, group, sum(counts[:group]))


def row_group_records(file: DataFile, parquet: Any, group: int, first: int) -> Iterator[Record | BadRow]:
    """Rows of one row group of a Parquet file; `first`: rows in the groups before."""
    columns, constants = _table_columns(file, parquet)
    row, end = first, first + parquet.metadata.row_group(group).num_rows
    try:
        for batch in parquet.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], columns=columns):
            for values in rows_of(batch):
                row += 1
                yield _of_columns(f"{file.uri}:row {row}", values, constants)
    except (pa.ArrowException, OSError) as error:
        reason = f"row group {group} is damaged: {said_by(error)}"
        yield BadRow(f"{file.uri}:row {row + 1}", reason, end - row)


def _table_columns(file: DataFile, parquet: Any) -> tuple[list[str] | None, dict[str, Any]]:
    """The columns to read from a Parquet file (None: all), and the columns whose constant values come from the table's metadata."""
    if file.part is None:
        return None, {}
    present = set(parquet.schema_arrow.names)
    constants = {name: value for name, value in file.part.constants if name not in present}
    return [name for name in file.part.columns if name in present], constants


def _of_columns(place: str, values: dict[str, Any] | str, constants: dict[str, Any] | None = None) -> Record | BadRow:
    return BadRow(place, values) if isinstance(values, str) else Record(place, {**values, **constants} if constants else values)


@contextmanager
def arrow_errors(file: DataFile) -> Iterator[None]:
    """Raises BadInput in place of pyarrow's errors for a damaged file."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        raise BadInput(f"{file.uri}: not a complete Arrow file: {said_by(error)}", "save the data set again") from error


def arrow_batches(file: DataFile) -> Iterator[Any]:
    """Record batches of an Arrow IPC file or stream (the format of `datasets`), memory-mapped where local.

    Each batch is validated: offsets that point out of the file would crash the process.
    """
    source = pa.memory_map(file.path) if file.is_local else pa.PythonFile(file.open_raw(), "r")
    with arrow_errors(file):
        magic = source.read(6)
        source.seek(0)
        if magic == b"ARROW1":
            reader = pa.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(source))
        for batch in batches:
            batch.validate(full=True)
            yield batch


def _arrow(file: DataFile) -> Iterator[Record | BadRow]:
    row = 0
    for batch in arrow_batches(file):
        yield from batch_records(file, batch, row)
        row += batch.num_rows


def batch_records(file: DataFile, batch: Any, first: int) -> Iterator[Record | BadRow]:
    """Rows of a record batch; `first`: rows in the batches before."""
    row = first
    for start in range(0, batch.num_rows, BATCH_ROWS):
        for values in rows_of(batch.slice(start, BATCH_ROWS)):
            row += 1
            yield _of_columns(f"{file.uri}:row {row}", values)


def parse_json_row(line: bytes) -> dict[str, Any]:
    """The row in one line of JSONL. Raises ValueError with the reason for people."""
    try:
        values = parsed_json(line)
    except UnicodeDecodeError as error:
        raise NotUtf8(error) from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}{_notation(line)}") from error
    return _as_row(values)


def _notation(line: bytes) -> str:
    """What a line that is not JSON seems to be instead; empty where it is not known."""
    text = line.strip()
    if text.endswith(b"},"):
        return ": the line ends with a comma"
    return ": this is Python's text of an object" if text.startswith((b"{'", b"[{'")) else ""


def _advice(reason: str, line: bytes, *, first: bool) -> str:
    if reason.endswith("Python's text of an object"):
        return "write each row with json.dumps(row), not with str(row) or print(row)"
    if reason.endswith("with a comma"):
        return "take the commas out: sed 's/,\\s*$//' IN > OUT, or put the rows into one array, in brackets"
    return ONE_ARRAY if first and line.lstrip().startswith(b"[") else ""


def _jsonl(file: DataFile) -> Iterator[Record | BadRow]:
    with file.open() as stream:
        for number, line in enumerate(lines_of(file, stream), start=1):
            if isinstance(line, LongLine) or line.strip():
                yield json_record(file, f"{file.uri}:{number}", line, first=number == 1)


def json_record(file: DataFile, place: str, line: bytes | LongLine, *, first: bool = False) -> Record | BadRow:
    """The record of a non-empty line of JSONL. `first`: it is the first line of its file."""
    if isinstance(line, LongLine):
        return BadRow(place, line.reason, advice=line.advice)
    try:
        return Record(place, parse_json_row(line))
    except NotUtf8 as error:
        return BadRow(place, str(error), advice=convert(file))
    except ValueError as error:
        return BadRow(place, str(error), advice=_advice(str(error), line, first=first))


def _json(file: DataFile) -> Iterator[Record | BadRow]:
    with file.open() as stream:
        content = whole_of(file, stream)
    try:
        documents = list(parsed_documents(content.decode()))
        rows = documents if len(documents) > 1 else rows_of_document(documents[0])
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{file.uri}:{line}: {NotUtf8(error)}", convert(file)) from error
    except RecursionError as error:
        cause = f"{file.uri}: not usable JSON: some item is nested too deeply"
        raise BadInput(cause, "write one object per line (.jsonl): then that item alone is a bad row") from error
    except SeveralLists as error:
        raise BadInput(
            f"{file.uri}: {error}", f"write one of them into a file of its own: jq -c '{error.first}[]' IN > OUT.jsonl"
        ) from error
    except KeyTwice as error:
        raise BadInput(f"{file.uri}: {error}", "write one object per line (.jsonl): then that row alone is a bad row") from error
    except ValueError as error:
        raise BadInput(f"{file.uri}: not a JSON array: {error}", "if it holds one object per line, name it .jsonl") from error
    for number, values in enumerate(rows, start=1):
        place = f"{file.uri}:item {number}"
        try:
            cut = b"\\u" in content and has_half_character(values)
        except ValueError as error:
            yield BadRow(place, str(error))
            continue
        if cut:
            yield BadRow(place, HALF_CHARACTER)
            continue
        try:
            yield Record(place, _as_row(values))
        except ValueError as error:
            yield BadRow(place, str(error))


def _as_row(values: Any) -> dict[str, Any]:
    """The row in a value: an object, or a list of messages. Raises ValueError with the reason for people."""
    if isinstance(values, list) and values and all(isinstance(turn, dict) and ("role" in turn or "from" in turn) for turn in values):
        return {"messages": values}
    if not isinstance(values, dict):
        raise ValueError(f"a row must be an object, this is {_json_type(values)}")
    return values


def _csv(file: DataFile) -> Iterator[Record | BadRow]:
    with file.open() as stream:
        lines = Decoded(lines_of(file, stream))
        header, delimiter, above = header_of(file, lines)
        yield from csv_records(file, lines, header, delimiter, lambda line: f"{file.uri}:{line + above}")


def csv_records(
    file: DataFile, lines: Decoded, header: list[str], delimiter: str, place: Callable[[int], str]
) -> Iterator[Record | BadRow]:
    """Rows of CSV lines after the header. `place`: maps the number of a row's first line, counted from 1, to the place of the row."""
    for row in CsvRows(lines, header, delimiter):
        if fault := lines.take_fault():
            yield BadRow(place(row.line), str(fault), advice=convert(file) if isinstance(fault, NotUtf8) else "")
        elif row.fault:
            yield BadRow(place(row.line), row.fault, row.lines, row.advice)
        else:
            yield Record(place(row.line), row.values)


def _text(file: DataFile) -> Iterator[Record | BadRow]:
    with file.open() as stream:
        for number, line in enumerate(lines_of(file, stream), start=1):
            if isinstance(line, LongLine) or line.strip():
                yield text_record(file, f"{file.uri}:{number}", line)


def text_record(file: DataFile, place: str, line: bytes | LongLine) -> Record | BadRow:
    """The record of a non-empty line of text."""
    if isinstance(line, LongLine):
        return BadRow(place, line.reason)
    try:
        return Record(place, {"text": line.decode().rstrip("\r\n")})
    except UnicodeDecodeError as error:
        return BadRow(place, str(NotUtf8(error)), advice=convert(file))


def _json_type(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
