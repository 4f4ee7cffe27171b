"""The cache: complete or absent, built once, rebuilt if damaged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tuneyard.data.cache import cached_folder

KEY = {"a": 1}


def build(folder: Path) -> None:
    (folder / "rows").write_text("content")


def refuse(folder: Path) -> None:
    raise AssertionError(f"{folder} is built again")


def test_an_entry_is_built_once(tmp_path: Path) -> None:
    first, was_there = cached_folder(tmp_path, KEY, build)
    again, is_there = cached_folder(tmp_path, KEY, refuse)
    assert (was_there, is_there) == (False, True)
    assert (again / "rows").read_text() == "content"
    assert first == again


def test_another_key_is_another_entry(tmp_path: Path) -> None:
    assert cached_folder(tmp_path, KEY, build)[0] != cached_folder(tmp_path, {"a": 2}, build)[0]


@pytest.mark.parametrize("damage", ["rows", "entry.json"])
def test_a_damaged_entry_is_built_again(tmp_path: Path, damage: str) -> None:
    entry, _ = cached_folder(tmp_path, KEY, build)
    (entry / damage).write_text("x")
    entry, was_there = cached_folder(tmp_path, KEY, build)
    assert not was_there
    assert (entry / "rows").read_text() == "content"


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        cached_folder(tmp_path, KEY, refuse)
    assert [path.suffix for path in tmp_path.iterdir()] in ([], [".lock"])
    assert cached_folder(tmp_path, KEY, build)[1] is False


def test_processes_that_ask_at_once_build_once(tmp_path: Path) -> None:
    program = f"""
import json, time
from pathlib import Path
from tuneyard.data.cache import cached_folder
waited = []
def build(folder):
    time.sleep(0.5)
    (folder / "rows").write_text("content")
entry, was_there = cached_folder(Path({str(tmp_path)!r}), {{"a": 1}}, build, on_wait=lambda: waited.append(1))
print(json.dumps([was_there, (entry / "rows").read_text()]))
"""
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(4)]
    answers = [json.loads(process.communicate()[0]) for process in processes]
    assert sorted(answers) == [[False, "content"], [True, "content"], [True, "content"], [True, "content"]]
