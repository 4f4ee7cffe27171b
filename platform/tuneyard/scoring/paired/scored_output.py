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
        except (NotFound, NotADirectoryError, ValueError) as error:
            raise _no_output(store, uri) from error
        if "generation" not in plan.get("settings", {}):
            raise BadInput(f"{uri} holds scores of a ranker, and only answers of language models are compared", "compare its figures")
        if plan["version"] != FORMAT:
            raise BadInput(f"{uri} was scored by another version of Tuneyard", "score the rows again, in another output")
        layout = Layout(int(plan["settings"]["rows"]), int(plan["rowsPerPart"]))
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
        """The existing ones of `columns`, as one `pyarrow.Table` of each part, with the number of the part in the column `part`."""
        for part in range(self.layout.parts):
            table = self.read(part, columns)
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
            raise BadInput(
                f"{where} is damaged: {error}", "remove it, and resume the task with --resume: only its rows are scored"
            ) from error


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
