"""The engines' answers to the requests of the harness, by the content of the request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.scoring.harness.rows import keys_in
from tuneyard.scoring.harness.unusable import Unusable
from tuneyard.scoring.parts import read_rows
from tuneyard.storage import Store

COLUMNS = ("nll", "greedy", "output_ids")


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """`likelihood`: in nats, and whether all tokens that count are the model's likeliest. `output`: tokens of an answer."""

    likelihood: tuple[float, bool]
    output: Sequence[int]


class Answered:
    """All answers. `requests`: the file of requests; `answers`: that of `collect`, in the same order."""

    def __init__(self, requests: Path, answers: Path) -> None:
        import pyarrow.parquet as pq

        rows = pq.read_table(answers).to_pylist()
        self._of = {
            key: EngineAnswer((-(row["nll"] or 0.0), bool(row["greedy"])), row["output_ids"] or ())
            for key, row in zip(keys_in(requests), rows, strict=True)
        }

    def of(self, key: bytes) -> EngineAnswer:
        """Raises Unusable for a request that was not made before."""
        try:
            return self._of[key]
        except KeyError:
            raise Unusable(
                "the code of the tasks makes other requests than before the engines started",
                "make it repeatable: it may draw by a seed of its own alone",
            ) from None


def collect(store: Store, parts: int, target: Path) -> None:
    """Write the answers of all parts of an output to one file, in order of the rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema: Any = pa.schema([("nll", pa.float64()), ("greedy", pa.bool_()), ("output_ids", pa.list_(pa.int32()))])
    with pq.ParquetWriter(target, schema) as writer:
        for part in range(parts):
            writer.write_table(pa.Table.from_pylist(read_rows(store, part, COLUMNS), schema=schema))
