"""Wide tables on a real S3 server: written, read by ranges, ordered anew, and refused when an object changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.feature_tables import ENTRIES, feature_rows, projected, rows_of
from tests.servers.installed import S3

from tuneyard.api import BadInput
from tuneyard.data.tables import Cursor, TableReader, open_table, read_log, reorder, write_table

ROWS = feature_rows(200, seed=3)
NAMES = ["id", "dense1", "ids2", *ENTRIES]


def test_a_table_on_s3_is_written_read_and_ordered_anew(s3: S3, tmp_path: Path) -> None:
    uri, log = f"s3://{s3.bucket}/wide", tmp_path / "log.jsonl"
    assert len(write_table(uri, ROWS, row_group_rows=20, file_bytes=20_000).files) > 1
    table = open_table(uri)
    reader = TableReader(table, NAMES, batch_rows=33, access_log=log)
    assert rows_of(reader) == projected(ROWS, NAMES)
    assert reader.traffic.requests == len(table.row_groups)
    late = TableReader(table, NAMES, start=Cursor(*table.row_groups[-1]))
    assert rows_of(late) == projected(ROWS[-table.files[-1].group_rows[-1] :], NAMES)
    assert late.traffic.requests == 1
    reorder(table, read_log([log]), f"s3://{s3.bucket}/wide-ordered", flatten=0.5)
    assert rows_of(TableReader(open_table(f"s3://{s3.bucket}/wide-ordered"), NAMES)) == projected(ROWS, NAMES)


def test_an_object_that_changes_between_opening_and_reading_is_refused(s3: S3) -> None:
    uri = f"s3://{s3.bucket}/changing"
    write_table(uri, ROWS[:50])
    table = open_table(uri)
    folder = s3.root / s3.bucket / "changing"
    (folder / "part-00000.parquet").unlink()
    write_table(uri, ROWS[50:90])
    with pytest.raises(BadInput, match="changed while it was being used"):
        rows_of(TableReader(table, ["id"]))
