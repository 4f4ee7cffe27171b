"""Processor time of everything that a part starts, by a control group (cgroup v2) of its own: servers, Ray and clusters outlive the
processes that started them, and belong to no parent that would wait for them.

Where no group can be made (another system, no rights), a part is measured by its own processes alone. As a plugin of pytest
(`-p tests.suite.processor`) it notes with each test what its group has used meanwhile, fixtures included.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

PROPERTY = "cpu_s"
"""Of a test case in JUnit XML."""
_EMPTIES_WITHIN_S = 5.0


class Group:
    """A control group. Processes that are started by `joining` are in it, with all their descendants."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def made(cls, name: str) -> Group | None:
        """A new group beneath this process's, or None where none can be made."""
        own = _own_folder()
        if own is None:
            return None
        folder = own / f"tuneyard-{os.getpid()}-{name}"
        try:
            folder.mkdir()
        except OSError:
            return None
        group = cls(folder)
        if group.cpu_s() is None or not os.access(folder / "cgroup.procs", os.W_OK):
            group.remove()
            return None
        return group

    def joining(self, command: list[str]) -> list[str]:
        """The command, begun by a shell that joins the group first; where that fails it runs without."""
        return ["sh", "-c", 'echo $$ > "$0" 2>/dev/null; exec "$@"', str(self._folder / "cgroup.procs"), *command]

    def cpu_s(self) -> float | None:
        """Seconds of processor time so far, of processes that have ended too; None where the kernel does not say."""
        with suppress(OSError):
            for line in (self._folder / "cpu.stat").read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "usage_usec":
                    return int(value) / 1e6
        return None

    def remove(self) -> None:
        """Remove the group. What still runs in it goes on in the group above: the processes of a part are its fixtures' to end."""
        above = self._folder.parent / "cgroup.procs"
        until = time.monotonic() + _EMPTIES_WITHIN_S
        while time.monotonic() < until:
            with suppress(OSError):
                self._folder.rmdir()
                return
            with suppress(OSError):
                for process in (self._folder / "cgroup.procs").read_text().split():
                    with suppress(OSError):
                        above.write_text(process)
            time.sleep(0.05)


def _own_folder() -> Path | None:
    """Where the kernel shows this process's group."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        groups = [line.partition("::") for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return None
    mounted = next((fields[1] for fields in mounts if fields[2] == "cgroup2"), None)
    own = next((path for number, _, path in groups if number == "0"), None)
    return None if mounted is None or own is None else Path(mounted) / own.lstrip("/")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Notes the time between the end of the test before, and the end of this one's teardown; see `pytest_runtest_teardown`."""
    folder = _own_folder()
    group = Group(folder) if folder is not None else None
    item.stash[_BEGAN] = group, group.cpu_s() if group else None
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """The report of the teardown carries the properties that JUnit XML shows."""
    try:
        return (yield)
    finally:
        group, began = item.stash[_BEGAN]
        now = group.cpu_s() if group else None
        if now is not None and began is not None:
            item.user_properties.append((PROPERTY, f"{now - began:.2f}"))


_BEGAN: pytest.StashKey[tuple[Group | None, float | None]] = pytest.StashKey()
