"""The progress of preparation, by bytes of source, with the time that is left, and the setting that asks for the wait.

The process that prepares need not be the one whose events people see. It also writes its words into a file, and the processes that wait for
it tell them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from tuneyard.api import TrainData
from tuneyard.data.stream.splits import Split
from tuneyard.data.tokens import Encoded
from tuneyard.tracking import Emit, Stage

_EVERY_S = 0.5
_PACE_KNOWN_S, _LONG_S = 2.0, 10.0
"""Seconds after which the pace tells the time left, and the time left from which the reason is told."""
_MB, _KB, _IN_MB_FROM = 1e6, 1e3, 10e6


def why_prepared(spec: TrainData, steps: int | None) -> str:
    """The setting for which data that could be streamed are prepared, and the way around it; empty where there is none."""
    if spec.limit is not None:
        return "data.limit asks for it (without it, data that take long are streamed)"
    if spec.streaming is False:
        return "data.streaming: false asks for it (without it, data that take long are streamed)"
    if steps is None:
        return "`epochs` becomes steps by their exact number (with `steps` in place of `epochs`, the first step comes within seconds)"
    return ""


class Progress:
    """Tells how far preparation is. `why`: as `why_prepared`."""

    def __init__(self, emit: Emit, task: str, why: str) -> None:
        self._emit, self._task, self._why = emit, task, why
        self._file: Path | None = None

    def tell_in(self, file: Path) -> None:
        """Write all that is told to `file` too, for `heard` in another process."""
        self._file = file

    def heard(self, words: str) -> None:
        """Tell the words of the process that prepares."""
        self._emit(Stage(task=self._task, **json.loads(words)))

    def begin(self, splits: Sequence[Split], limit: int | None) -> None:
        """`limit`: samples at most; their bytes are not known."""
        self._before = list(accumulate((split.size_bytes for split in splits), initial=0))
        self._limit, self._samples, self._bytes = limit, 0, 0
        self._told = time.monotonic()
        self._first: tuple[float, float] | None = None
        self._explained = False
        self._tell()

    def made(self, encoded: Encoded) -> None:
        """Count a batch."""
        self._samples += encoded.samples
        if encoded.splits:
            self._bytes = self._before[encoded.splits[-1]]
        now = time.monotonic()
        if now - self._told < _EVERY_S:
            return
        self._told = now
        left_s = self._left_s(now)
        if left_s is not None and left_s > _LONG_S and not self._explained:
            self._explained = True
            why = f": {self._why}" if self._why else ""
            self._say(name=f"all rows are made before the first step, in about {left_s:.0f} s more{why}")
        else:
            self._tell(left_s)

    def end(self) -> None:
        """All samples are tokenised."""
        self._bytes = self._before[-1]
        self._tell(0.0)

    def packs(self, samples: int) -> None:
        self._say(name="packing", done=0, of=samples, unit="samples")

    def _left_s(self, now: float) -> float | None:
        """Seconds to the end by the pace since the first batch, before which processes start."""
        done, of = (self._samples, self._limit) if self._limit else (self._bytes, self._before[-1])
        if self._first is None:
            self._first = now, done
        began, before = self._first
        return (now - began) * (of - done) / (done - before) if now - began >= _PACE_KNOWN_S and done > before else None

    def _tell(self, left_s: float | None = None) -> None:
        if self._limit:
            done, of, unit = float(min(self._samples, self._limit)), float(self._limit), "samples"
        else:
            size, unit = (_MB, "MB") if self._before[-1] >= _IN_MB_FROM else (_KB, "kB")
            done, of = self._bytes / size, max(1.0, self._before[-1] / size)
        self._say(name="tokenising", done=done, of=of, unit=unit, left_s=left_s)

    def _say(self, **stage: Any) -> None:
        self._emit(Stage(task=self._task, **stage))
        if self._file is not None:
            beside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
            beside.write_text(json.dumps(stage))
            beside.rename(self._file)
