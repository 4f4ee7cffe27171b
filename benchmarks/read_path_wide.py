"""A tenth of the features of a wide table as tensors, by each reader, for read_path.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from reading_rounds import Way
from torch.utils.data import IterableDataset
from wide_tables import BATCH_ROWS, jobs, write_wide

from tuneyard.data.tables import Cursor, Table, TableReader, TensorBatches, flat, open_table

_ROWS = 32_768
_MDS_ROWS = 4_096
_TEXT = """\
100 of 1,000 features (dense floats and id lists) of a table of {rows:,} rows, {size:.0f} MB of Parquet, in the order of the
file, as batches of {batch} rows of torch tensors: values and presence of a dense feature, values and offsets of a list. Arrow
batches of the peers become tensors by `tuneyard.data.tables.flat`, Tuneyard's by `TensorBatches`, which does the same once for
each row group and cuts views of it; the peers' readers hand out batches alone. MDS has rows, and no projection:
{mds:,} rows of all 1,000 features, and of a table of the 100 alone, which is another table; absent floats are NaN, lists are
bytes."""


def tensors_of(batch: pa.RecordBatch, features: Sequence[str]) -> list[Any]:
    return [flat(batch, feature).tensors() for feature in features]


def of_tables(tables: Iterable[pa.Table], features: Sequence[str]) -> Iterator[list[Any]]:
    for table in tables:
        yield tensors_of(table.combine_chunks().to_batches()[0], features)


def count(tensors: list[Any]) -> int:
    """Rows of a batch: list features have an offset more."""
    values, second = tensors[0]
    return len(values) if second is None or len(second) == len(values) else len(second) - 1


def arrow_ways(table: Table, features: Sequence[str]) -> list[Way]:
    import datasets
    from torchdata.stateful_dataloader import StatefulDataLoader

    rows = table.rows
    files = [file.file.path for file in table.files]

    def ours(state: Any) -> Iterator[list[Any]]:
        start = None if state is None else Cursor.from_dict(state)
        reader = TableReader(open_table(table.uri), features, batch_rows=BATCH_ROWS, start=start)
        return (list(batch.values()) for batch in TensorBatches(reader))

    def our_state(fraction: float) -> Any:
        reader = TableReader(open_table(table.uri), features, batch_rows=BATCH_ROWS)
        for _ in islice(reader, int(rows * fraction) // BATCH_ROWS):
            pass
        return reader.cursor.to_dict()

    def streaming() -> Any:
        read = datasets.load_dataset("parquet", data_files=files, columns=list(features), streaming=True, split="train")
        return read.with_format("arrow")

    def stateful(state: Any) -> Any:
        loader = StatefulDataLoader(_Batched(streaming()), batch_size=None, collate_fn=_as_it_is)
        if state is not None:
            loader.load_state_dict(state)
        return loader

    def stateful_state(fraction: float) -> Any:
        loader = stateful(None)
        for _ in islice(loader, max(1, int(rows * fraction) // BATCH_ROWS)):
            pass
        return loader.state_dict()

    return [
        Way("Tuneyard", rows, ours, our_state, count),
        Way("datasets, streaming", rows, lambda _state: of_tables(streaming().iter(BATCH_ROWS), features), None, count),
        Way("datasets + StatefulDataLoader", rows, lambda state: of_tables(stateful(state), features), stateful_state, count),
    ]


class _Batched(IterableDataset[pa.Table]):
    """Tables of BATCH_ROWS rows of streamed `datasets`, with their state."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[pa.Table]:
        yield from self._rows.iter(BATCH_ROWS)

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = self._rows.state_dict()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rows.load_state_dict(state)


def _as_it_is(batch: Any) -> Any:
    return batch


def write_mds(folder: Path, table: Table, features: Sequence[str]) -> None:
    """The first rows of the table, row by row."""
    from streaming import MDSWriter

    head = next(pq.ParquetFile(table.files[0].file.path).iter_batches(_MDS_ROWS, columns=list(features)))
    kinds = {field.name: "bytes" if pa.types.is_list(field.type) else "float32" for field in head.schema}
    columns = {name: head.column(name).to_pylist() for name in kinds}
    with MDSWriter(out=str(folder), columns=kinds) as writer:
        for row in range(head.num_rows):
            writer.write({name: _sample(columns[name][row], kind) for name, kind in kinds.items()})


def _sample(value: Any, kind: str) -> Any:
    if kind == "float32":
        return np.float32(np.nan if value is None else value)
    return np.asarray(value or [], dtype=np.int64).tobytes()  # MDS refuses an array without elements


def mds_way(name: str, folder: Path, features: Sequence[str]) -> Way:
    from streaming import StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    def dataset() -> Any:
        clean_stale_shared_memory()
        return StreamingDataset(local=str(folder), shuffle=False, batch_size=BATCH_ROWS)

    def batches(state: Any) -> Iterator[list[Any]]:
        loader = StreamingDataLoader(dataset(), batch_size=BATCH_ROWS, collate_fn=lambda rows: _collated(rows, features))
        if state is not None:
            loader.load_state_dict(state)
        return iter(loader)

    def state(fraction: float) -> Any:
        rows = dataset()
        next(iter(rows))
        return rows.state_dict(num_samples=int(_MDS_ROWS * fraction) // BATCH_ROWS * BATCH_ROWS, from_beginning=True)

    return Way(name, _MDS_ROWS, batches, state, count)


def _collated(rows: Sequence[dict[str, Any]], features: Sequence[str]) -> list[Any]:
    import torch

    found: list[Any] = []
    for feature in features:
        column = [row[feature] for row in rows]
        if isinstance(column[0], bytes):
            offsets = np.cumsum([0, *(len(ids) // 8 for ids in column)])
            found.append((torch.from_numpy(np.frombuffer(bytearray(b"".join(column)), dtype=np.int64)), torch.from_numpy(offsets)))
        else:
            values = np.asarray(column, dtype=np.float32)
            present = ~np.isnan(values)
            found.append((torch.from_numpy(np.where(present, values, np.float32(0))), torch.from_numpy(present)))
    return found


def ray_way(table: Table, features: Sequence[str]) -> Way:
    def batches(_state: Any) -> Iterator[list[Any]]:
        import ray

        rows = ray.data.read_parquet(table.uri).select_columns(list(features))
        return of_tables(rows.iter_batches(batch_size=BATCH_ROWS, batch_format="pyarrow"), features)

    return Way("Ray Data, two CPUs", table.rows, batches, None, count)


def wide_table(folder: Path) -> tuple[Table, list[str]]:
    """The table and the features that are read, a dense one first; made where they are not there, as MDS too."""
    features = sorted(jobs(10, 1)[0])
    home = folder / "wide"
    table = open_table(str(home)) if home.exists() else write_wide(home, _ROWS)
    for name, wanted in (("mds-all", table.schema.names), ("mds-wanted", features)):
        if not (folder / name).exists():
            write_mds(folder / name, table, wanted)
    return table, features


def wide_ways(folder: Path, table: Table, features: Sequence[str]) -> list[Way]:
    """All but Ray Data."""
    return [
        *arrow_ways(table, features),
        mds_way("MosaicML Streaming, all features", folder / "mds-all", features),
        mds_way("MosaicML Streaming, a table of the 100", folder / "mds-wanted", features),
    ]


def about(table: Table) -> str:
    """The heading of the page's section."""
    return _TEXT.format(rows=table.rows, size=table.size_bytes / 1e6, batch=BATCH_ROWS, mds=_MDS_ROWS)
