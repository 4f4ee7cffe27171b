"""Tokens at the border of a prompt and an answer, as an engine sees them: the prompt is tokenised alone, and the answer continues it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

Pairs = list[tuple[int, int]]
_BEFORE = "\n"


def with_exact_offsets(tokenizer: Any) -> Any:
    """The tokenizer, or a copy of it whose offsets include blanks. For texts without added special tokens.

    Post-processors of byte-level tokenizers trim blanks from offsets by default (Llama 3's does). A token of blanks then spans no
    character, and a token that begins with a blank seems to begin after it.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.post_processor is None or not _trims(json.loads(backend.post_processor.__getstate__())):
        return tokenizer
    from tokenizers.processors import ByteLevel

    exact = copy.deepcopy(tokenizer)
    exact.backend_tokenizer.post_processor = ByteLevel(trim_offsets=False)
    return exact


def _trims(processor: Any) -> bool:
    return bool(processor.get("trim_offsets")) or any(map(_trims, processor.get("processors", ())))


def continued_tokens(tokenizer: Any, pieces: Sequence[tuple[str, bool]], *, offsets: bool) -> Iterator[tuple[list[int], Pairs]]:
    """Tokens of each text, and their `offsets` if asked for (else an empty list). `pieces`: (text, whether it continues another text).

    Tokenizers in the manner of sentencepiece put a blank before each text. A text that continues another one gets no such blank.
    """
    before = _before(tokenizer)
    found = _tokens(tokenizer, [_BEFORE + text if goes_on and before else text for text, goes_on in pieces], offsets)
    for (text, goes_on), (ids, pairs) in zip(pieces, found, strict=True):
        if not (goes_on and before):
            yield ids, pairs
        elif ids[: len(before)] == before:
            shift = len(_BEFORE)
            yield ids[len(before) :], [(max(0, start - shift), end - shift) for start, end in pairs[len(before) :]]
        else:  # its first character merged with _BEFORE into one token
            yield from _tokens(tokenizer, [text], offsets)


def puts_blanks(tokenizer: Any) -> bool:
    """Whether a tokenizer puts a blank before each text."""
    return bool(_before(tokenizer))


def _before(tokenizer: Any) -> list[int]:
    """Tokens of _BEFORE, which is put before a continued text; empty where the tokenizer adds no blank."""
    (before, _), (alone, _), (behind, _) = _tokens(tokenizer, [_BEFORE, "x", f"{_BEFORE}x"], offsets=False)
    return before if behind[: len(before)] == before and behind[len(before) :] != alone else []


def _tokens(tokenizer: Any, texts: list[str], offsets: bool) -> list[tuple[list[int], Pairs]]:
    if not texts:
        return []
    found = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=offsets, verbose=False)
    return list(zip(found["input_ids"], found["offset_mapping"] if offsets else [[] for _ in texts], strict=True))
