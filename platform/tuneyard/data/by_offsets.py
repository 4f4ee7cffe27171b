"""Tokens of rendered chats, with loss assigned by the offsets of all tokens. This way works for every tokenizer and every chat.

Where a token would reach from the prompt into the answer ("\\n" + "    return" in byte-level BPE), prompt and answer are tokenised apart:
an engine is given the prompt's own tokens and never sees the joined token, so training must not see it either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneyard.data.borders import continued_tokens
from tuneyard.data.token_spans import Range, Tokens

Offsets = npt.NDArray[np.int64]
"""(tokens, 2): [start, end) of each token in characters."""


def tokens_in_pieces(tokenizer: Any, chats: Sequence[tuple[str, Sequence[Range], list[int]]]) -> Iterator[Tokens]:
    """As `tokens_by_offsets`, for texts that no token may cross at the places that stand behind the spans, in characters."""
    found = _cut(tokenizer, [(text, cuts) for text, _, cuts in chats])
    for (text, spans, cuts), (ids, offsets) in zip(chats, found, strict=True):
        if joined := _joined_starts(offsets, spans):
            [(ids, offsets)] = _cut(tokenizer, [(text, [*cuts, *joined])])
        yield Tokens(ids, _ranges(_inside(offsets, spans)))


def tokens_by_offsets(tokenizer: Any, chats: Sequence[tuple[str, Sequence[Range]]]) -> Iterator[Tokens]:
    """Tokens of each chat: its text, and the [start, end) in characters of its spans with loss.

    `tokenizer`: one with exact offsets (`with_exact_offsets`).
    """
    if not chats:
        return
    # No masks and type ids: they are not used, and building their lists takes as long as tokenising short chats.
    found = tokenizer(
        [text for text, _ in chats],
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    offsets = [_as_offsets(pairs) for pairs in found["offset_mapping"]]
    joined = {i: cuts for i, (_, spans) in enumerate(chats) if (cuts := _joined_starts(offsets[i], spans))}
    apart = dict(zip(joined, _cut(tokenizer, [(chats[i][0], cuts) for i, cuts in joined.items()]), strict=True))
    for i, (_, spans) in enumerate(chats):
        ids, borders = apart.get(i, (found["input_ids"][i], offsets[i]))
        yield Tokens(list(ids), _ranges(_inside(borders, spans)))


def _cut(tokenizer: Any, chats: list[tuple[str, list[int]]]) -> list[tuple[list[int], Offsets]]:
    """Tokenise texts, each in pieces that begin at the given characters."""
    if not chats:
        return []
    borders = [sorted({0, len(text), *cuts}) for text, cuts in chats]
    pieces = [(text[a:b], a) for (text, _), cuts in zip(chats, borders, strict=True) for a, b in pairwise(cuts)]
    found = iter(zip(pieces, continued_tokens(tokenizer, [(piece, start > 0) for piece, start in pieces], offsets=True), strict=True))
    whole = []
    for cuts in borders:
        parts = [next(found) for _ in cuts[:-1]]
        ids = [token for _, (piece_ids, _) in parts for token in piece_ids]
        whole.append((ids, np.concatenate([_as_offsets(pairs) + start for (_, start), (_, pairs) in parts])))
    return whole


def _as_offsets(pairs: Sequence[tuple[int, int]]) -> Offsets:
    return np.fromiter(chain.from_iterable(pairs), dtype=np.int64, count=2 * len(pairs)).reshape(-1, 2)


def _joined_starts(offsets: Offsets, spans: Sequence[Range]) -> list[int]:
    """Starts of spans that lie inside a token: the token begins before the span and ends in it."""
    starts, ends = offsets.T
    return [start for start, _ in spans if ((starts < start) & (ends > start)).any()]


def _inside(offsets: Offsets, spans: Sequence[Range]) -> npt.NDArray[np.bool_]:
    """True for tokens that overlap a span."""
    starts, ends = offsets.T
    inside = np.zeros(len(offsets), dtype=bool)
    for start, end in spans:
        inside |= (ends > start) & (starts < end)
    inside &= ends > starts
    return inside


def _ranges(chosen: npt.NDArray[np.bool_]) -> tuple[Range, ...]:
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0)).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))
