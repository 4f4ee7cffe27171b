"""The table that a ranker scores: its columns, and checks before the task starts. Only footers are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tuneyard.api import BadInput, Engine, Generation, ScoreData, ScoreTask
from tuneyard.data.tables import Table, TableReader, open_table
from tuneyard.data.tables.features import layout
from tuneyard.ranking import RankerConfig, coded, schema_of, transformed
from tuneyard.ranking.columns import check_ids, check_numbers, lacking
from tuneyard.scoring.ranker.rows import RowsByNumber

_SAMPLE_ROWS = 1_000_000
_LANGUAGE_DATA = ("prompt", "reference", "answer", "chat", "columns", "roles", "template", "sheet", "split", "sample")


@dataclass(frozen=True)
class RankedTable:
    """A checked table; can be pickled. `labels`: the ranker's tasks that the table has as columns; `notes`: warnings for people."""

    table: Table
    config: RankerConfig
    labels: tuple[str, ...]
    keep: tuple[str, ...]
    slices: tuple[str, ...]
    place: str | None
    """The column that assigns rows to windows; None: the order of rows."""
    rows: int
    notes: tuple[str, ...]

    @classmethod
    def open(cls, task: ScoreTask, config: RankerConfig) -> RankedTable:
        """Open and check the table of a task.

        Raises BadInput: fields of language models, no Parquet, no rows, a missing column (with the nearest name), or one of another type.
        """
        refuse_language_fields(task)
        uri = task.data.source
        if uri is None:
            raise BadInput(f"data.from: {task.data.from_task} is not resolved", "run it through `tuneyard run`, or give data.source")
        table, windows = open_table(uri), task.ranking.windows
        labels = tuple(name for name in config.tasks if not layout(config.transforms.reads([name]), table.schema).missing)
        place = windows.column if windows is not None else None
        found = cls(table, config, labels, tuple(task.data.keep), tuple(task.ranking.slices), place, _rows(table, task.data), ())
        found._check_types()
        if not found.rows:
            raise BadInput(f"{uri}: the data set is empty", "check data.source and data.limit")
        return cls(**{**found.__dict__, "notes": tuple(found._remarks())})

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns to read, each once: inputs of the ranker's transforms, and the untransformed columns `keep` and `place`."""
        place = () if self.place is None else (self.place,)
        return tuple(dict.fromkeys((*self.config.transforms.reads(self._made), *self.keep, *place)))

    def transformed(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Features, labels and slices, from columns that were read."""
        return transformed(columns, self.config.transforms, self._made, self.config.text_inputs)

    @property
    def _made(self) -> tuple[str, ...]:
        return (*self.config.features, *self.labels, *self.slices)

    def frequent_values(self, most: int) -> dict[str, list[str | None]]:
        """The most frequent values of each slice column, in evenly spaced row groups with about a million rows at most."""
        if not self.slices:
            return {}
        counts: dict[str, Counter[str | None]] = {name: Counter() for name in self.slices}
        steps = self.config.transforms
        rows = RowsByNumber(self.table, steps.reads(self.slices))
        for start, stop in rows.sample(min(self.rows, _SAMPLE_ROWS)):
            for read in (piece.columns for piece in rows.read(start, min(stop, self.rows)) if piece.columns is not None):
                columns = transformed(read, steps, self.slices, self.config.text_inputs)
                for name, counter in counts.items():
                    column = coded(columns.column(name))
                    numbers = np.bincount(column.codes, minlength=len(column.values))
                    counter.update({value: int(count) for value, count in zip(column.values, numbers, strict=True) if count})
        return {name: [value for value, _ in _ordered(counter)[:most]] for name, counter in counts.items()}

    def _check_types(self) -> None:
        read = TableReader(self.table, self.columns).schema
        schema = schema_of(read, self.config.transforms, self._made, self.config.text_inputs)
        for name in (*self.config.dense, *self.labels):
            check_numbers(schema.field(name).type, name)
        for feature in self.config.sparse:
            check_ids(schema.field(feature.name).type, feature.name, texts=feature.texts)
        for name in self.slices:
            if pa.types.is_nested(schema.field(name).type):
                raise BadInput(f"column {name} holds {schema.field(name).type}", "name columns of single values in ranking.slices")
        if self.place is not None and not is_place(read.field(self.place).type):
            kind = read.field(self.place).type
            raise BadInput(f"column {self.place} holds {kind}", "name a column of numbers or timestamps in ranking.windows.column")

    def _remarks(self) -> list[str]:
        said = lacking(self.table, self.config.transforms.reads(self.config.features))
        if unjudged := [name for name in self.config.tasks if name not in self.labels]:
            said.append(f"the table has no column {', '.join(unjudged)}: its scores are not judged")
        return said


def refuse_language_fields(task: ScoreTask) -> None:
    """Raises BadInput where a ranker's task has fields that only language models use."""
    defaults = ScoreData(source="any")
    given = [f"data.{name}" for name in _LANGUAGE_DATA if getattr(task.data, name) != getattr(defaults, name)]
    given += ["generation"] * (task.generation != Generation()) + ["engine"] * (task.engine != Engine())
    given += (
        ["metrics"] * bool(task.metrics)
        + ["judge"] * (task.judge is not None)
        + ["ownMetrics"] * bool(task.own_metrics)
        + [name for name, given in (("answer", task.answer), ("choices", task.choices)) if given is not None]
        + ["data.fileType"] * (task.data.file_type not in ("auto", "parquet"))
    )
    if given:
        raise BadInput(f"the model is a ranker, which does not use score.{', score.'.join(given)}", "leave these fields out")


def is_place(kind: pa.DataType) -> bool:
    """Whether values of this type can assign rows to windows."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(numbers or pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_null(kind))


def _rows(table: Table, data: ScoreData) -> int:
    return table.rows if data.limit is None else min(table.rows, data.limit)


def _ordered(counter: Counter[Any]) -> Sequence[tuple[Any, int]]:
    return sorted(counter.items(), key=lambda item: (-item[1], item[0] is None, item[0] or ""))
