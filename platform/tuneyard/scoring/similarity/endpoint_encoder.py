"""An encoder whose texts an endpoint embeds: with the client, limits, retries and cost of endpoints that answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuneyard.api import Endpoint, Generation, JobFailed
from tuneyard.scoring.endpoint.clock import Clock
from tuneyard.scoring.endpoint.embeddings import EmbeddingForm, Texts
from tuneyard.scoring.endpoint.engine import EndpointEngine
from tuneyard.scoring.exchange import Answer, Generate
from tuneyard.scoring.rows import UNPAID, Paid
from tuneyard.scoring.similarity.encoded import Encoded

_BATCH = 32
"""Texts of a request: the least of the limits of common servers."""
_NO_DIRECTION = "the embedding endpoint gave a vector of zeros, which has no cosine with another"


class EndpointEncoder:
    """See `encoded.Encoder`."""

    warnings: tuple[str, ...] = ()

    def __init__(self, endpoint: Endpoint, *, key: str | None, instances: int = 1, clock: Clock | None = None) -> None:
        form = EmbeddingForm(endpoint)
        self._url = endpoint.url
        self._width: int | None = None
        self._engine = EndpointEngine(endpoint, Generation(), key=key, instances=instances, clock=clock, form=form)

    @property
    def paid(self) -> Paid:
        """Tokens of all replies so far."""
        return self._engine.paid

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Raises JobFailed where the endpoint refuses all requests, gives no answer for too long, or changes the width of its embeddings.

        An empty text has the embedding 0; a text to which the endpoint gives that one is an error, since it has no direction. The
        texts of a refused request are asked for one by one, so that each has an error of its own.
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
                    self._check_width(len(answer.vectors[0]))
                    vectors |= zip(batch, answer.vectors, strict=True)
                    errors = {text: error for text, error in errors.items() if text not in vectors}
                else:
                    errors |= dict.fromkeys(batch, answer.error or "no embedding")
        errors |= {text: _NO_DIRECTION for text, vector in vectors.items() if not any(vector)}
        failed = {index: errors[text.strip()] for index, text in enumerate(texts) if text.strip() in errors}
        return Encoded(_matrix([vectors.get(text.strip(), ()) for text in texts]), [False] * len(texts), failed, paid)

    def _check_width(self, width: int) -> None:
        self._width = self._width or width
        if width != self._width:
            raise JobFailed(
                f"the embedding endpoint {self._url} gave embeddings of {self._width} numbers, and later of {width}: "
                "they cannot be compared, for they are of two models or settings",
                "see that one model answers at embedding.endpoint, or set `dimensions` in embedding.endpoint.body, then resume",
            )

    def _answers(self, batches: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], Answer]]:
        requests = (Generate(number, Texts(batch)) for number, batch in enumerate(batches))
        return [(batches[answer.key], answer) for answer in self._engine.run(requests)]


def _batches(texts: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(texts[start : start + size]) for start in range(0, len(texts), size)]


def _matrix(vectors: Sequence[Sequence[float]]) -> Any:
    """The vectors with length 1 [texts, width]; 0 for an empty one. Each is divided by its largest number first, because squares of numbers
    such as 1e200 or 1e-200 are no 64-bit floats."""
    import numpy as np

    width = max(map(len, vectors), default=0)
    found = np.array([vector if len(vector) else [0.0] * width for vector in vectors], np.float64).reshape(len(vectors), width)
    largest = np.abs(found).max(axis=1, keepdims=True, initial=0.0)
    found = found / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return found / np.where(lengths > 0, lengths, 1.0)
