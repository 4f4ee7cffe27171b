"""Servers that go away, wrong keys, full disks, killed uploads: clear errors, nothing half-committed, no secrets shown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.installed import S3, make_s3

from tuneyard.api import StorageError
from tuneyard.storage import open_store
from tuneyard.storage import retry as retry_times

MIB = 1 << 20


def test_an_upload_outlives_a_restart_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_s3(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{server.bucket}/run")
    (tmp_path / "model").mkdir()
    for index in range(6):
        (tmp_path / "model" / f"shard-{index}").write_bytes(os.urandom(20 * MIB))
    failures: list[BaseException] = []
    begun = threading.Event()

    def upload() -> None:
        try:
            store.upload_folder(tmp_path / "model", "model", lambda _done, _of: begun.set())
        except StorageError as error:
            failures.append(error)

    worker = threading.Thread(target=upload)
    with server.started() as pid:
        worker.start()
        assert begun.wait(100)
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    with server.started():
        worker.join(100)
        assert failures == []
        store.download_folder("model", tmp_path / "copy")

    assert {p.name: p.read_bytes() for p in (tmp_path / "copy").glob("shard-*")} == {
        p.name: p.read_bytes() for p in (tmp_path / "model").glob("shard-*")
    }


def test_a_download_outlives_a_restart_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_s3(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{server.bucket}/run")
    (tmp_path / "model").mkdir()
    for index in range(4):
        (tmp_path / "model" / f"shard-{index}").write_bytes(os.urandom(40 * MIB))
    begun = threading.Event()

    def slowly(_done: int, _of: int) -> None:
        begun.set()
        time.sleep(0.02)

    with server.started() as pid:
        store.upload_folder(tmp_path / "model", "model")
        worker = threading.Thread(target=store.download_folder, args=("model", tmp_path / "copy", slowly))
        worker.start()
        assert begun.wait(100)
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    with server.started():
        worker.join(100)

    assert (tmp_path / "copy" / "shard-3").read_bytes() == (tmp_path / "model" / "shard-3").read_bytes()


def test_a_server_that_stays_away_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_s3(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tuneyard.storage.object_store.RETRY_TOTAL_S", 2.0)
    store = open_store(f"s3://{server.bucket}/run")

    with pytest.raises(StorageError, match="cannot write s3://tests/run/x") as raised:
        store.put("x", b"1")

    assert "AWS_ENDPOINT_URL" in raised.value.next_step
    assert server.secret_key not in str(raised.value)
    assert retry_times.RETRY_TOTAL_S == 60


def test_wrong_keys_are_named_without_showing_them(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-secret")

    with pytest.raises(StorageError, match="access denied") as raised:
        open_store(f"s3://{s3.bucket}/x").put("a", b"1")

    assert "AWS_ACCESS_KEY_ID" in raised.value.next_step
    assert "not-the-right-secret" not in str(raised.value)
    assert s3.access_key not in str(raised.value)


def test_a_missing_bucket_is_named(s3: S3) -> None:  # noqa: ARG001 -- sets the environment
    with pytest.raises(StorageError, match="there is no bucket 'elsewhere'"):
        open_store("s3://elsewhere/x").put("a", b"1")


def test_a_killed_upload_leaves_no_complete_folder_and_the_next_one_succeeds(s3: S3, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for index in range(4):
        (tmp_path / "model" / f"shard-{index}").write_bytes(os.urandom(24 * MIB))
    uri = f"s3://{s3.bucket}/killed"
    program = (
        "import sys; from pathlib import Path; from tuneyard.storage import open_store\n"
        "open_store(sys.argv[1]).upload_folder(Path(sys.argv[2]), 'model', lambda done, of: print(done, flush=True))"
    )
    with subprocess.Popen([sys.executable, "-c", program, uri, str(tmp_path / "model")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()

    store = open_store(uri)
    assert not store.is_complete("model")
    store.upload_folder(tmp_path / "model", "model")
    store.download_folder("model", tmp_path / "copy")
    assert (tmp_path / "copy" / "shard-3").read_bytes() == (tmp_path / "model" / "shard-3").read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("a full disk needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_keeps_what_was_committed(small_disk: Path, tmp_path: Path) -> None:
    store = open_store(str(small_disk))
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "weights").write_bytes(b"1" * MIB)
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "weights").write_bytes(b"2" * (3 * MIB // 2))
    store.upload_folder(tmp_path / "first", "model")

    with pytest.raises(StorageError, match="No space left on device") as raised:
        store.upload_folder(tmp_path / "second", "model")

    assert "free space" in raised.value.next_step
    assert store.get("model/weights") == b"1" * MIB
    assert [file.path for file in store.list()] == ["model/manifest.json", "model/weights"]
    with pytest.raises(StorageError, match="No space left on device"):
        store.put("large", b"3" * (2 * MIB))
    assert not store.exists("large")


def test_a_download_onto_a_full_disk_leaves_nothing(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"1" * (3 * MIB))
    store = open_store(str(tmp_path / "store"))
    store.upload_folder(tmp_path / "model", "model")

    with pytest.raises(StorageError, match="No space left on device"):
        store.download_folder("model", small_disk / "copy")

    assert list(small_disk.iterdir()) == []


def test_hdfs_without_its_library_points_to_webhdfs() -> None:
    with pytest.raises(StorageError) as raised:
        open_store("hdfs://namenode:8020/data/chats")

    assert "webhdfs://namenode:9870/data/chats" in raised.value.next_step
