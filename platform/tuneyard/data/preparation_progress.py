"""The progress of preparation, by bytes of source, with the time that is left, and the setting that asks for the wait."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import accumulate

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

    def begin(self, splits: Sequence[Split], limit: int | None) -> None:
        """`limit`: samples at most; their bytes are not known."""
        self._before = list(accumulate((split.size_bytes for split in splits), initial=0))
        self._limit, self._samples, self._bytes = limit, 0, 0
        self._began = self._told = time.monotonic()
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
        left_s = self._left_s(now - self._began)
        if left_s is not None and left_s > _LONG_S and not self._explained:
            self._explained = True
            why = f": {self._why}" if self._why else ""
            self._emit(Stage(task=self._task, name=f"all rows are made before the first step, in about {left_s:.0f} s more{why}"))
        self._tell(left_s)

    def end(self) -> None:
        """All samples are tokenised."""
        self._bytes = self._before[-1]
        self._tell(0.0)

    def packs(self, samples: int) -> None:
        self._emit(Stage(task=self._task, name="packing", done=0, of=samples, unit="samples"))

    def _left_s(self, elapsed_s: float) -> float | None:
        done, of = (self._samples, self._limit) if self._limit else (self._bytes, self._before[-1])
        return elapsed_s * (of - done) / done if elapsed_s >= _PACE_KNOWN_S and done else None

    def _tell(self, left_s: float | None = None) -> None:
        if self._limit:
            done, of, unit = float(min(self._samples, self._limit)), float(self._limit), "samples"
        else:
            size, unit = (_MB, "MB") if self._before[-1] >= _IN_MB_FROM else (_KB, "kB")
            done, of = self._bytes / size, max(1.0, self._before[-1] / size)
        self._emit(Stage(task=self._task, name="tokenising", done=done, of=of, unit=unit, left_s=left_s))
