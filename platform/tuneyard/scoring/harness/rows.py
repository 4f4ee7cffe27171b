"""The requests of the harness as rows: their columns in the file of requests, their keys, and the requests to an engine.

The file is Parquet in the folder `requests` of the task's output, named by the hash of its content.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from tuneyard.data.score_rows import ScoreRow
from tuneyard.scoring.exchange import Asked, Evaluate, Generate, Sampling
from tuneyard.scoring.prompts import Likelihood

PROMPT, REFERENCE = "prompt", "continuation"
TOKENS = "ids"
"""The column of tokens. Parts leave it out: the file of requests has it."""
NO_CONTEXT = "(no context)"
_ROW_GROUP = 1024


@dataclass(frozen=True, slots=True)
class HarnessRequest:
    """One request. `ids`: all tokens. `counted`: the last tokens whose likelihood counts; 0: the engine generates. `sampling`: then JSON of
    an `exchange.Sampling`. `occurrence`: numbers equal requests whose answers are drawn. `prompt`, `continuation`: for people."""

    ids: array[int]
    counted: int
    sampling: str = ""
    occurrence: int = 0
    prompt: str = ""
    continuation: str | None = None

    @property
    def key(self) -> bytes:
        """A hash of what its answer depends on."""
        content = json.dumps([self.counted, self.sampling, self.occurrence]).encode()
        return hashlib.sha256(content + b"\n" + self.ids.tobytes()).digest()


@dataclass
class Recorded:
    """The different requests of some tasks, in order of their first use."""

    places: dict[bytes, int] = field(default_factory=dict)
    """Key -> number of the row."""
    requests: list[HarnessRequest] = field(default_factory=list)
    asked_by: list[tuple[str, int]] = field(default_factory=list)
    """Of each, the task and the number of the document that asked first."""
    hashes: dict[str, Any] = field(default_factory=dict)
    """Task -> hash of all of its requests in order."""

    def add(self, request: HarnessRequest, task: str, document: int) -> None:
        key = request.key
        self.hashes.setdefault(task, hashlib.sha256()).update(key)
        if key not in self.places:
            self.places[key] = len(self.requests)
            self.requests.append(request)
            self.asked_by.append((task, document))

    @property
    def contents(self) -> dict[str, str]:
        """Task -> hash of its requests."""
        return {task: digest.hexdigest()[:16] for task, digest in self.hashes.items()}

    def write(self, path: Path) -> None:
        """As Parquet."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        offsets = [0, *accumulate(len(request.ids) for request in self.requests)]
        flat = b"".join(request.ids.tobytes() for request in self.requests)
        tokens = pa.ListArray.from_arrays(
            pa.array(offsets, type=pa.int32()), pa.Array.from_buffers(pa.int32(), offsets[-1], [None, pa.py_buffer(flat)])
        )
        columns = {
            "task": pa.array([task for task, _ in self.asked_by]),
            "doc": pa.array([document for _, document in self.asked_by], type=pa.int64()),
            PROMPT: pa.array([request.prompt for request in self.requests], type=pa.string()),
            REFERENCE: pa.array([request.continuation for request in self.requests], type=pa.string()),
            "counted": pa.array([request.counted for request in self.requests], type=pa.int32()),
            "sampling": pa.array([request.sampling for request in self.requests], type=pa.string()),
            "occurrence": pa.array([request.occurrence for request in self.requests], type=pa.int32()),
            TOKENS: tokens,
        }
        pq.write_table(pa.table(columns), path, row_group_size=_ROW_GROUP, compression="zstd")


def keys_in(path: Path) -> list[bytes]:
    """The key of each row of a file of requests."""
    import pyarrow.parquet as pq

    found = []
    for batch in pq.ParquetFile(path).iter_batches(columns=[TOKENS, "counted", "sampling", "occurrence"]):
        found += [
            HarnessRequest(array("i", row[TOKENS]), row["counted"], row["sampling"], row["occurrence"]).key for row in batch.to_pylist()
        ]
    return found


def asked_of(key: Any, columns: Mapping[str, Any], seed: int | None) -> Asked:
    """The request to an engine. `columns`: of its row."""
    ids, counted = list(columns[TOKENS]), columns["counted"]
    if counted:
        return Evaluate(key, Likelihood(ids, [False] * (len(ids) - counted) + [True] * counted), greedy=True)
    return Generate(key, ids, seed, Sampling(**json.loads(columns["sampling"])))


def without_tokens(rows: Sequence[ScoreRow]) -> list[ScoreRow]:
    """The same rows without the column that parts leave out."""
    return [{**row, "kept": {name: value for name, value in row["kept"].items() if name != TOKENS}} for row in rows]
