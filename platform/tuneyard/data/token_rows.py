"""Tokens on disk while a data set is prepared, then written as Arrow files of rows. Only lengths and hashes stay in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tuneyard.data.content import FILE, sample_hash
from tuneyard.data.tokens import Encoded, Ints

_BATCH_TOKENS = 1 << 20


class TokenFiles:
    """Flat files of tokens and labels. Item i has the tokens [starts[i], starts[i + 1])."""

    def __init__(self, folder: Path, name: str) -> None:
        self._paths = folder / f"{name}.ids.tmp", folder / f"{name}.labels.tmp"
        self._ids, self._labels = (path.open("wb") for path in self._paths)
        self._lengths: list[npt.NDArray[np.int64]] = []
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._splits: list[npt.NDArray[np.int64]] = []
        self._digests: list[npt.NDArray[np.uint64]] = []

    def append(self, encoded: Encoded) -> None:
        if not encoded.ids:
            return
        self._ids.write(np.concatenate(encoded.ids).tobytes())
        self._labels.write(np.concatenate(encoded.labels).tobytes())
        self._lengths.append(np.fromiter((len(ids) for ids in encoded.ids), dtype=np.int64))
        self._hashes.append(np.asarray(encoded.hashes, dtype=np.uint64))
        self._splits.append(np.asarray(encoded.splits, dtype=np.int64))
        self._digests.append(np.fromiter(map(sample_hash, encoded.ids, encoded.labels), dtype=np.uint64))

    def finish(self) -> None:
        """Close the files. `lengths`, `hashes`, `splits` and `write` are valid after this call."""
        self._ids.close()
        self._labels.close()
        self.lengths = np.concatenate(self._lengths) if self._lengths else np.zeros(0, dtype=np.int64)
        self.hashes = np.concatenate(self._hashes) if self._hashes else np.zeros(0, dtype=np.uint64)
        self.splits = np.concatenate(self._splits) if self._splits else np.zeros(0, dtype=np.int64)
        self._starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.lengths)])

    def write_content(self, folder: Path, chosen: npt.NDArray[np.int64]) -> None:
        """Write the hashes of the chosen items, for `Content`."""
        digests = np.concatenate(self._digests)
        np.save(folder / FILE, np.stack([self.hashes[chosen], digests[chosen]]))

    def discard(self) -> None:
        for path in self._paths:
            path.unlink(missing_ok=True)

    def write(self, path: Path, rows: Sequence[Sequence[int]], *, packed: bool) -> int:
        """Write rows (each a list of items) as an Arrow stream that `datasets` maps into memory. Returns the tokens that carry loss."""
        # Plain arrays over the mapped files: slicing a memmap takes ten times as long.
        ids, labels = (np.asarray(np.memmap(p, np.int32, "r")) if p.stat().st_size else np.zeros(0, np.int32) for p in self._paths)
        schema = _schema(packed)
        with_loss, start = 0, 0
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            while start < len(rows):
                end, tokens = start, 0
                while end < len(rows) and (tokens < _BATCH_TOKENS or end == start):
                    tokens += int(sum(self.lengths[item] for item in rows[end]))
                    end += 1
                with_loss += self._write_batch(writer, schema, rows[start:end], ids, labels)
                start = end
        return with_loss

    def _write_batch(self, writer: Any, schema: Any, rows: Sequence[Sequence[int]], ids: Ints, labels: Ints) -> int:
        items = [item for row in rows for item in row]
        slices = [slice(self._starts[item], self._starts[item + 1]) for item in items]
        flat_labels = np.concatenate([labels[s] for s in slices])
        lengths = np.asarray([sum(self.lengths[item] for item in row) for row in rows], dtype=np.int32)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        flat = {"input_ids": np.concatenate([ids[s] for s in slices]), "labels": flat_labels}
        if "position_ids" in schema.names:
            flat["position_ids"] = np.concatenate([np.arange(self.lengths[item], dtype=np.int32) for item in items])
        columns = {name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in flat.items()}
        columns["length"] = pa.array(lengths)
        writer.write_batch(pa.record_batch([columns[name] for name in schema.names], schema=schema))
        return int((flat_labels >= 0).sum())


def _schema(packed: bool) -> Any:
    tokens = pa.list_(pa.int32())
    fields = [("input_ids", tokens), ("labels", tokens), *([("position_ids", tokens)] if packed else []), ("length", pa.int32())]
    return pa.schema(fields)
