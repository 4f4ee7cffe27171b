"""What only a local store does: renames, durability, cleaning up after processes that died."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tuneyard.api import BadInput, StorageError
from tuneyard.storage import Manifest, ManifestFile, fetch_folder, open_store
from tuneyard.storage.files import is_temporary
from tuneyard.storage.filling import fill
from tuneyard.storage.folders import BEGUN


def test_commit_is_a_rename(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "weights").write_bytes(b"w")
    inode = (tmp_path / "work" / "weights").stat().st_ino

    open_store(str(tmp_path / "out")).commit_folder(tmp_path / "work", "model")

    assert (tmp_path / "out" / "model" / "weights").stat().st_ino == inode
    assert not (tmp_path / "work").exists()


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut between the two would leave an empty file under the final name."""
    synced, kept = [], os.fsync

    def sync(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), (tmp_path / "note").exists()))
        kept(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    open_store(str(tmp_path)).put("note", b"text")

    files = [named for path, named in synced if Path(path) != tmp_path]
    folders = [named for path, named in synced if Path(path) == tmp_path]
    assert files == [False]
    assert folders == [True]


def test_the_umask_decides_who_may_read_what_a_commit_publishes(tmp_path: Path) -> None:
    elsewhere = Path(tempfile.mkdtemp(dir="/dev/shm"))  # on another file system a commit is a copy
    for number, store in enumerate((tmp_path, elsewhere)):
        work = tmp_path / f"work-{number}"
        (work / "parts").mkdir(parents=True)
        save_file({"weight": np.zeros(1)}, work / "weights.safetensors")
        (work / "parts").chmod(0o700)
        (work / "parts" / "part").write_text("")
        (work / "tool").write_text("")
        (work / "tool").chmod(0o700)
        (tmp_path / "outside").touch(mode=0o600)
        (work / "link").symlink_to(tmp_path / "outside")
        assert (work / "weights.safetensors").stat().st_mode & 0o777 == 0o600, "safetensors asks the umask by now: drop as_umask_says"
        before = os.umask(0o027)
        try:
            open_store(str(store / "out")).commit_folder(work, "model")
        finally:
            os.umask(before)

        modes = {path.name: path.stat().st_mode & 0o777 for path in (store / "out" / "model").rglob("*") if not path.is_symlink()}

        assert modes["weights.safetensors"] == modes["part"] == modes["manifest.json"] == 0o640
        assert modes["parts"] == 0o750
        assert number or modes["tool"] == 0o750
        assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o600
    shutil.rmtree(elsewhere)


def test_what_a_killed_process_left_is_removed_by_the_next_upload(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from tuneyard.storage import open_store\n"
        "open_store(sys.argv[1]).upload_folder(Path(sys.argv[2]), 'model', lambda done, of: os._exit(9))"
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"w" * 100)
    out = tmp_path / "out"
    subprocess.run([sys.executable, "-c", program, str(out), str(tmp_path / "model")], check=False)
    assert [is_temporary(path.name) for path in out.iterdir()] == [True]
    assert open_store(str(out)).list() == []

    open_store(str(out)).upload_folder(tmp_path / "model", "model")

    assert [path.name for path in out.iterdir()] == ["model"]


def test_the_record_of_a_command_that_fills_a_folder_is_no_file_of_it(tmp_path: Path) -> None:
    for name in ("weights", BEGUN):
        (tmp_path / "copy").mkdir(exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(b"[]")
    manifest = open_store(str(tmp_path / "out")).upload_folder(tmp_path / "copy", "")
    assert [file.path for file in manifest.files] == ["weights"]


def test_a_folder_is_filled_over_an_earlier_one_but_never_over_files_of_anything_else(tmp_path: Path) -> None:
    made, target = tmp_path / "made", tmp_path / "target"
    made.mkdir()
    for content in ("first", "second"):
        (made / content).write_text(content)
        fill(str(target), made, {"pushed": True}, over="pushed")
    assert {path.name for path in target.iterdir()} == {"first", "second", "manifest.json"}
    (target / "notes.txt").write_text("of somebody")
    with pytest.raises(BadInput, match=r"it also holds notes\.txt"):
        fill(str(target), made, {"pushed": True}, over="pushed")
    (target / "notes.txt").unlink()
    with pytest.raises(BadInput, match="is not empty"):
        fill(str(target), made, {}, over="other")
    assert (target / "second").read_text() == "second"


def test_local_folders_are_used_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert fetch_folder(str(tmp_path / "model"), tmp_path / "cache") == tmp_path / "model"
    assert fetch_folder(f"file://{tmp_path}/model", tmp_path / "cache") == tmp_path / "model"


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="is not a folder"):
        open_store(str(tmp_path / "out")).upload_folder(tmp_path / "file", "model")
    with pytest.raises(StorageError, match="cannot write"):
        open_store(str(tmp_path / "file")).put("x", b"")


def test_a_manifest_is_the_same_bytes_for_the_same_content() -> None:
    one, two = ManifestFile("a", 1, "00"), ManifestFile("b/c", 2, "ff")

    assert Manifest((one, two), {"x": 1, "y": 2}).to_json() == Manifest((two, one), {"y": 2, "x": 1}).to_json()
    assert Manifest.from_json(Manifest((one, two)).to_json()) == Manifest((one, two))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format": 1, "files": [{}], "extra": {}}', b"\xff\xfe"])
def test_a_damaged_manifest_is_told(data: bytes) -> None:
    with pytest.raises(StorageError, match=r"manifest\.json is damaged"):
        Manifest.from_json(data)


def test_importing_storage_loads_nothing_heavy() -> None:
    program = "import sys, tuneyard.storage, tuneyard.tracking; print(*sorted(sys.modules))"
    loaded = set(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & {"obstore", "fsspec", "requests", "pyarrow", "sqlalchemy", "alembic", "jinja2", "comet_ml", "torch", "ray"}
