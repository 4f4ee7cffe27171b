"""What encoders of sentences give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tuneyard.scoring.rows import UNPAID, Paid


@dataclass(frozen=True)
class Encoded:
    """`vectors`: embeddings of length 1 [texts, width], zero for a text without tokens. `cut`: whether each text was longer than the model
    takes. `errors`: place of a text -> why it has no embedding. `paid`: tokens for which an endpoint charges."""

    vectors: Any
    cut: Sequence[bool]
    errors: Mapping[int, str] = field(default_factory=dict)
    paid: Paid = UNPAID


class Encoder(Protocol):
    """`encoder.SentenceEncoder` on the CPU of a worker, or `endpoint_encoder.EndpointEncoder`. One thread at a time may use it."""

    warnings: tuple[str, ...]

    @property
    def paid(self) -> Paid:
        """Tokens that an endpoint has charged for so far."""

    def encode(self, texts: Sequence[str]) -> Encoded: ...
