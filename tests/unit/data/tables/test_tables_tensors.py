"""Batches as tensors are those of their Arrow batches, and views of row groups."""

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tuneyard.data.tables import Cursor, Table, TableReader, TensorBatches, flat, open_table, write_table

FEATURES = ["age", "clicks", "weights[3]", "maybe"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("table") / "log"
    rows = (
        {
            "age": n,
            "clicks": [n] * (n % 4),
            "weights": {"3": n / 8} if n % 3 else {"5": 1.0},
            "maybe": None if n < 500 and n % 7 == 0 else n,
        }
        for n in range(1000)
    )
    write_table(str(folder), rows, row_group_rows=300)
    return open_table(str(folder))


def lists(tensors: tuple[Any, Any]) -> list[Any]:
    """Of a feature as Python's own lists: rows of a list feature, (value, there) of a dense one."""
    values, second = tensors
    if second is not None and second.dtype != torch.bool:
        return [values[start:end].tolist() for start, end in pairwise(second.tolist())]
    there = [True] * len(values) if second is None else second.tolist()
    return list(zip(values.tolist(), there, strict=True))


@pytest.mark.parametrize("batch_rows", [1, 64, 128, 300, 301, 999, 5000, None])
@pytest.mark.parametrize("skipped", [0, 3])
def test_tensors_are_those_of_the_batches(table: Table, batch_rows: int | None, skipped: int) -> None:
    first = TableReader(table, FEATURES, batch_rows=batch_rows)
    list(islice(first, skipped))
    start = Cursor.from_dict(first.cursor.to_dict())
    batches = list(TableReader(table, FEATURES, batch_rows=batch_rows, start=start))
    reader = TableReader(table, FEATURES, batch_rows=batch_rows, start=start)
    found = list(TensorBatches(reader))
    assert len(found) == len(batches)
    for tensors, batch in zip(found, batches, strict=True):
        assert list(tensors) == FEATURES
        assert [lists(tensors[name]) for name in FEATURES] == [lists(flat(batch, name).tensors()) for name in FEATURES]
    assert reader.cursor == Cursor(len(table.files), 0, 0, table.identity)


def test_a_batch_inside_a_row_group_is_a_view_of_it(table: Table) -> None:
    first, second = islice(TensorBatches(TableReader(table, ["age", "clicks"], batch_rows=100)), 2)
    values = first["age"][0]
    assert second["age"][0].data_ptr() == values.data_ptr() + 100 * values.element_size()
    assert second["clicks"][0].data_ptr() == first["clicks"][0].data_ptr() + first["clicks"][0].nbytes


def test_the_cursor_goes_on_behind_the_last_batch(table: Table) -> None:
    reader = TableReader(table, ["age"], batch_rows=170)
    seen = [batch["age"][0] for batch in islice(TensorBatches(reader), 3)]
    rest = TensorBatches(TableReader(table, ["age"], batch_rows=170, start=reader.cursor))
    assert torch.cat([*seen, *(batch["age"][0] for batch in rest)]).tolist() == list(range(1000))


def test_an_embedding_bag_takes_them(tmp_path: Path) -> None:
    write_table(str(tmp_path / "log"), ({"ids": [n % 5] * (n % 3)} for n in range(64)))
    bag = torch.nn.EmbeddingBag(5, 2, mode="sum", include_last_offset=True)
    for batch in TensorBatches(TableReader(open_table(str(tmp_path / "log")), ["ids"], batch_rows=16)):
        assert bag(*batch["ids"]).shape == (16, 2)
