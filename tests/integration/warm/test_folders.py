"""A temporary folder goes with its owner: at the end, or when the next one is made after a SIGKILL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tuneyard.warm import temporary_folder

_HOLD = """
import signal, sys
from pathlib import Path
from tuneyard.warm import temporary_folder
with temporary_folder("mine-", Path(sys.argv[1])) as folder:
    (folder / "large").write_text("x")
    print(folder, flush=True)
    signal.pause()
"""


def test_what_a_killed_owner_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    owners = [subprocess.Popen([sys.executable, "-c", _HOLD, tmp_path], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    alive, killed = (Path(owner.stdout.readline().strip()) for owner in owners if owner.stdout is not None)
    (tmp_path / "mine-of-nobody").mkdir()
    killed_owner = owners[1]
    killed_owner.kill()
    killed_owner.wait()
    assert killed.exists()
    with temporary_folder("mine-", tmp_path) as folder, temporary_folder("other-", tmp_path) as other:
        assert {path.name for path in tmp_path.iterdir()} == {alive.name, folder.name, other.name, "mine-of-nobody"}
        assert (alive / "large").exists()
    assert not folder.exists()
    assert not other.exists()
    owners[0].kill()
    owners[0].wait()


def test_a_folder_that_many_make_at_once_is_never_anothers(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from tuneyard.warm import temporary_folder
for turn in range(50):
    with temporary_folder("mine-", Path(sys.argv[1])) as folder:
        (folder / "kept").write_text(str(turn))
        assert (folder / "kept").read_text() == str(turn)
"""
    several = [subprocess.Popen([sys.executable, "-c", code, tmp_path]) for _ in range(4)]
    assert [each.wait() for each in several] == [0] * 4
    assert list(tmp_path.iterdir()) == []
