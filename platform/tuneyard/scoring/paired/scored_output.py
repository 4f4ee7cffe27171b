"""The output of a finished score task, opened for a comparison, and two of them read side by side."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuneyard.api import BadInput
from tuneyard.scoring.parts import FOLDER, Layout, committed_parts, part_path
from tuneyard.scoring.plan import FORMAT, PLAN, identity
from tuneyard.storage import NotFound, Store, open_store

PART = "part"
"""Name of a column that says from which part a row comes."""
_TEXTS = ("row_hash", "error")
"""Columns that a comparison reads, and that may hold texts."""
_MOST_NAMED = 20


@dataclass(frozen=True)
class ScoredOutput:
    """`settings`: of its plan.json. Parts are complete."""

    store: Store
    settings: Mapping[str, Any]
    layout: Layout
    files: str
    """Identity of its files when it was opened."""

    @classmethod
    def open(cls, uri: str) -> ScoredOutput:
        """`uri`: the folder of a score task. Raises BadInput unless it holds all parts of a language model's score task."""
        store = open_store(uri)
        try:
            plan = json.loads(store.get(PLAN))
        except (NotFound, NotADirectoryError) as error:
            raise _no_output(store, uri) from error
        except (ValueError, RecursionError) as error:
            raise _damaged_plan(store, str(error)) from error
        layout = _layout(plan, store, uri)
        found = len(committed_parts(store))
        if found < layout.parts:
            raise BadInput(f"{uri} holds {found} of {layout.parts} parts: the task has not finished", "resume it with --resume")
        return cls(store, plan["settings"], layout, identity(store.url(FOLDER)))

    def check_unchanged(self) -> None:
        """Raises BadInput where a part was written anew since the output was opened."""
        if identity(self.store.url(FOLDER)) != self.files:
            raise _rewritten(self.store.uri)

    @property
    def metrics(self) -> list[str]:
        """Names of its metrics."""
        return list(self.settings["metrics"])

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """`columns`, as one `pyarrow.Table` of each part, with the number of the part in the column `part`.

        Raises BadInput where a part lacks one of them, or its rows are not in order.
        """
        for part in range(self.layout.parts):
            table = self.read(part, columns)
            wrong = _wrong_in(table, columns)
            if wrong is not None:
                raise _damaged_part(self.store.url(part_path(part)), wrong)
            yield table.append_column(PART, [np.full(table.num_rows, part, np.int64)])

    def read(self, part: int, columns: Sequence[str]) -> Any:
        """The existing ones of `columns` of a part. Raises BadInput where the part is damaged, or was removed since."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        where = self.store.url(part_path(part))
        try:
            file = pq.ParquetFile(io.BytesIO(self.store.get(part_path(part))))
            return file.read(columns=[name for name in columns if name in file.schema_arrow.names])
        except NotFound as error:
            raise _rewritten(self.store.uri) from error
        except (pa.ArrowException, OSError) as error:
            raise _damaged_part(where, str(error)) from error


def _layout(plan: Any, store: Store, uri: str) -> Layout:
    """The layout that a plan.json has. Raises BadInput where it is no plan of a language model's score task of this version."""
    if not isinstance(plan, dict):
        raise _damaged_plan(store, "it is no object")
    settings, version = plan.get("settings"), plan.get("version")
    if isinstance(settings, dict) and "generation" not in settings:
        raise BadInput(f"{uri} holds scores of a ranker, and only answers of language models are compared", "compare its figures")
    if version != FORMAT:
        raise BadInput(f"{uri} was scored by another version of Tuneyard", "score the rows again, in another output")
    if not isinstance(settings, dict):
        raise _damaged_plan(store, "settings is no object")
    rows, rows_per_part, metrics = settings.get("rows"), plan.get("rowsPerPart"), settings.get("metrics")
    if type(rows) is not int or rows < 0 or type(rows_per_part) is not int or rows_per_part < 1:
        raise _damaged_plan(store, "rows and rowsPerPart are no numbers of rows")
    if not isinstance(metrics, list) or not all(isinstance(name, str) for name in metrics) or not isinstance(settings.get("data"), dict):
        raise _damaged_plan(store, "metrics is no list of names, or data is no object")
    return Layout(rows, rows_per_part)


def _wrong_in(table: Any, columns: Sequence[str]) -> str | None:
    """What is wrong with the columns of a part. None: nothing."""
    import pyarrow as pa

    missing = [name for name in columns if name not in table.column_names]
    if missing:
        return f"it has no column {', '.join(missing)}"
    kinds = {name: table[name].type for name in columns if name not in _TEXTS}
    wrong = [name for name, kind in kinds.items() if pa.types.is_list(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)]
    if wrong:
        return f"column {', '.join(wrong)} holds no numbers"
    if "row" not in table.column_names:
        return None
    rows = table["row"]
    if not pa.types.is_integer(rows.type) or rows.null_count or not len(rows):
        return "column row does not number its rows"
    return None if (np.diff(rows.to_numpy().astype(np.int64)) > 0).all() else "its rows are not in order"


def _damaged_plan(store: Store, why: str) -> BadInput:
    return BadInput(f"{store.url(PLAN)} is damaged: {why}", "score the rows again, in another output")


def _damaged_part(where: str, why: str) -> BadInput:
    return BadInput(f"{where} is damaged: {why}", "remove it, and resume the task with --resume: only its rows are scored")


def _rewritten(uri: str) -> BadInput:
    return BadInput(f"{uri} was written anew while it was compared", "compare again once that task has ended")


def joined(first: Iterator[Any], other: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """The rows of the two that have the same number, as pairs of tables of equal length. Both are in the order of `row`.

    Raises BadInput where a row has another prompt, or other references, in the two.
    """
    left, right = next(first, None), next(other, None)
    while left is not None and right is not None:
        rows, others = left["row"].to_numpy(), right["row"].to_numpy()
        upto = min(rows[-1], others[-1])
        taken, taken_other = int(np.searchsorted(rows, upto, "right")), int(np.searchsorted(others, upto, "right"))
        _, places, other_places = np.intersect1d(rows[:taken], others[:taken_other], assume_unique=True, return_indices=True)
        if len(places):
            pair = left.take(places), right.take(other_places)
            _check_same(*pair)
            yield pair
        left = left.slice(taken) if taken < len(rows) else next(first, None)
        right = right.slice(taken_other) if taken_other < len(others) else next(other, None)


def _check_same(left: Any, right: Any) -> None:
    different = left["row_hash"].to_numpy() != right["row_hash"].to_numpy()
    if different.any():
        row = left["row"].to_numpy()[different][0]
        raise BadInput(
            f"row {row} has another prompt or another reference in the two: they were scored on different data",
            "score the same data, with the same data.prompt and data.reference, by both models",
        )


def _no_output(store: Store, uri: str) -> BadInput:
    tasks = sorted({file.path.split("/")[0] for file in store.list() if file.path.count("/") == 1 and file.path.endswith(f"/{PLAN}")})
    if tasks:
        named = ", ".join(f"{uri.rstrip('/')}/{task}" for task in tasks[:_MOST_NAMED])
        return BadInput(f"{uri} is the output of a whole job", f"name a score task in it: {named}")
    what = (
        f"the folder {FOLDER}'s parent" if uri.rstrip("/").endswith(FOLDER) else "the folder that `tuneyard run --out` wrote for the task"
    )
    return BadInput(f"{uri} holds no output of a score task", f"give {what}, such as runs/first/judge")
