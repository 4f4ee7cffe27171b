"""The order in which an engine gets the requests of a part. Rows are written in input order whatever it is.

Prompts with the same beginning follow each other, so that the engine finds the beginning in its prefix cache before it is evicted. Of
these, and of all others, longer ones come first: a long prompt that starts last would run alone at the end. The likelihood of a row
precedes its answer: vLLM computes likelihoods without the cache, and the answer then finds the prompt in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tuneyard.scoring.exchange import Asked, Evaluate

SHARED_TOKENS = 128
"""Tokens of a beginning: a block of vLLM's cache on CPU, and a multiple of its blocks on GPUs."""


def ordered(requests: Sequence[Asked]) -> list[Asked]:
    """The same requests, of token ids, in the best order. Equal ones stay in their order."""
    rows: dict[Any, list[Asked]] = {}
    for request in requests:
        rows.setdefault(request.key, []).append(request)
    beginnings = {key: tuple(_ids(of_row[0])[:SHARED_TOKENS]) for key, of_row in rows.items()}
    sizes = Counter(begun for begun in beginnings.values() if len(begun) == SHARED_TOKENS)

    def rank(key: Any) -> tuple[tuple[int, ...], int]:
        begun = beginnings[key]
        return begun if sizes[begun] > 1 else (), -max(len(_ids(request)) for request in rows[key])

    return [
        request for key in sorted(rows, key=rank) for request in sorted(rows[key], key=lambda request: not isinstance(request, Evaluate))
    ]


def _ids(request: Asked) -> list[int]:
    ids: list[int] = request.tokens.ids if isinstance(request, Evaluate) else request.prompt
    return ids
