"""Similarities of the rows of a part: the cosine of each output and its closest reference."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuneyard.metrics.similarity import Similarity
from tuneyard.scoring.endpoint.key import key_of
from tuneyard.scoring.model_folder import model_folder
from tuneyard.scoring.request import ScoreRequest
from tuneyard.scoring.rows import Paid
from tuneyard.scoring.similarity.encoded import Encoder

if TYPE_CHECKING:
    from tuneyard.scoring.rows import ScoredRow

_DIGITS = 6
"""Of a cosine: further digits of 32-bit floats are noise, which would part rows with equal answers into won and lost ones."""


class Similarities:
    """Several threads may use it."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._lock = encoder, threading.Lock()

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._encoder.warnings

    @property
    def paid(self) -> Paid:
        """Tokens that an endpoint has charged for so far."""
        return self._encoder.paid

    def measure(self, rows: Sequence[ScoredRow]) -> None:
        """Set the similarity of all rows with an output and a reference. A row of a text without an embedding becomes an error.

        Tokens that an endpoint charges for are those of all rows together: they stand in the first of them.
        """
        taken = [row for row in rows if row.error is None and row.output is not None and row.references]
        texts = sorted({text for row in taken for text in (row.said, *row.wanted)})
        if not texts:
            return
        with self._lock:
            encoded = self._encoder.encode(texts)
        vectors, cut = encoded.vectors, encoded.cut
        taken[0].embedded = encoded.paid
        place = {text: index for index, text in enumerate(texts)}
        for row in taken:
            own, others = place[row.said], [place[reference] for reference in row.wanted]
            failed = next((encoded.errors[each] for each in (own, *others) if each in encoded.errors), None)
            if failed is not None:
                row.error = failed
                continue
            cosines = [float(vectors[own] @ vectors[other]) for other in others]
            closest = max(range(len(others)), key=lambda index: cosines[index])
            row.similarity = Similarity(_rounded(cosines[closest]), cut[own] or cut[others[closest]])


def _rounded(cosine: float) -> float:
    """A cosine without noise. NaN stays: it makes the row an error."""
    return round(max(-1.0, min(1.0, cosine)), _DIGITS) if math.isfinite(cosine) else cosine


def similarities_of(request: ScoreRequest) -> Similarities | None:
    """The encoder of a task, loaded in this process, or an endpoint; None: no metric needs it. Raises BadInput where it cannot be used."""
    asked = request.task.embedding
    if asked is None:
        return None
    if asked.endpoint is not None:
        from tuneyard.scoring.similarity.endpoint_encoder import EndpointEncoder

        key = key_of(asked.endpoint.api_key_variable, os.environ, "embedding.endpoint")
        return Similarities(EndpointEncoder(asked.endpoint, key=key, instances=request.instances))
    from tuneyard.scoring.similarity.encoder import SentenceEncoder

    assert asked.model is not None
    return Similarities(SentenceEncoder(model_folder(asked.model, Path(request.scratch) / "models", asked.revision)))
