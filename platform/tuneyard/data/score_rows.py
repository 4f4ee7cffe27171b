"""Rows to score, read by number. Any range can be read at any time, so that engines take parts in any order and a killed run resumes.

The number of a row is its place in the input: files in order of name, then rows in order. Only the requested range is loaded: from Parquet
by row groups, from JSONL by byte offsets that one pass has noted. Files of other types are first copied to a JSONL file in the cache.
A row that cannot be used has an `error`; it does not end the task.
"""

from __future__ import annotations

import difflib
import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from tuneyard.api import BadInput, ScoreData
from tuneyard.data.access import reading
from tuneyard.data.cache import cache_root, cached_folder
from tuneyard.data.canonical import with_input
from tuneyard.data.columns import rows_of, without_fillers
from tuneyard.data.file_types import DataFile, FoundFile
from tuneyard.data.lines import LongLine, bounded_lines
from tuneyard.data.messages import BadSample, message_list
from tuneyard.data.records import BadRow, Record, parquet_file, parse_json_row, read_records
from tuneyard.data.roles import NAMES
from tuneyard.data.sources import Located, locate
from tuneyard.data.tool_calls import canonical_tools

_OFFSET_EVERY = 64
"""Rows between two noted byte offsets: they take 8 bytes of memory per 64 rows."""
_ERROR = "__tuneyard_error__"


class ScoreRow(TypedDict):
    """One row to score. `prompt` is empty where `error` is set. `system` and `tools`: from their own columns; used where prompts are chats.

    `references`: expected answers; empty without `data.reference`, or where the row has none. Such a row still gets an answer, but metrics
    that need a reference leave it out. `kept`: columns that are copied to the output.
    """

    index: int
    prompt: str | list[dict[str, Any]]
    system: str
    tools: list[Any] | None
    references: tuple[str, ...]
    kept: dict[str, Any]
    error: str | None


@dataclass
class _Parquet:
    file: DataFile
    starts: list[int]

    @classmethod
    def index(cls, file: DataFile) -> _Parquet:
        metadata = parquet_file(file).metadata
        starts = [0]
        for group in range(metadata.num_row_groups):
            starts.append(starts[-1] + metadata.row_group(group).num_rows)
        return cls(file, starts)

    @property
    def count(self) -> int:
        return self.starts[-1]

    def read(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        import pyarrow as pa

        parquet = parquet_file(self.file)
        for group in range(bisect_right(self.starts, start) - 1, len(self.starts) - 1):
            first, end = self.starts[group], self.starts[group + 1]
            if first >= stop:
                return
            low, high = max(start, first), min(stop, end)
            try:
                table = parquet.read_row_group(group).slice(low - first, high - low)
            except (pa.ArrowException, OSError) as error:
                reason = f"{self.file.uri}: row group {group} is damaged: {str(error).splitlines()[0]}"
                yield from ({_ERROR: reason} for _ in range(high - low))
            else:
                for batch in table.to_batches():
                    rows = rows_of(batch, fillers=True)
                    yield from ({_ERROR: f"{self.file.uri}: {values}"} if isinstance(values, str) else values for values in rows)


@dataclass
class _Jsonl:
    file: DataFile
    count: int
    offsets: array[int]
    """Byte offset of every 64th row."""

    @classmethod
    def index(cls, file: DataFile) -> _Jsonl:
        count, position, offsets = 0, 0, array("q")
        with file.open() as stream:
            for line in bounded_lines(stream):
                if isinstance(line, LongLine) or line.strip():
                    if count % _OFFSET_EVERY == 0:
                        offsets.append(position)
                    count += 1
                position += line.size_bytes if isinstance(line, LongLine) else len(line)
        return cls(file, count, offsets)

    def read(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        number = start - start % _OFFSET_EVERY
        with self.file.open_buffered() as stream:
            stream.seek(self.offsets[start // _OFFSET_EVERY])
            for line in bounded_lines(stream):
                if isinstance(line, bytes) and not line.strip():
                    continue
                if number >= stop:
                    return
                if number >= start:
                    yield self._row(line)
                number += 1

    def _row(self, line: bytes | LongLine) -> dict[str, Any]:
        if isinstance(line, LongLine):
            return {_ERROR: f"{self.file.uri}: {line.reason}"}
        try:
            return parse_json_row(line.removeprefix(b"\xef\xbb\xbf"))
        except ValueError as error:
            return {_ERROR: f"{self.file.uri}: {error}"}


@dataclass
class ScoreRows:
    """All rows of a score task, opened by `ScoreRows.open`. It holds no open file, so it can be pickled."""

    data: ScoreData
    uri: str
    parts: list[_Parquet | _Jsonl]
    notes: tuple[str, ...] = ()
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._starts = [0]
        for part in self.parts:
            self._starts.append(self._starts[-1] + part.count)

    @classmethod
    def open(cls, data: ScoreData, *, cache_dir: str | Path | None = None) -> ScoreRows:
        """Find the rows and index their places: by one pass over text files, by the footers of Parquet files.

        Raises BadInput: no file, no row, or no column with the name in `data.prompt`, `data.reference` or `data.keep`.
        """
        if data.source is None:
            raise BadInput(f"data.from: {data.from_task} is not resolved", "run it through `tuneyard run`, or give data.source")
        located = locate(data.source, file_type=data.file_type, split=data.split)
        files = _readable_by_number(located, cache_root(cache_dir))
        with reading(located.uri):
            parts = [_Parquet.index(file) if file.kind == "parquet" else _Jsonl.index(file) for file in files]
        rows = cls(data, located.uri, parts, located.notes)
        if rows.count() == 0:
            raise BadInput(f"{located.uri}: the data set is empty", "check the path; `tuneyard data inspect` shows its content")
        rows._check_columns()
        return rows

    def count(self) -> int:
        """Number of rows, including bad rows; at most `data.limit`."""
        total = self._starts[-1]
        return min(total, self.data.limit) if self.data.limit is not None else total

    def read(self, start: int, stop: int) -> list[ScoreRow]:
        """Rows `start` to `stop` (exclusive; cut at the end), in order. Raises IndexError for a negative start."""
        if start < 0:
            raise IndexError(f"row {start}")
        return [self._row(start + i, values) for i, values in enumerate(self._values(start, min(stop, self.count())))]

    def _values(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        with reading(self.uri):
            for part, first in zip(self.parts, self._starts, strict=False):
                low, high = max(start, first), min(stop, first + part.count)
                if low < high:
                    yield from part.read(low - first, high - first)

    def _row(self, index: int, values: dict[str, Any]) -> ScoreRow:
        if _ERROR in values:
            return _empty_row(index, {}, str(values[_ERROR]))
        wanted = self.data.keep or list(values)
        row = _empty_row(index, {name: values.get(name) for name in wanted}, None)
        try:
            clean = without_fillers if self._is_columnar(index) else _as_it_is
            row["prompt"] = _prompt(clean(values.get(self.data.prompt)), self.data.prompt)
            self._add_what_stands_beside(row, values, clean)
            if self.data.reference is not None:
                row["references"] = _references(values.get(self.data.reference), self.data.reference)
        except BadSample as error:
            row["error"] = str(error)
        return row

    def _add_what_stands_beside(self, row: ScoreRow, values: Mapping[str, Any], clean: Callable[[Any], Any]) -> None:
        """Add values of other columns that training uses too: an instruction's input, a system turn, tools."""
        if isinstance(row["prompt"], str) and self.data.prompt.lower() == "instruction":
            row["prompt"] = with_input(row["prompt"], _beside(values, "input"))
        system = _beside(values, "system")
        row["system"] = system if isinstance(system, str) else ""
        try:
            row["tools"] = canonical_tools(clean(_beside(values, "tools")))
        except ValueError as error:
            raise BadSample(str(error)) from error

    def _is_columnar(self, index: int) -> bool:
        return bool(self.parts) and isinstance(self.parts[bisect_right(self._starts, index) - 1], _Parquet)

    def _check_columns(self) -> None:
        _check_columns(self.data, self.uri, [row for row in self._values(0, min(100, self.count())) if _ERROR not in row])


def check_score_rows(data: ScoreData, uri: str, first: Iterable[Record | BadRow]) -> None:
    """Raises BadInput where the first rows of a data set lack a column that `data` names, or no row can be scored."""
    rows = list(first)
    _check_columns(data, uri, [row.values for row in rows if isinstance(row, Record)])
    reader, why, advice = ScoreRows(data, uri, []), f"{uri}: the data set is empty", ""
    for row in reversed(rows):
        error = reader._row(0, row.values)["error"] if isinstance(row, Record) else row.reason
        if error is None:
            return
        why, advice = f"{row.place}: {error}", row.advice if isinstance(row, BadRow) else ""
    raise BadInput(f"no row can be scored; {why}", advice or "is data.source or data.prompt right? `tuneyard data inspect` shows the rows")


def _check_columns(data: ScoreData, uri: str, rows: Sequence[Mapping[str, Any]]) -> None:
    found = list(dict.fromkeys(name for row in rows for name in row))
    wanted = {"prompt": data.prompt, "reference": data.reference, **{f"keep[{i}]": name for i, name in enumerate(data.keep)}}
    for fieldname, column in wanted.items():
        if rows and column is not None and column not in found:
            near = difflib.get_close_matches(column, found, n=1)
            raise BadInput(
                f"{uri}: no column {column} (data.{fieldname}); columns found: {', '.join(found) or 'none'}",
                f"did you mean {near[0]}?" if near else f"set data.{fieldname.partition('[')[0]} to one of them",
            )


def _empty_row(index: int, kept: dict[str, Any], error: str | None) -> ScoreRow:
    return ScoreRow(index=index, prompt="", system="", tools=None, references=(), kept=kept, error=error)


def _as_it_is(value: Any) -> Any:
    return value


def _beside(values: Mapping[str, Any], role: str) -> Any:
    """The value of the first column whose name gives it this role in training."""
    lower = {name.lower(): name for name in reversed(list(values))}
    return next((values[lower[name]] for name in NAMES[role] if name in lower), None)


def _prompt(value: Any, column: str) -> str | list[dict[str, Any]]:
    if isinstance(value, str):
        if not value.strip():
            raise BadSample(f"{column} is empty")
        return value
    if value is None:
        raise BadSample(f"{column} is missing")
    return message_list(value, column)


def _references(value: Any, column: str) -> tuple[str, ...]:
    """The expected answers in a value: a list, a single answer, or none where the value is missing."""
    if isinstance(value, list):
        return tuple(_reference(each, f"{column}[{i}]") for i, each in enumerate(value))
    # pandas writes NaN for a missing number.
    missing = value is None or value != value
    return () if missing else (_reference(value, column),)


def _reference(value: Any, column: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadSample(f"{column} is {type(value).__name__}, not text")
    return str(value)


def _readable_by_number(located: Located, root: Path) -> list[DataFile]:
    """The files themselves where all give access to single rows, else one JSONL copy in the cache."""
    if all((file.kind == "parquet" and not file.part) or (file.kind == "jsonl" and not file.compression) for file in located.files):
        return list(located.files)

    def build(folder: Path) -> None:
        with (folder / "rows.jsonl").open("w", encoding="utf-8") as out:
            for row in read_records(located.files):
                for line in _copies(row):
                    out.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")

    key = {"code": 1, "kinds": [file.kind for file in located.files], "files": [file.identity() for file in located.files]}
    entry, _ = cached_folder(root / "rows", key, build)
    copy = entry / "rows.jsonl"
    return [DataFile(FoundFile(located.uri, str(copy), copy.stat().st_size), "jsonl")]


def _copies(row: Record | BadRow) -> list[dict[str, Any]]:
    return [row.values] if isinstance(row, Record) else [{_ERROR: f"{row.place}: {row.reason}"}] * row.count
