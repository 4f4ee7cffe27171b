"""A compilation that was killed does not hold up later ones; one that runs is waited for."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tuneyard.training.abandoned_locks import remove_abandoned_locks


def locked(folder: Path, *, age_s: float) -> Path:
    folder.mkdir()
    lock = folder / "lock"
    lock.touch()
    os.utime(lock, (time.time() - age_s,) * 2)
    return lock


def test_only_locks_of_folders_where_nothing_runs_are_removed(tmp_path: Path) -> None:
    abandoned, young, held = (locked(tmp_path / name, age_s=age) for name, age in (("aio", 90), ("adam", 1), ("other", 90)))
    compiler = subprocess.Popen(["sleep", "60"], cwd=held.parent)
    try:
        removed = remove_abandoned_locks(tmp_path)
    finally:
        compiler.kill()
        compiler.wait()

    assert removed == [abandoned]
    assert (young.exists(), held.exists()) == (True, True)
    assert remove_abandoned_locks(tmp_path) == [held]
