"""The same samples from S3 and HDFS (real servers), and what is said when there is no access."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.models import write_chats
from tests.servers import S3

from tuneyard.api import BadInput, ScoreData
from tuneyard.data import Prepared, ScoreRows, inspect, open_dataset
from tuneyard.data.access import filesystem
from tuneyard.data.sources import locate

Make = Callable[..., Prepared]


@pytest.fixture
def bucket(s3: S3) -> Any:
    """The folder behind s3://tests/data, and no file system remembered from another test's environment."""
    filesystem.cache_clear()
    folder = s3.root / s3.bucket / "data"
    folder.mkdir(exist_ok=True)
    yield folder
    filesystem.cache_clear()


def test_training_data_from_s3(bucket: Path, tmp_path: Path, make: Make) -> None:
    local = make(write_chats(tmp_path / "a.jsonl"), pack=True)
    write_chats(bucket / "a.jsonl")
    remote = make("s3://tests/data/a.jsonl", pack=True)
    assert remote.train[:] == local.train[:]
    assert not remote.cached
    assert make("s3://tests/data/a.jsonl", pack=True).cached
    write_chats(bucket / "a.jsonl", count=65)
    assert not make("s3://tests/data/a.jsonl", pack=True).cached


def test_folders_and_globs_on_s3(bucket: Path) -> None:
    (bucket / "many").mkdir(exist_ok=True)
    for name in ("b", "a"):
        pq.write_table(pa.table({"text": [name] * 3}), bucket / "many" / f"{name}.parquet")
    expected = ["s3://tests/data/many/a.parquet", "s3://tests/data/many/b.parquet"]
    assert [file.uri for file in locate("s3://tests/data/many").files] == expected
    assert [file.uri for file in locate("s3://tests/data/many/*.parquet").files] == expected
    assert open_dataset("s3://tests/data/many/", cache_dir=bucket.parent / "cache")["text"][:] == ["a", "a", "a", "b", "b", "b"]


def test_rows_to_score_from_s3(bucket: Path) -> None:
    rows = [{"prompt": f"question {i}"} for i in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), bucket / "rows.parquet", row_group_size=50)
    (bucket / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("rows.parquet", "rows.jsonl"):
        found = ScoreRows.open(ScoreData(source=f"s3://tests/data/{name}"))
        assert found.count() == 200
        assert [row["prompt"] for row in found.read(98, 102)] == [f"question {i}" for i in range(98, 102)]


def test_what_is_not_there(bucket: Path) -> None:
    assert not (bucket / "none.jsonl").exists()
    with pytest.raises(BadInput, match=r"s3://tests/data/none\.jsonl: nothing is there"):
        inspect("s3://tests/data/none.jsonl")


def test_wrong_keys(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_chats(bucket / "a.jsonl")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-key")
    with pytest.raises(BadInput, match="access was refused") as refused:
        inspect("s3://tests/data/a.jsonl")
    assert "AWS_SECRET_ACCESS_KEY" in refused.value.next_step
    assert "not-the-key" not in str(refused.value)


def test_no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://169.254.169.254")
    filesystem.cache_clear()
    with pytest.raises(BadInput, match="no credentials were found"):
        inspect("s3://no-such-bucket-of-ours/a.jsonl")


def test_training_data_from_webhdfs(webhdfs_port: int, tmp_path: Path, make: Make) -> None:
    import fsspec

    hdfs = fsspec.filesystem("webhdfs", host="127.0.0.1", port=webhdfs_port, user="tester")
    hdfs.makedirs("/chats", exist_ok=True)
    hdfs.pipe_file("/chats/a.jsonl", write_chats(tmp_path / "a.jsonl").read_bytes())
    for uri in (f"webhdfs://127.0.0.1:{webhdfs_port}/chats/a.jsonl", f"webhdfs://127.0.0.1:{webhdfs_port}/chats"):
        assert make(uri).train[:] == make(tmp_path / "a.jsonl").train[:]
