"""The cache: complete or absent, built once, rebuilt if damaged."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tuneyard.data import cache
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
entry, was_there = cached_folder(Path({str(tmp_path)!r}), {{"a": 1}}, build, on_wait=waited.append)
print(json.dumps([was_there, (entry / "rows").read_text()]))
"""
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(4)]
    answers = [json.loads(process.communicate()[0]) for process in processes]
    assert sorted(answers) == [[False, "content"], [True, "content"], [True, "content"], [True, "content"]]


def test_a_complete_entry_is_found_by_whoever_may_not_write() -> None:
    """As another user, where the tests run as root."""
    root = Path(f"/tmp/tuneyard-complete-{os.getpid()}")
    try:
        cached_folder(root, KEY, build)
        for path in root.glob("*.lock"):
            path.unlink()
        root.chmod(0o555)
        program = (
            "import os, sys; from pathlib import Path; import filelock; from tuneyard.data.cache import cached_folder\n"
            "if os.geteuid() == 0: os.seteuid(65534)\n"
            "print(cached_folder(Path(sys.argv[1]), {'a': 1}, lambda folder: sys.exit('built again'))[1])"
        )
        done = subprocess.run([sys.executable, "-c", program, str(root)], capture_output=True, text=True, check=False)
        assert done.stdout == "True\n", done.stderr
    finally:
        root.chmod(0o700)
        shutil.rmtree(root)


BUILDER = """
import os, sys, time
from pathlib import Path
from tuneyard.data.cache import cached_folder
def build(folder):
    (folder / "rows").write_text("content of the first")
    print(os.getpid(), flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.02)
entry, was_there = cached_folder(Path(sys.argv[1]), {"a": 1}, build)
print((entry / "rows").read_text(), was_there)
"""


def test_a_process_that_is_stopped_while_it_builds_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "PATIENCE_S", 0.5)
    root, go_on = tmp_path / "cache", tmp_path / "go-on"
    first = subprocess.Popen([sys.executable, "-c", BUILDER, str(root), str(go_on)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    first.stdout.readline()
    first.send_signal(signal.SIGSTOP)
    waited: list[str] = []
    try:
        entry, was_there = cached_folder(root, KEY, build, on_wait=waited.append)
        assert (was_there, (entry / "rows").read_text()) == (False, "content")
        assert waited == [f"process {first.pid} of {platform.node()}"]
        assert cached_folder(root, KEY, refuse) == (entry, True)
    finally:
        go_on.touch()
        first.send_signal(signal.SIGCONT)
    assert first.communicate()[0] == "content True\n"  # it takes what the other one has made, and drops its own
    assert first.returncode == 0
    assert not list(root.glob("*.unfinished"))


def test_a_process_that_goes_on_building_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "PATIENCE_S", 0.8)
    program = BUILDER.replace("time.sleep(0.02)", "time.sleep(0.1); (folder / 'log').open('a').write('x')")
    go_on = tmp_path / "go-on"
    first = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "cache"), str(go_on)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    first.stdout.readline()
    later = threading.Timer(2.0, go_on.touch)
    later.start()
    entry, was_there = cached_folder(tmp_path / "cache", KEY, refuse)
    later.join()
    assert (was_there, (entry / "rows").read_text()) == (True, "content of the first")
    assert first.wait() == 0


def test_a_folder_that_is_renamed_while_it_is_looked_at_is_no_error(tmp_path: Path) -> None:
    one, other, done = tmp_path / "one", tmp_path / "other", threading.Event()
    (one / "a" / "b").mkdir(parents=True)

    def rename() -> None:
        while not done.is_set():
            one.rename(other)
            other.rename(one)

    mover = threading.Thread(target=rename)
    mover.start()
    try:
        for _ in range(1000):
            cache._growth(one)
    finally:
        done.set()
        mover.join()
