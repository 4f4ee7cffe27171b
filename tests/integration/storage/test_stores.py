"""What every store promises, on a local disk, on a real S3 server and on a real HDFS."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tuneyard.api import BadInput, StorageError
from tuneyard.storage import MANIFEST, AlreadyExists, NotFound, Store, fetch_folder, open_store

MIB = 1 << 20


@pytest.fixture(params=["local", "s3", "webhdfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store; its folder does not exist yet."""
    unique = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    if request.param == "local":
        return open_store(str(tmp_path / "store"))
    if request.param == "s3":
        return open_store(f"s3://{request.getfixturevalue('s3').bucket}/{unique}")
    monkeypatch.setenv("HADOOP_USER_NAME", "tester")
    return open_store(f"webhdfs://127.0.0.1:{request.getfixturevalue('webhdfs_port')}/{unique}")


def make_folder(path: Path, **files: bytes) -> Path:
    for name, content in files.items():
        (path / name.replace("__", "/")).parent.mkdir(parents=True, exist_ok=True)
        (path / name.replace("__", "/")).write_bytes(content)
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST}


def names(store: Store, prefix: str = "") -> list[str]:
    return [file.path for file in store.list(prefix)]


def test_what_was_put_is_got_and_overwritten(store: Store) -> None:
    store.put("a/b.txt", b"one")
    store.put("a/b.txt", b"two")

    assert store.get("a/b.txt") == b"two"
    assert store.exists("a/b.txt")
    assert not store.exists("a")
    assert not store.exists("a/b")


def test_empty_files_are_files(store: Store) -> None:
    store.put("empty", b"")

    assert store.get("empty") == b""
    assert [(file.path, file.size_bytes) for file in store.list()] == [("empty", 0)]


def test_list_tells_paths_and_sizes_below_a_folder_only(store: Store) -> None:
    for path, data in {"x/1": b"1", "x/y/22": b"22", "x-not": b"333"}.items():
        store.put(path, data)

    assert [(file.path, file.size_bytes) for file in store.list("x")] == [("x/1", 1), ("x/y/22", 2)]
    assert len(store.list()) == 3
    assert store.list("nowhere") == []


def test_deleting_is_repeatable(store: Store) -> None:
    store.put("x/1", b"1")
    store.put("x/y/2", b"2")
    store.put("z", b"3")

    for _ in range(2):
        store.delete("z")
        store.delete_prefix("x")

    assert names(store) == []


def test_what_is_missing_is_named(store: Store) -> None:
    with pytest.raises(NotFound, match="nothing/here") as raised:
        store.get("nothing/here")

    assert raised.value.next_step


def test_paths_cannot_leave_the_store(store: Store) -> None:
    with pytest.raises(BadInput, match="leaves its folder"):
        store.put("../outside", b"")


def test_create_lets_exactly_one_of_many_writers_win(store: Store) -> None:
    def race(writer: int) -> str:
        try:
            store.create("lease/000001", f"writer {writer}".encode())
        except AlreadyExists:
            return "lost"
        return f"writer {writer}"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(race, range(8)))

    assert Counter(outcomes)["lost"] == 7
    (winner,) = set(outcomes) - {"lost"}
    assert store.get("lease/000001").decode() == winner


def test_a_large_file_goes_up_in_parts_and_comes_back_the_same(store: Store, tmp_path: Path) -> None:
    local = tmp_path / "large.bin"
    local.write_bytes(os.urandom(MIB) * 37 + b"tail")

    store.put_file("large.bin", local)
    store.get_file("large.bin", tmp_path / "back.bin")

    assert (tmp_path / "back.bin").read_bytes() == local.read_bytes()


@pytest.mark.parametrize("size_bytes", [10, 40 * MIB])
def test_a_stream_of_another_length_than_announced_is_refused_and_leaves_nothing(store: Store, size_bytes: int) -> None:
    with pytest.raises(StorageError, match="changed while it was stored"):
        store.put_stream("file", iter([b"x" * (size_bytes - 1)]), size_bytes)

    assert names(store) == []


@pytest.mark.parametrize("size_bytes", [10, 40 * MIB])
def test_a_source_that_breaks_off_leaves_nothing(store: Store, size_bytes: int) -> None:
    def broken():
        yield b"x" * (size_bytes // 2)
        raise StorageError("the source broke off")

    with pytest.raises(StorageError, match="the source broke off"):
        store.put_stream("file", broken(), size_bytes)

    assert names(store) == []


def test_a_folder_goes_up_with_a_manifest_and_comes_back_the_same(store: Store, tmp_path: Path) -> None:
    local = make_folder(tmp_path / "model", config=b"{}", shards__one=os.urandom(20 * MIB), shards__empty=b"")
    seen: list[tuple[int, int]] = []

    manifest = store.upload_folder(local, "models/final", lambda done, of: seen.append((done, of)), extra={"step": 7})
    store.download_folder("models/final", tmp_path / "copy")

    assert store.is_complete("models/final")
    assert seen[-1] == (20 * MIB + 2, 20 * MIB + 2)
    assert store.manifest("models/final") == manifest
    assert store.manifest("models/final").extra == {"step": 7}
    assert content(tmp_path / "copy") == content(local)


def test_a_folder_without_its_manifest_is_absent(store: Store, tmp_path: Path) -> None:
    store.put("models/aborted/config", b"{}")

    assert not store.is_complete("models/aborted")
    with pytest.raises(NotFound):
        store.download_folder("models/aborted", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_an_upload_replaces_what_an_aborted_one_left(store: Store, tmp_path: Path) -> None:
    store.put("models/final/left-over", b"old")
    store.put("models/final/config", b"old")

    store.upload_folder(make_folder(tmp_path / "model", config=b"new"), "models/final")

    assert names(store, "models/final") == ["models/final/config", f"models/final/{MANIFEST}"]
    assert store.get("models/final/config") == b"new"


def test_an_upload_that_fails_leaves_the_folder_absent(store: Store, tmp_path: Path) -> None:
    store.upload_folder(make_folder(tmp_path / "first", config=b"1"), "model")
    second = make_folder(tmp_path / "second", config=b"2", shard=b"x" * 20)

    def cut_short(done: int, _of: int) -> None:
        (second / "shard").write_bytes(b"x" * 10)
        if done > 1:
            raise StorageError("the disk went away")

    with pytest.raises(StorageError):
        store.upload_folder(second, "model", cut_short)

    # A local store keeps the folder that was complete; where there is no rename it is absent. Never half of each.
    if store.is_complete("model"):
        store.download_folder("model", tmp_path / "copy")
        assert content(tmp_path / "copy") == {"config": b"1"}


def test_commit_uses_the_local_folder_up(store: Store, tmp_path: Path) -> None:
    local = make_folder(tmp_path / "work" / "step-5", weights=b"w" * 1000)

    store.commit_folder(local, "checkpoints/step-5", extra={"token": 3})

    assert not local.exists()
    assert store.is_complete("checkpoints/step-5")
    assert store.get("checkpoints/step-5/weights") == b"w" * 1000


def test_a_damaged_file_is_not_delivered(store: Store, tmp_path: Path) -> None:
    store.upload_folder(make_folder(tmp_path / "model", weights=b"good"), "model")
    store.put("model/weights", b"evil")

    with pytest.raises(StorageError, match="does not match its manifest"):
        store.download_folder("model", tmp_path / "copy")

    assert list(tmp_path.glob("*copy*")) == []


def test_a_download_replaces_an_older_copy(store: Store, tmp_path: Path) -> None:
    store.upload_folder(make_folder(tmp_path / "model", config=b"new"), "model")
    make_folder(tmp_path / "copy", config=b"old", other=b"old")

    store.download_folder("model", tmp_path / "copy")

    assert content(tmp_path / "copy") == {"config": b"new"}


def test_fetch_copies_a_content_once(store: Store, tmp_path: Path) -> None:
    store.upload_folder(make_folder(tmp_path / "model", config=b"1"), "model")

    with ThreadPoolExecutor(4) as pool:
        first = set(pool.map(lambda _: fetch_folder(store.url("model"), tmp_path / "cache"), range(4)))
    store.upload_folder(make_folder(tmp_path / "model", config=b"2"), "model")
    second = fetch_folder(store.url("model"), tmp_path / "cache")

    assert len(first) == 1
    assert content(second) == {"config": b"2"}
    if "://" in store.uri:
        assert content(first.pop()) == {"config": b"1"}


def test_fetch_takes_folders_that_other_tools_wrote(store: Store, tmp_path: Path) -> None:
    store.put("model/config.json", b"{}")
    store.put("model/tokenizer/vocab", b"a b")

    folder = fetch_folder(store.url("model"), tmp_path / "cache")

    assert content(folder) == {"config.json": b"{}", "tokenizer/vocab": b"a b"}


def test_fetch_names_what_is_missing(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="absent"):
        fetch_folder(store.url("absent"), tmp_path / "cache")
