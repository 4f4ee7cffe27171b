"""The data folder of a Schedule on one machine.

schedule.json   the Schedule as an object, with its status; secrets are hidden in it
wishes.json     pause, runs on demand: written by other commands, read by the runner
jobs/RUN.yaml   the JobSpec of a run
logs/RUN.log    what its process has printed
RUN/            its output, unless the Schedule names storage.output
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from tuneyard.api import BadInput, JobSpec, Schedule
from tuneyard.api.moments import written
from tuneyard.api.schedule_status import ScheduleStatus
from tuneyard.api.secrets import HIDDEN, redact_fields
from tuneyard.api.wire import read
from tuneyard.schedules.view import ScheduleView
from tuneyard.storage import open_store

STATE, WISHES = "schedule.json", "wishes.json"
_LOCK = ".lock"


class ScheduleFolder:
    """Reads and writes the data folder at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._store = open_store(str(self.path))

    # --- the Schedule and its status

    def item(self) -> dict[str, Any] | None:
        """The Schedule as an object; None before the first run of the runner. Raises BadInput for an unreadable file."""
        return self._read(STATE)

    def status(self) -> ScheduleStatus:
        return read(ScheduleStatus, (self.item() or {}).get("status")).value

    def view(self) -> ScheduleView:
        """The Schedule as commands show it, with the wish of a person to pause it. Raises BadInput if nobody has followed one here."""
        item = self.item()
        if item is None:
            raise BadInput(f"{self.path} holds no Schedule", "give the data folder of `tuneyard schedule run`, such as runs/nightly")
        suspended = self.wishes().get("suspend")
        spec = {**item["spec"], **({"suspend": suspended} if isinstance(suspended, bool) else {})}
        return ScheduleView.of({**item, "spec": spec})

    def save(self, schedule: Schedule, created: datetime, status: ScheduleStatus) -> None:
        """Store the Schedule and its status, atomically."""
        shown = redact_fields(schedule.to_yaml_dict())
        if shown["spec"].get("notify", {}).get("webhook"):
            shown["spec"]["notify"]["webhook"] = HIDDEN  # the path of such a URL often is a key
        metadata = {"name": schedule.metadata.name, "namespace": schedule.metadata.namespace, "creationTimestamp": written(created)}
        stored = {**shown, "metadata": metadata, "status": status.model_dump(mode="json", by_alias=True)}
        self._write(STATE, stored)

    # --- wishes

    def wishes(self) -> dict[str, Any]:
        """Fields of the Schedule's spec that other commands have set."""
        return self._read(WISHES) or {}

    def wish(self, changes: Mapping[str, Any]) -> None:
        """Set fields of the spec; None: as the file says. The runner sees them within seconds."""
        wanted = {**self.wishes(), **changes}
        self._write(WISHES, {name: value for name, value in wanted.items() if value is not None})

    # --- runs

    def job_file(self, run: str) -> Path:
        return self.path / "jobs" / f"{run}.yaml"

    def put_job(self, run: str, job: JobSpec) -> None:
        """Write the JobSpec of a run, atomically."""
        text = yaml.safe_dump(job.to_yaml_dict(), sort_keys=False, allow_unicode=True)
        self._store.put(f"jobs/{run}.yaml", text.encode())

    def job(self, run: str) -> dict[str, Any]:
        """The JobSpec of a run as its file says; empty where there is none."""
        file = self.job_file(run)
        return (yaml.safe_load(file.read_text()) or {}) if file.exists() else {}

    def log_file(self, run: str) -> Path:
        return self.path / "logs" / f"{run}.log"

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Whether this process has the folder for itself now. False: another runner has it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / _LOCK).open("w")
        except OSError as error:
            raise BadInput(f"cannot write to {self.path}: {error.strerror}", "give a folder that can be written to: --out DIR") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _read(self, name: str) -> dict[str, Any] | None:
        if not self._store.exists(name):
            return None
        try:
            found = json.loads(self._store.get(name))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise BadInput(f"{self.path / name} cannot be read", "remove it, or give another folder: --out DIR")
        return found

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        self._store.put(name, json.dumps(value, indent=1).encode() + b"\n")


def folders_below(path: Path) -> list[ScheduleFolder]:
    """The data folder at `path`, or those directly below it."""
    places = [path, *(sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else ())]
    return [ScheduleFolder(place) for place in places if (place / STATE).is_file()]
