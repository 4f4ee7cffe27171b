"""Samples as text for people, in pieces with loss and pieces without."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from tuneyard.data.messages import carries_loss
from tuneyard.data.roles import Chat, Completion, Pair, Sample, Text
from tuneyard.data.tool_calls import Message


@dataclass(frozen=True)
class Piece:
    """Part of a sample as text. `loss`: it carries loss."""

    text: str
    loss: bool


def token_pieces(tokenizer: Any, ids: Sequence[int], labels: Sequence[int]) -> list[Piece]:
    """Runs of tokens with loss, and without (label -100), decoded by the tokenizer with special tokens."""
    runs = groupby(zip(ids, labels, strict=True), key=lambda token: token[1] >= 0)
    return [Piece(tokenizer.decode([token for token, _ in run]), counted) for counted, run in runs]


def first_pieces(tokenizer: Any, rows: Any, *, pairs: bool = False) -> list[Piece]:
    """The first sample of prepared rows (`Prepared.train`); for packed rows, the first sample of the first row. `pairs`: both of its
    samples, under headings.
    """
    row = rows[0]
    starts = [place for place, position in enumerate(row.get("position_ids", (0,))) if position == 0]
    samples = [
        token_pieces(tokenizer, row["input_ids"][start:end], row["labels"][start:end])
        for start, end in pairwise([*starts, len(row["input_ids"])])
    ]
    return pair_pieces(*samples[:2]) if pairs else samples[0]


def pair_pieces(chosen: Sequence[Piece], rejected: Sequence[Piece]) -> list[Piece]:
    """Both samples of a pair, under headings."""
    return [Piece("chosen:\n", False), *chosen, Piece("\nrejected:\n", False), *rejected]


def plain_pieces(sample: Sample) -> list[Piece]:
    """A sample in a readable notation, without a tokenizer or template."""
    match sample:
        case Chat(messages):
            return [Piece(f"{m['role']}: {_said(m)}\n", carries_loss(m) and i >= sample.context) for i, m in enumerate(messages)]
        case Completion(prompt, completion):
            return [Piece(prompt, False), Piece(completion, True)]
        case Text(text):
            return [Piece(text, True)]
        case Pair(prompt, chosen, rejected):
            return [
                Piece(f"prompt: {_flat(prompt)}\n", False),
                Piece(f"chosen: {_flat(chosen)}\n", True),
                Piece(f"rejected: {_flat(rejected)}", False),
            ]


def _flat(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(f"{m['role']}: {_said(m)}" for m in content)


def _said(message: Message) -> str:
    calls = [
        f"{call['function']['name']}({json.dumps(call['function']['arguments'], ensure_ascii=False)})"
        for call in message.get("tool_calls", ())
    ]
    return " ".join(part for part in (message["content"], *calls) if part)
