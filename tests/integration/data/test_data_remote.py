"""The same samples from S3 and HDFS (real servers), and what is said when there is no access."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.models import write_chats, write_model
from tests.servers.installed import S3, Hdfs, libhdfs

from tuneyard.api import BadInput, ScoreData, StorageError, Task, TrainData
from tuneyard.cli import main
from tuneyard.data import Prepared, ScoreRows, inspect, open_dataset, prepare, probing
from tuneyard.data.access import filesystem
from tuneyard.data.chat import template_text
from tuneyard.data.file_types import FoundFile
from tuneyard.data.opening import open_found
from tuneyard.data.sources import locate
from tuneyard.data.stream import splits as splits_module
from tuneyard.data.stream import windows as windows_module
from tuneyard.runtime.inputs import inputs_of
from tuneyard.runtime.output import JobOutput
from tuneyard.storage import open_store

Make = Callable[..., Prepared]


@pytest.fixture
def bucket(s3: S3) -> Any:
    """The folder behind s3://tests/data, and no file system remembered from another test's environment."""
    filesystem.cache_clear()
    folder = s3.root / s3.bucket / "data"
    folder.mkdir(exist_ok=True)
    yield folder
    filesystem.cache_clear()


def test_the_first_rows_of_a_bucket_are_looked_at_before_a_job_starts(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a process of its own, by a megabyte or two of larger files; what was found is kept under the version of the objects."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(probing, "REMOTE_S", 240.0)  # the test machine may be busy
    write_model(tmp_path / "model")
    rows = [{"prompt": f"the cat {n} sat", "completion": " ".join(["on a mat"] * 60)} for n in range(12_000)]
    (bucket / "big.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist([{**row, "prompt": os.urandom(400).hex()} for row in rows]), bucket / "big.parquet")
    strange = [{"messages": [{"role": "client", "content": "hi"}, {"role": "clerk", "content": "yes"}]}] * 9
    (bucket / "strange.jsonl").write_text("".join(json.dumps(row) + "\n" for row in strange))
    sizes = {name: (bucket / name).stat().st_size / 1e6 for name in ("big.jsonl", "big.parquet")}
    assert min(sizes.values()) > 5
    parts = ", ".join(f"{{source: s3://tests/data/{name}, chat: true}}" for name in (*sizes, "strange.jsonl"))
    (tmp_path / "job.yaml").write_text(
        "apiVersion: tuneyard.dev/v1alpha1\nkind: JobSpec\nmetadata: {name: small}\nspec:\n  tasks:\n  - name: train\n"
        f"    train: {{model: {{name: ./model}}, data: {{mix: [{parts}]}}, steps: 3}}\n    resources: {{sku: [cpu]}}\n"
    )
    for _ in range(2):
        assert main(["plan", "job.yaml"]) in (0, 1)
        said = capsys.readouterr().err
        for name, size in sizes.items():
            [read] = re.findall(rf"train: rendered the first 200 rows, for which ([\d.]+) MB were read of s3://tests/data/{name}", said)
            assert 0 < float(read) < size / 2
        assert "spec.tasks[0].train.data.mix[2]: 9 of 9 rows cannot be used" in said
        assert len(list((tmp_path / "cache" / "probes").iterdir())) == 3


def test_training_data_from_s3(bucket: Path, tmp_path: Path, make: Make) -> None:
    local = make(write_chats(tmp_path / "a.jsonl"), pack=True)
    write_chats(bucket / "a.jsonl")
    remote = make("s3://tests/data/a.jsonl", pack=True)
    assert remote.train[:] == local.train[:]
    assert not remote.cached
    assert make("s3://tests/data/a.jsonl", pack=True).cached
    write_chats(bucket / "a.jsonl", count=65)
    assert not make("s3://tests/data/a.jsonl", pack=True).cached


def test_a_fork_reads_what_its_parent_has_read_from_a_bucket(bucket: Path) -> None:
    """Data workers, and the processes of torch's loader, are forks. Clients of stores hang in a fork without a word."""
    text = write_chats(bucket / "a.jsonl").read_bytes()
    found = locate("s3://tests/data/a.jsonl").files[0].found
    with open_found(found) as file:
        assert file.read() == text
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        assert pool.submit(_read_twice, found).result(timeout=300) == (text[10:], text[:10])
        write_chats(bucket / "a.jsonl", count=65)
        with pytest.raises(BadInput, match=r"a\.jsonl: changed while it was being used"):
            pool.submit(_read_twice, found).result(timeout=300)
        (bucket / "a.jsonl").unlink()
        with pytest.raises(BadInput, match=r"a\.jsonl: was deleted while it was being used"):
            pool.submit(_read_twice, found).result(timeout=300)
        with pytest.raises(StorageError, match="this process is a fork"):
            pool.submit(_exists, "s3://tests/data", "a.jsonl").result(timeout=300)


def _exists(uri: str, path: str) -> bool:
    return open_store(uri).exists(path)


def _read_twice(found: FoundFile) -> tuple[bytes, bytes]:
    with open_found(found) as file:
        file.seek(10)
        end = file.read()
        file.seek(0)
        return end, file.read(10)


@pytest.mark.timeout(240)  # the rank waits a minute for each split that a worker has claimed and does not build
def test_data_workers_build_shards_of_a_bucket(bucket: Path, tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 256)
    monkeypatch.setattr(splits_module, "_ROWS_OF_A_SHARD", 0)
    monkeypatch.setattr(windows_module, "_FIRST_BYTES", 256)
    write_chats(bucket / "streamed.jsonl", count=600)
    rows = []
    for workers in (0, 2):
        data = TrainData(source="s3://tests/data/streamed.jsonl", streaming=True, workers=workers)
        prepared = prepare(data, tokenizer, objective="sft", seed=0, cache_dir=tmp_path / str(workers), task="t")
        assert len(prepared.train.stream.splits) > 8
        rows.append([list(prepared.train[position]["input_ids"]) for position in range(600)])
    assert rows[0] == rows[1]


def test_a_result_of_other_data_under_the_same_name_is_not_taken(bucket: Path) -> None:
    body = {"model": {"name": "m"}, "data": {"source": "s3://tests/data/a.jsonl"}}
    task = Task.model_validate({"name": "t", "train": body})
    write_chats(bucket / "a.jsonl")
    output = JobOutput("s3://tests/data/out")
    output.begin(task, inputs_of(task, bucket))
    output.finish("t", {"steps": 3})
    assert output.finished(task, inputs_of(task, bucket)) == {"steps": 3}

    text = (bucket / "a.jsonl").read_text()
    open_store("s3://tests/data").put("a.jsonl", text.replace("a", "e").encode())
    with pytest.raises(BadInput, match=r"train.data: a.jsonl: same size, other content"):
        output.finished(task, inputs_of(task, bucket))
    write_chats(bucket / "a.jsonl", count=65)
    with pytest.raises(BadInput, match=r"train.data: a.jsonl: [\d,]+ -> [\d,]+ bytes"):
        output.begin(task, inputs_of(task, bucket))


@pytest.mark.usefixtures("bucket")
def test_a_saved_dataset_has_the_same_split_on_s3_as_on_disk(tmp_path: Path) -> None:
    splits = {name: datasets.Dataset.from_dict({"text": [name] * count}) for name, count in (("train", 3), ("test", 2))}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))
    open_store("s3://tests/data").upload_folder(tmp_path / "saved", "saved")
    for split in (None, "test"):
        here, there = (locate(uri, split=split).files for uri in (str(tmp_path / "saved"), "s3://tests/data/saved"))
        assert [file.size_bytes for file in here] == [file.size_bytes for file in there]
    with pytest.raises(BadInput, match="no split named dev") as refused:
        locate("s3://tests/data/saved", split="dev")
    assert refused.value.next_step == "set data.split to one of: test, train"


def test_a_folder_that_was_stored_whole_may_be_of_any_type(bucket: Path, tmp_path: Path) -> None:
    write_chats(tmp_path / "parts" / "a.jsonl")
    open_store("s3://tests/data").upload_folder(tmp_path / "parts", "whole")
    assert (bucket / "whole" / "manifest.json").exists()
    assert [file.uri for file in locate("s3://tests/data/whole", file_type="jsonl").files] == ["s3://tests/data/whole/a.jsonl"]


def test_a_chat_template_from_s3(bucket: Path) -> None:
    (bucket / "chat.jinja").write_text("{{ messages }}")
    assert template_text("s3://tests/data/chat.jinja") == "{{ messages }}"
    with pytest.raises(BadInput, match=r"data.chatTemplate: .*none.jinja.*does not exist"):
        template_text("s3://tests/data/none.jinja")


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


def test_a_fork_reads_over_hdfs_by_many_threads(hdfs_server: Hdfs, tmp_path: Path) -> None:
    """In a process of its own, which loads a JVM: forks have no thread of it."""
    web = fsspec.filesystem("webhdfs", host="127.0.0.1", port=hdfs_server.http_port, user="tester")
    web.makedirs("/forked", exist_ok=True)
    text = write_chats(tmp_path / "a.jsonl", count=600).read_bytes()
    web.pipe_file("/forked/a.jsonl", text)
    env = {**os.environ, **libhdfs(), "HADOOP_USER_NAME": "tester", "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-m", "tests.servers.hdfs_fork", f"hdfs://127.0.0.1:{hdfs_server.rpc_port}/forked/a.jsonl"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    hashed = hashlib.sha256(text).hexdigest()
    assert json.loads(done.stdout.splitlines()[-1]) == {"parent": hashed, "fork": hashed}


def test_training_data_from_webhdfs(webhdfs_port: int, tmp_path: Path, make: Make) -> None:
    hdfs = fsspec.filesystem("webhdfs", host="127.0.0.1", port=webhdfs_port, user="tester")
    hdfs.makedirs("/chats", exist_ok=True)
    hdfs.pipe_file("/chats/a.jsonl", write_chats(tmp_path / "a.jsonl").read_bytes())
    for uri in (f"webhdfs://127.0.0.1:{webhdfs_port}/chats/a.jsonl", f"webhdfs://127.0.0.1:{webhdfs_port}/chats"):
        assert make(uri).train[:] == make(tmp_path / "a.jsonl").train[:]
