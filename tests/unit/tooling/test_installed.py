"""Several processes that miss Debian packages at the same time, over an apt-get that refuses to run twice at once, as the real one does."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

_APT_GET = r"""#!/bin/sh
# Takes the lock of the package lists or fails; `install … NAME` brings a program of that name.
if ! mkdir "$STATE/lock" 2>/dev/null; then
  echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)" >&2
  echo "refused" >>"$STATE/log"
  exit 100
fi
for word; do last=$word; done
echo "$last" >>"$STATE/log"
sleep 0.3
if [ "$last" != update ]; then
  printf '#!/bin/sh\n' >"$STATE/bin/$last"
  chmod +x "$STATE/bin/$last"
fi
rmdir "$STATE/lock"
"""

_ASKS = """
import os, sys
from tests.servers import installed as servers
os.geteuid = lambda: 0
servers.APT_RETRY_S = 0.1
print(servers.installed(sys.argv[1], sys.argv[1]))
"""


class FakeDebian:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        apt_get = self.programs / "apt-get"
        apt_get.write_text(_APT_GET)
        apt_get.chmod(apt_get.stat().st_mode | stat.S_IXUSR)

    @property
    def lock(self) -> Path:
        """Held while apt-get runs."""
        return self.folder / "lock"

    def asks_for(self, program: str) -> subprocess.Popen[str]:
        """A process that needs the program; it prints where it is."""
        variables = {
            **os.environ,
            "STATE": str(self.folder),
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.Popen([sys.executable, "-c", _ASKS, program], cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True)

    def calls(self) -> list[str]:
        """`update`, the name of an installed package, or `refused`, in order."""
        log = self.folder / "log"
        return log.read_text().split() if log.exists() else []


@pytest.fixture
def debian(tmp_path: Path) -> FakeDebian:
    return FakeDebian(tmp_path / "debian")


def found(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    return out.strip()


def test_processes_that_miss_packages_at_once_run_apt_get_one_after_the_other(debian: FakeDebian) -> None:
    asked = [debian.asks_for(program) for program in ("tuneyard-a", "tuneyard-b", "tuneyard-a")]
    assert [found(process) for process in asked] == [str(debian.programs / name) for name in ("tuneyard-a", "tuneyard-b", "tuneyard-a")]
    # The third process finds what the first installed.
    assert sorted(debian.calls()) == ["tuneyard-a", "tuneyard-b", "update", "update"]


def test_an_apt_get_of_someone_else_is_waited_for(debian: FakeDebian) -> None:
    debian.lock.mkdir()
    process = debian.asks_for("tuneyard-a")
    while "refused" not in debian.calls():
        assert process.poll() is None
        time.sleep(0.05)
    debian.lock.rmdir()
    assert found(process) == str(debian.programs / "tuneyard-a")
    assert [call for call in debian.calls() if call != "refused"] == ["update", "tuneyard-a"]
