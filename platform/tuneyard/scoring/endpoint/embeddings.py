"""Requests for embeddings, by OpenAI's reference of `/embeddings`, and their replies. Pure."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import Endpoint
from tuneyard.scoring.endpoint.reply import Answered, Reply, TryAgain, count_of, error_text, read_reply
from tuneyard.scoring.endpoint.request import CHARACTERS_PER_TOKEN
from tuneyard.scoring.rows import Paid

Vectors = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Texts:
    """The texts of one request."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class EmbeddingForm:
    """See `request.Form`."""

    endpoint: Endpoint
    noun: str = "the embedding endpoint"
    field: str = "embedding.endpoint"
    limit_field: str = ""
    usual_answer: float = 0.0

    def path(self, _: Texts) -> str:
        return "/embeddings"

    def body(self, prompt: Texts, seed: int | None) -> dict[str, Any]:  # noqa: ARG002 - nothing is sampled
        added = {name: value for name, value in self.endpoint.body.items() if value is not None}
        return {"model": self.endpoint.model, "input": list(prompt.texts), **added}

    def guessed_tokens(self, prompt: Texts) -> float:
        return sum(map(len, prompt.texts)) / CHARACTERS_PER_TOKEN

    def read(self, prompt: Texts, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        return read_reply(status, headers, body) if status != 200 else _read(body, len(prompt.texts))

    def with_newer_limit(self) -> EmbeddingForm:
        return self


def _read(body: bytes, count: int) -> Reply:
    try:
        values = json.loads(body)
        data = sorted(values["data"], key=lambda each: operator.index(each["index"]))
        vectors: Vectors = tuple(tuple(float(number) for number in each["embedding"]) for each in data)
        tokens = count_of((values.get("usage") or {}).get("prompt_tokens"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return TryAgain(f"its reply holds no embeddings: {error_text(body)}")
    paid = Paid(tokens or 0, 0, unknown=tokens is None)
    if len(vectors) != count:
        return TryAgain(f"it embedded {len(vectors)} of {count} texts", paid=paid)
    if [each["index"] for each in data] != list(range(count)):
        return TryAgain(f"the indexes of its {count} embeddings are not 0 to {count - 1}, each once", paid=paid)
    if len({len(vector) for vector in vectors}) != 1 or not vectors[0] or not all(math.isfinite(x) for vector in vectors for x in vector):
        return TryAgain("its embeddings have different lengths, or numbers that are not finite", paid=paid)
    return Answered("", "stop", tokens, 0, paid, vectors)
