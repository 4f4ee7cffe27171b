"""An encoder whose texts an endpoint embeds: with the client, limits, retries and cost of endpoints that answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuneyard.api import Endpoint, Generation
from tuneyard.scoring.endpoint.clock import Clock
from tuneyard.scoring.endpoint.embeddings import EmbeddingForm, Texts
from tuneyard.scoring.endpoint.engine import EndpointEngine
from tuneyard.scoring.exchange import Answer, Generate
from tuneyard.scoring.rows import UNPAID, Paid
from tuneyard.scoring.similarity.encoded import Encoded

_BATCH = 32
"""Texts of a request: the least of the limits of common servers."""


class EndpointEncoder:
    """See `encoded.Encoder`."""

    warnings: tuple[str, ...] = ()

    def __init__(self, endpoint: Endpoint, *, key: str | None, instances: int = 1, clock: Clock | None = None) -> None:
        form = EmbeddingForm(endpoint)
        self._engine = EndpointEngine(endpoint, Generation(), key=key, instances=instances, clock=clock, form=form)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Raises JobFailed where the endpoint refuses all requests, or gives no answer for too long.

        An empty text has the embedding 0. The texts of a refused request are asked for one by one, so that each has an error of its own.
        """
        shown = sorted({text.strip() for text in texts} - {""})
        vectors: dict[str, Sequence[float]] = {}
        errors: dict[str, str] = {}
        paid = UNPAID
        for size in (_BATCH, 1):
            left = [text for text in shown if text not in vectors]
            asked = _batches(left, size)
            for batch, answer in self._answers(asked):
                paid = paid.plus(answer.paid or Paid())
                if answer.vectors is not None:
                    vectors |= zip(batch, answer.vectors, strict=True)
                else:
                    errors |= dict.fromkeys(batch, answer.error or "no embedding")
        failed = {index: errors[text.strip()] for index, text in enumerate(texts) if text.strip() and text.strip() not in vectors}
        return Encoded(_matrix([vectors.get(text.strip(), ()) for text in texts]), [False] * len(texts), failed, paid)

    def _answers(self, batches: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], Answer]]:
        requests = (Generate(number, Texts(batch)) for number, batch in enumerate(batches))
        return [(batches[answer.key], answer) for answer in self._engine.run(requests)]


def _batches(texts: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(texts[start : start + size]) for start in range(0, len(texts), size)]


def _matrix(vectors: Sequence[Sequence[float]]) -> Any:
    """The vectors with length 1 [texts, width]; 0 for an empty one."""
    import numpy as np

    width = max(map(len, vectors), default=0)
    found = np.array([vector if len(vector) else [0.0] * width for vector in vectors], np.float64).reshape(len(vectors), width)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return found / np.where(lengths > 0, lengths, 1.0)
