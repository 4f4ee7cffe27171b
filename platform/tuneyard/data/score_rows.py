"""Rows to score, read by number. Any range can be read at any time, so that engines take parts in any order and a killed run resumes.

The number of a row is its place in the input: files in order of name, then rows in order. Only the requested rows are loaded (see
`numbered_files`). A row that cannot be used has an `error`; it does not end the task.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from tuneyard.api import BadInput, ScoreData
from tuneyard.data.access import reading
from tuneyard.data.bad_sample import BadSample
from tuneyard.data.cache import cache_root
from tuneyard.data.canonical import with_input
from tuneyard.data.columns import without_fillers
from tuneyard.data.meaning.numbers import is_number
from tuneyard.data.meaning.paths import described, value_at
from tuneyard.data.meaning.role_names import NAMES
from tuneyard.data.messages import message_list, system_text
from tuneyard.data.numbered_files import ERROR, JsonlRows, ParquetRows, readable_by_number
from tuneyard.data.records import BadRow, Record
from tuneyard.data.row_hash import row_hash
from tuneyard.data.row_sample import sampled_rows
from tuneyard.data.score_shapes import FIRST_ROWS, NO_SHAPE, ScoreShape, prompt_column, shape_of
from tuneyard.data.sources import locate
from tuneyard.data.templated import prompt_of
from tuneyard.data.tool_calls import canonical_tools

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OTHER_ROW = "the two answers are to different prompts or references"
_FIRST_ROWS = 1000


class ScoreRow(TypedDict):
    """One row to score. `prompt` is empty where `error` is set. `system` and `tools`: from their own columns; used where prompts are chats.

    `references`: expected answers; empty without `data.reference`, or where the row has none. Such a row still gets an answer, but metrics
    that need a reference leave it out. `answer`: in `data.answer`, for a judge. `against`: the other answer, for a judge of
    two. `kept`: columns that are copied to the output.
    """

    index: int
    prompt: str | list[dict[str, Any]]
    system: str
    tools: list[Any] | None
    references: tuple[str, ...]
    answer: str
    against: NotRequired[str]
    kept: dict[str, Any]
    error: str | None


@dataclass
class ScoreRows:
    """All rows of a score task, opened by `ScoreRows.open`. It holds no open file, so it can be pickled."""

    data: ScoreData
    uri: str
    parts: list[ParquetRows | JsonlRows]
    notes: tuple[str, ...] = ()
    chosen: NDArray[np.int64] | None = None
    """Numbers of the rows of `data.sample`, in order; None: all rows."""
    against: ScoreRows | None = None
    """The same rows with the other answers, for a judge of two answers."""
    csv: bool = False
    """Whether files are CSV, which has no other way than an empty cell to say that a reference is missing."""
    shape: ScoreShape = NO_SHAPE
    """How the first rows are read."""
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
        located = locate(data.source, file_type=data.file_type, split=data.split, sheet=data.sheet)
        files = readable_by_number(located, cache_root(cache_dir))
        with reading(located.uri):
            parts = [ParquetRows.index(file) if file.kind == "parquet" else JsonlRows.index(file) for file in files]
        rows = cls(data, located.uri, parts, located.notes, csv=any(file.kind == "csv" for file in located.files))
        if rows.count() == 0:
            raise BadInput(f"{located.uri}: the data set is empty", "check the path; `tuneyard data inspect` shows its content")
        rows._find_shape()
        rows.notes += tuple(rows.shape.notes())
        return rows if data.sample is None else rows._sampled(data.sample, data.sample_seed)

    def beside(self, data: ScoreData, *, cache_dir: str | Path | None = None) -> ScoreRows:
        """These rows, with the answers of the same rows in `data`. Raises BadInput as `open`, and where these are other rows."""
        other = ScoreRows.open(data, cache_dir=cache_dir)
        if other.count() != self.count():
            raise BadInput(
                f"judge.against: {other.uri} has {other.count():,} rows, and {self.uri} has {self.count():,}",
                "judge two score tasks with the same rows: the same data.limit and data.sample",
            )
        both = replace(self, against=other)
        strange = next((row for row in both.read(0, _FIRST_ROWS) if row["error"] == OTHER_ROW), None)
        if strange is not None:
            raise BadInput(
                f"judge.against: row {strange['index']} of {other.uri} has another prompt or another reference than that of {self.uri}",
                "judge two score tasks with the same rows, data.prompt and data.reference",
            )
        return both

    def _sampled(self, sample: float, seed: int) -> ScoreRows:
        chosen = sampled_rows(self.count(), sample, seed)
        if not len(chosen):
            raise BadInput(
                f"data.sample {sample:g} of {self.count()} rows takes none of them", "raise data.sample, or change data.sampleSeed"
            )
        return replace(self, chosen=chosen)

    def count(self) -> int:
        """Number of rows, including bad rows; at most `data.limit`, and then those of `data.sample`."""
        if self.chosen is not None:
            return len(self.chosen)
        total = self._starts[-1]
        return min(total, self.data.limit) if self.data.limit is not None else total

    def read(self, start: int, stop: int) -> list[ScoreRow]:
        """The rows at the places `start` to `stop` (exclusive; cut at the end), in order. A row's `index` is its number in the input, which
        is its place unless `data.sample` leaves rows out. Raises IndexError for a negative start."""
        if start < 0:
            raise IndexError(f"row {start}")
        places = range(start, min(stop, self.count()))
        numbers = places if self.chosen is None else self.chosen[places.start : places.stop].tolist()
        rows = [self._row(number, values) for number, values in zip(numbers, self._values(numbers), strict=True)]
        return rows if self.against is None else [*map(_with_other, rows, self.against.read(start, stop))]

    def row(self, number: int) -> ScoreRow:
        """The row with this number in the input."""
        [values] = self._values([number])
        row = self._row(number, values)
        return row if self.against is None else _with_other(row, self.against.row(number))

    def _values(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        with reading(self.uri):
            for file, wanted in groupby(numbers, lambda number: bisect_right(self._starts, number) - 1):
                first = self._starts[file]
                yield from self.parts[file].read([number - first for number in wanted])

    def _row(self, index: int, values: dict[str, Any]) -> ScoreRow:
        if ERROR in values:
            return _empty_row(index, {}, str(values[ERROR]))
        if self.csv and self.data.reference is not None and _is_blank(values.get(self.data.reference)):
            values = {**values, self.data.reference: None}
        wanted = self.data.keep or list(values)
        row = _empty_row(index, {name: value_at(values, name) for name in wanted}, None)
        try:
            clean = without_fillers if self._is_columnar(index) else _as_it_is
            values = self.shape.shaped(values)
            asked = prompt_column(self.data)
            if self.data.template is not None:
                row["prompt"] = prompt_of(self.data.template, self.shape.places, values, self.shape.whole)
            else:
                row["prompt"] = self._with_input(_prompt(clean(value_at(values, asked)), asked, self.data.roles), values)
            self._add_what_stands_beside(row, values, clean)
            if self.data.reference is not None:
                row["references"] = self._references(value_at(values, self.data.reference), self.data.reference)
            if self.data.answer is not None:
                row["answer"] = self._answer(value_at(values, self.data.answer), self.data.answer)
        except BadSample as error:
            row["error"] = str(error)
        return row

    def _add_what_stands_beside(self, row: ScoreRow, values: Mapping[str, Any], clean: Callable[[Any], Any]) -> None:
        """Add values of other columns that training uses too: a system turn, tools."""
        row["system"] = system_text(clean(self._beside(values, "system")), "system")
        try:
            row["tools"] = canonical_tools(clean(self._beside(values, "tools")))
        except ValueError as error:
            raise BadSample(str(error)) from error

    def _with_input(self, prompt: str | list[dict[str, Any]], values: Mapping[str, Any]) -> str | list[dict[str, Any]]:
        """The prompt; an instruction with its input, as in training."""
        if isinstance(prompt, str) and (prompt_column(self.data).lower() == "instruction" or "input" in self.data.columns):
            return with_input(prompt, self._beside(values, "input"))
        return prompt

    def _beside(self, values: Mapping[str, Any], role: str) -> Any:
        """The value of the column in data.columns, else of the first one whose name gives it this role in training."""
        if role in self.data.columns:
            return value_at(values, self.data.columns[role])
        lower = {name.lower(): name for name in reversed(list(values))}
        return next((values[lower[name]] for name in NAMES[role] if name in lower), None)

    def _is_columnar(self, index: int) -> bool:
        return bool(self.parts) and isinstance(self.parts[bisect_right(self._starts, index) - 1], ParquetRows)

    def _find_shape(self) -> None:
        """Find how rows are read, by the first ones. Raises BadInput for a column that is not there."""
        first = [row for row in self._values(range(min(FIRST_ROWS, self.count()))) if ERROR not in row]
        self.shape = shape_of(self.data, self.uri, first)
        if self.shape.undecided:
            more = [row for row in self._values(range(min(_FIRST_ROWS * 10, self.count()))) if ERROR not in row]
            self.shape = shape_of(self.data, self.uri, more)

    def _references(self, value: Any, column: str) -> tuple[str, ...]:
        """The expected answers in a value: a list, a single answer, or none where the value is missing."""
        if isinstance(value, list):
            return tuple(self._reference(each, f"{column}[{i}]", column) for i, each in enumerate(value))
        # pandas writes NaN for a missing number.
        missing = value is None or value != value
        return () if missing else (self._reference(value, column, column),)

    def _answer(self, value: Any, column: str) -> str:
        if value is None or value != value:
            raise BadSample(f"there is no answer to judge: {column} is missing")
        return self._reference(value, column, column)

    def _reference(self, value: Any, place: str, column: str) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return str(value).lower()  # as JSON writes it
        if not is_number(value):
            inside = f", {described(value)}" if isinstance(value, dict) else ""
            raise BadSample(f"{place} is {type(value).__name__}{inside}, not text")
        return str(int(value)) if column in self.shape.whole and value == int(value) else str(value)


def check_score_rows(data: ScoreData, uri: str, first: Iterable[Record | BadRow]) -> list[str]:
    """Notes on how the first rows are read. Raises BadInput where they lack a column that `data` names, or no row can be scored."""
    rows = list(first)
    shape = shape_of(data, uri, [row.values for row in rows[:FIRST_ROWS] if isinstance(row, Record)])
    reader, why, advice = ScoreRows(data, uri, [], shape=shape), f"{uri}: the data set is empty", ""
    for row in reversed(rows):
        error = reader._row(0, row.values)["error"] if isinstance(row, Record) else row.reason
        if error is None:
            return shape.notes()
        why, advice = f"{row.place}: {error}", row.advice if isinstance(row, BadRow) else ""
    raise BadInput(f"no row can be scored; {why}", advice or "is data.source or data.prompt right? `tuneyard data inspect` shows the rows")


def _empty_row(index: int, kept: dict[str, Any], error: str | None) -> ScoreRow:
    return ScoreRow(index=index, prompt="", system="", tools=None, references=(), answer="", kept=kept, error=error)


def _with_other(row: ScoreRow, other: ScoreRow) -> ScoreRow:
    """The row with the other answer. A row that only one side can read, or that asks another thing there, is an error."""
    if row["error"] is not None:
        return row
    if other["error"] is not None:
        return {**row, "error": f"the other answer: {other['error']}"}
    if row_hash(row) != row_hash(other):
        return {**row, "error": OTHER_ROW}
    return {**row, "against": other["answer"]}


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _as_it_is(value: Any) -> Any:
    return value


def _prompt(value: Any, column: str, speakers: Mapping[str, str]) -> str | list[dict[str, Any]]:
    if isinstance(value, str):
        if not value.strip():
            raise BadSample(f"{column} is empty")
        return value
    if value is None:
        raise BadSample(f"{column} is missing")
    return message_list(value, column, speakers)
