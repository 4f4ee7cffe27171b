"""The output of a score task: Parquet parts. Each part is a fixed range of input rows, written once and atomically.

The footer of a part holds the sums of its rows (see `metrics`), so that parts of earlier attempts are counted without reading their rows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tuneyard.api import JobFailed, ScoreTask
from tuneyard.api.score import MetricName
from tuneyard.data.row_hash import row_hash
from tuneyard.data.score_rows import ScoreRow
from tuneyard.metrics import metric_named, needing
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.rows import ScoredRow
from tuneyard.storage import AlreadyExists, Store

AnySums = TypeVar("AnySums")
FOLDER = "parts"
_FOOTER_KEY = b"tuneyard.sums"
ANSWER_COLUMNS = {
    "extracted": ("string", False),
    "samples": ("string", True),
    "choice_logs": ("float64", True),
    "greedy": ("bool_", False),
    "output_ids": ("int32", True),
}
"""Columns of tasks with `answer`, with several samples, with `choices`, and with tasks of lm-evaluation-harness: type in Arrow, and whether
each value is a list of it."""


@dataclass(frozen=True)
class Layout:
    """The division of rows into parts: part i holds rows [i * rows_per_part, (i + 1) * rows_per_part)."""

    rows: int
    rows_per_part: int

    @classmethod
    def choose(cls, rows: int, rows_per_part: int, instances: int) -> Layout:
        """Parts of `rows_per_part` rows; smaller ones if needed for two parts per engine."""
        return cls(rows, min(rows_per_part, max(1, -(-rows // (2 * instances)))) if instances > 1 else rows_per_part)

    @property
    def parts(self) -> int:
        return -(-self.rows // self.rows_per_part)

    def bounds(self, part: int) -> tuple[int, int]:
        """[start, stop) of the rows of a part."""
        start = part * self.rows_per_part
        return start, min(start + self.rows_per_part, self.rows)


def part_path(part: int) -> str:
    return f"{FOLDER}/part-{part:05d}.parquet"


def committed_parts(store: Store) -> set[int]:
    """Numbers of the parts in the store."""
    names = [file.path.rsplit("/", 1)[-1] for file in store.list(FOLDER)]
    return {int(name[5:-8]) for name in names if name.startswith("part-") and name.endswith(".parquet")}


def commit(store: Store, part: int, content: bytes) -> bool:
    """Write a part if it does not exist. False: another attempt has written it, and its part is kept."""
    try:
        store.create(part_path(part), content)
    except AlreadyExists:
        return False
    return True


def encoded(table: Any, sums: dict[str, Any]) -> bytes:
    """The Parquet file of a part: a `pyarrow.Table`, and the sums of its rows as JSON in the footer."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({_FOOTER_KEY: json.dumps(sums).encode()}), buffer, compression="zstd")
    return buffer.getvalue()


def read_sums(store: Store, part: int) -> Sums:
    """The sums of a committed part. Raises JobFailed for a foreign file."""
    return read_footer(store, part, Sums.from_dict)


def read_footer(store: Store, part: int, of: Callable[[Any], AnySums]) -> AnySums:
    """The sums of a committed part. `of`: builds them from their JSON. Raises JobFailed for a foreign file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(io.BytesIO(store.get(part_path(part)))).metadata or {}
        return of(json.loads(metadata[_FOOTER_KEY]))
    except (pa.ArrowInvalid, KeyError) as error:
        raise JobFailed(
            f"{store.url(part_path(part))} is not a part that this version of Tuneyard wrote ({error})", "remove it; then try again"
        ) from error


def read_rows(store: Store, part: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a committed part with the existing ones of `columns`; empty where the part is not committed."""
    import pyarrow.parquet as pq

    if not store.exists(part_path(part)):
        return []
    file = pq.ParquetFile(io.BytesIO(store.get(part_path(part))))
    found: list[dict[str, Any]] = file.read(columns=[name for name in columns if name in file.schema_arrow.names]).to_pylist()
    return found


def output_name(column: str, added: Collection[str]) -> str:
    """The name of a kept column in the output. `added`: columns that scoring adds."""
    return column if column not in added else f"input_{column}"


def names_in_output(column: str, added: Collection[str]) -> list[str]:
    """The names that a kept column may have in an output; the first one that is there is the column's (see `_output_names`)."""
    name = output_name(column, added)
    return [name] if name == column else [f"input_{name}", name]


def _output_names(columns: Sequence[str], added: Collection[str]) -> list[str]:
    """Names of all kept columns in the output. Where the data have a column that is called like another's new name, `input_` is put before
    that name once more, so that none is lost."""
    names: list[str] = []
    for column in columns:
        name = output_name(column, added)
        while name != column and name in columns:
            name = f"input_{name}"
        names.append(name)
    return names


def added_names(metrics: Sequence[MetricName], score: Mapping[str, Any] | None = None) -> set[str]:
    """The names of all columns that scoring adds. `score`: `answer`, `choices`, `generation` and `data` of the score task as in its
    JobSpec, or in plan.json; what cannot be read in it is left out."""
    return {*Columns(None, tuple(metrics), tuple(_columns_of(score or {})))._added([]), "row_hash"}


def answer_columns(task: ScoreTask) -> list[str]:
    """Those of ANSWER_COLUMNS that the output of a task has."""
    return _columns_of(task.model_dump(by_alias=True, include={"answer", "choices", "generation", "data"}))


def _columns_of(score: Mapping[str, Any]) -> list[str]:
    generation = score.get("generation")
    samples = generation.get("samples") if isinstance(generation, Mapping) else None
    several = isinstance(samples, int) and samples > 1
    data = score.get("data")
    harness = isinstance(data, Mapping) and bool(data.get("lmEval"))
    asked = {"extracted": bool(score.get("answer")), "samples": several, "choice_logs": bool(score.get("choices"))}
    asked |= {"greedy": harness, "output_ids": harness}
    return [name for name in ANSWER_COLUMNS if asked[name]]


@dataclass(frozen=True)
class Columns:
    """Columns of the output: kept input columns with their Arrow types, then columns that scoring adds."""

    kept: Any
    """pyarrow.Schema"""
    metrics: tuple[MetricName, ...]
    answers: tuple[str, ...] = ()
    """Those of ANSWER_COLUMNS that the task has."""

    @classmethod
    def infer(cls, sample: Sequence[ScoreRow], metrics: Sequence[MetricName], answers: Sequence[str] = ()) -> Columns:
        """Types of kept columns from the first rows, as one schema for all parts; JSON text where Arrow has no common type."""
        import pyarrow as pa

        names = dict.fromkeys(name for row in sample for name in row["kept"])
        kept = pa.schema([(name, _type_of([row["kept"].get(name) for row in sample])) for name in names])
        return cls(kept, tuple(metrics), tuple(answers))

    def encode(self, rows: Sequence[ScoreRow], scored: Sequence[ScoredRow], sums: Sums) -> bytes:
        """A Parquet file of scored rows, in the order given."""
        import pyarrow as pa

        added = self._added(scored) | {"row_hash": pa.array([row_hash(row) for row in rows], type=pa.int64())}
        arrays: dict[str, Any] = {"row": added.pop("row")}
        for kept, name in zip(self.kept, _output_names(self.kept.names, {"row", *added}), strict=True):
            arrays[name] = _array([row["kept"].get(kept.name) for row in rows], kept.type)
        return encoded(pa.table(arrays | added), sums.to_dict())

    def _added(self, scored: Sequence[ScoredRow]) -> dict[str, Any]:
        import pyarrow as pa

        types: dict[str, Any] = {
            "row": pa.int64(),
            "output": pa.string(),
            "reasoning": pa.string(),
            "error": pa.string(),
            "finish_reason": pa.string(),
            "input_tokens": pa.int32(),
            "output_tokens": pa.int32(),
            "latency_s": pa.float64(),
        }
        metrics = [metric_named(name) for name in self.metrics]
        if needing("likelihood", metrics) or "greedy" in self.answers:
            types |= {"nll": pa.float64(), "reference_tokens": pa.int32()}
        types |= {name: pa.list_(getattr(pa, kind)()) if listed else getattr(pa, kind)() for name, (kind, listed) in self._of_answers()}
        arrays = {name: pa.array([getattr(row, name) for row in scored], type=kind) for name, kind in types.items()}
        per_row = [metric.name for metric in metrics if metric.per_row is not None]
        arrays |= {name: pa.array([row.values.get(name) for row in scored], type=pa.float64()) for name in per_row}
        for metric in metrics:
            if metric.sums_column is not None:
                kind = pa.struct([(name, pa.float64()) for name in metric.row_sums])
                arrays[metric.sums_column] = pa.array([row.sums.get(metric.name) for row in scored], type=kind)
        return arrays

    def _of_answers(self) -> Iterator[tuple[str, tuple[str, bool]]]:
        yield from ((name, kind) for name, kind in ANSWER_COLUMNS.items() if name in self.answers)


def _type_of(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    try:
        inferred = pa.array(values).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.string()
    return pa.string() if pa.types.is_null(inferred) else inferred


def _array(values: Sequence[Any], kind: Any) -> Any:
    """Values as an Arrow array of `kind`; as JSON text where a later row does not fit the type of the first rows."""
    import pyarrow as pa

    try:
        return pa.array(values, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array(
            [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False, default=str) for v in values], type=pa.string()
        )
