"""Looks for the data that runs wait for, in threads: a storage that hangs delays no other run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from tuneyard.api import TuneyardError
from tuneyard.api.schedule_status import WaitingRun
from tuneyard.schedules import Look
from tuneyard.storage import absolute, open_store

EVERY = timedelta(seconds=30)
_LONGEST_S = 60.0


class Looks:
    """The last look for each run that waits. Relative paths start at `base_dir`."""

    def __init__(self, base_dir: Path) -> None:
        self._base_dir = base_dir
        self._found: dict[str, tuple[datetime, Look]] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._began_s: dict[str, float] = {}
        self._unread: set[str] = set()

    @property
    def busy(self) -> bool:
        """Whether a look is under way, or was not read by `found` yet."""
        return any(thread.is_alive() for thread in self._threads.values()) or bool(self._unread)

    def found(self) -> Mapping[str, Look]:
        """The looks so far, by the names of their runs. A storage that has not answered for a minute counts as a look in vain."""
        self._unread.clear()
        found = {name: look for name, (_, look) in dict(self._found).items()}
        late = [name for name, thread in self._threads.items() if thread.is_alive() and time.monotonic() - self._began_s[name] > _LONGEST_S]
        in_vain = [name for name in late if name not in found or not found[name].arrived]
        return {**found, **dict.fromkeys(in_vain, Look(False, "its storage does not answer"))}

    def want(self, waiting: Iterable[WaitingRun], now: datetime) -> datetime | None:
        """Look for the data of these runs, where it is time. Returns the time of the next look; None if nothing waits."""
        wanted = {each.name: each for each in waiting}
        for name in [name for name in self._found if name not in wanted]:
            del self._found[name]
        for name, each in wanted.items():
            thread, last = self._threads.get(name), self._found.get(name)
            is_time = last is None or not timedelta() <= now - last[0] < EVERY
            if is_time and (thread is None or not thread.is_alive()):
                self._threads[name] = threading.Thread(target=self._look, args=(name, each.path, now), daemon=True)
                self._began_s[name] = time.monotonic()
                self._threads[name].start()
        return now + EVERY if wanted else None

    def _look(self, name: str, path: str, now: datetime) -> None:
        began_s, before = self._began_s[name], self._found.get(name)
        try:
            look = Look(is_there(absolute(path, self._base_dir)), at_s=began_s).after(before[1] if before is not None else None)
        except TuneyardError as error:
            look = Look(False, str(error))
        except Exception as error:  # noqa: BLE001 - the reason is told in the status
            look = Look(False, f"{type(error).__name__}: {error}")
        self._found[name] = now, look
        self._unread.add(name)  # while the thread is alive: `busy` has no gap


def is_there(uri: str) -> bool:
    """Whether there is a file at `uri`, or any file in a folder of this name. Raises StorageError, BadInput."""
    folder, _, name = uri.rstrip("/").rpartition("/")
    store = open_store(folder or "/")
    return store.exists(name) or store.has_files(name)
