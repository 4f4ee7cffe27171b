"""TensorBoard: event files in `tensorboard/` of the job's output."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tuneyard.api import Tensorboard
from tuneyard.tracking.trackers.tracker import TrackedRun, TrackerKind


class TensorboardTracker:
    """An event file. A result of a whole task stands at the last step of the task."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._last: dict[str, int] = {}

    def parameters(self, values: Mapping[str, Any]) -> None:
        rows = "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in values.items())
        self._text(_shared(values), f"| parameter | value |\n|---|---|\n{rows}")

    def metrics(self, values: Mapping[str, float], *, axis: str, step: int | None) -> None:
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        at = self._last[axis] = self._last.get(axis, 0) if step is None else step
        for name, value in values.items():
            self._add(scalar_pb(name, value), at)

    def note(self, name: str, text: str) -> None:
        self._text(name, _cell(text))

    def flush(self) -> None:
        self._writer.flush()

    def end(self, status: str) -> None:
        self.note("status", status)
        self._writer.close()

    def _text(self, name: str, text: str) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(text_pb(name, text), 0)

    def _add(self, summary: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def _shared(names: Mapping[str, Any]) -> str:
    """`job` of job/team and job/tasks, `train/plan` of train/plan/zero."""
    first = next(iter(names), "parameters").split("/")
    return "/".join(first[:2]) if first[0] != "job" else "job"


def _cell(value: Any) -> str:
    """A text for TensorBoard's Markdown, in one line."""
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _open(_settings: Tensorboard, run: TrackedRun) -> TensorboardTracker:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    run.folder.mkdir(parents=True, exist_ok=True)
    return TensorboardTracker(EventFileWriter(str(run.folder)))


KIND = TrackerKind(title="TensorBoard", extra="tensorboard", open=_open)
