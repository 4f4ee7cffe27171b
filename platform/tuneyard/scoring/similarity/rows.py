"""Similarities of the rows of a part: the cosine of each output and its closest reference."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tuneyard.metrics.similarity import Similarity
from tuneyard.scoring.model_folder import model_folder
from tuneyard.scoring.request import ScoreRequest

if TYPE_CHECKING:
    from tuneyard.scoring.rows import ScoredRow

_DIGITS = 6
"""Of a cosine: further digits of 32-bit floats are noise, which would part rows with equal answers into won and lost ones."""


class Encoder(Protocol):
    """See `encoder.SentenceEncoder`."""

    warnings: tuple[str, ...]

    def encode(self, texts: Sequence[str]) -> tuple[Any, list[bool]]: ...


class Similarities:
    """Several threads may use it."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._lock = encoder, threading.Lock()

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._encoder.warnings

    def measure(self, rows: Sequence[ScoredRow]) -> None:
        """Set the similarity of all rows with an output and a reference."""
        taken = [row for row in rows if row.error is None and row.output is not None and row.references]
        texts = sorted({text for row in taken for text in (row.output or "", *row.references)})
        if not texts:
            return
        with self._lock:
            vectors, cut = self._encoder.encode(texts)
        place = {text: index for index, text in enumerate(texts)}
        for row in taken:
            own, others = place[row.output or ""], [place[reference] for reference in row.references]
            cosines = [float(vectors[own] @ vectors[other]) for other in others]
            closest = max(range(len(others)), key=lambda index: cosines[index])
            row.similarity = Similarity(_rounded(cosines[closest]), cut[own] or cut[others[closest]])


def _rounded(cosine: float) -> float:
    """A cosine without noise. NaN stays: it makes the row an error."""
    return round(max(-1.0, min(1.0, cosine)), _DIGITS) if math.isfinite(cosine) else cosine


def similarities_of(request: ScoreRequest) -> Similarities | None:
    """The encoder of a task, fetched and loaded in this process; None: no metric needs it. Raises BadInput where it cannot be used."""
    asked = request.task.embedding
    if asked is None:
        return None
    from tuneyard.scoring.similarity.encoder import SentenceEncoder

    return Similarities(SentenceEncoder(model_folder(asked.model, Path(request.scratch) / "models", asked.revision)))
