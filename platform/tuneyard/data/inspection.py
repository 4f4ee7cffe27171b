"""A look into a data set before anything is trained on it: format, columns, lengths, bad rows, duplicates, one sample with its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

import numpy as np

from tuneyard.api import BadInput
from tuneyard.data.canonical import Canonical, LeftOut
from tuneyard.data.messages import BadSample
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.roles import Chat, Completion, Pair, Text, canonical_json, detect
from tuneyard.data.samples import DETECTION_ROWS, Placed, Tally, lacking
from tuneyard.data.shown import Piece, plain_pieces, token_pieces
from tuneyard.data.sources import locate

SUGGESTED_LENGTHS = (512, 1024, 2048, 4096, 8192)
_TOKENISED_SAMPLES = 10_000
_SHOWN_SAMPLES = 2
_UNLIMITED = 2**31 - 1


@dataclass(frozen=True)
class Column:
    """`types`: Python types seen in the first rows, most frequent first. `role`: what the column is used for, if anything."""

    name: str
    types: list[str]
    role: str = ""


@dataclass(frozen=True)
class Lengths:
    p50: int
    p90: int
    p99: int
    max: int

    @classmethod
    def of(cls, values: Sequence[int]) -> Lengths:
        p50, p90, p99 = (int(p) for p in np.percentile(values, (50, 90, 99)))
        return cls(p50, p90, p99, int(max(values)))


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """`format` is `unknown` where `why` says so; what needs a format (lengths, duplicates, samples shown) is empty then."""

    uri: str
    file_type: str
    files: int
    size_bytes: int
    format: str
    why: str
    columns: list[Column]
    samples: int
    complete: bool
    """False: only the first rows were read (`limit`)."""
    bad: int
    left_out: int = 0
    """Rows that are labelled as answers that must not be learned."""
    bad_examples: list[str] = field(default_factory=list)
    advice: str = ""
    """What to do about most of the bad rows, where that is not to repair them one by one."""
    duplicate_fraction: float = 0.0
    characters: Lengths | None = None
    tokens: Lengths | None = None
    loss_token_fraction: float | None = None
    ends_with: str | None = None
    """The token at which an engine ends an answer by itself; empty where the chat template or the tokenizer has none, None without a
    tokenizer and for texts."""
    longer_than: dict[int, float] = field(default_factory=dict)
    """maxLength -> share of samples that are longer, in tokens."""
    shown: list[list[Piece]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def inspect(
    uri: str,
    *,
    tokenizer: Any | None = None,
    file_type: str = "auto",
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    format: str = "auto",
    limit: int | None = None,
) -> Inspection:
    """Read `uri` (at most `limit` rows) and say what it is. `tokenizer` adds lengths in tokens and the chat template.

    Raises BadInput where nothing can be read at all, or `columns` and `format` do not fit; bad rows and unknown formats are results.
    """
    located = locate(uri, file_type=file_type, split=split)
    rows = read_records(located.files)
    head = list(islice(rows, DETECTION_ROWS))
    readable = [row.values for row in head if isinstance(row, Record)]
    tally = Tally(uri)
    try:
        canonical = Canonical(detect(readable, columns=columns, format=format, uri=uri), needs_assistant=True) if readable else None
        why = canonical.roles.why if canonical else _unreadable(head)
    except BadInput as error:
        if columns or format != "auto":
            raise
        canonical, why = None, error.cause.partition(": ")[2]
    look = _Look(canonical, tally)
    everything = chain(head, rows)
    for row in everything if limit is None else islice(everything, limit):
        look.at(row)
    complete = limit is None or next(everything, None) is None
    if tally.good + tally.bad + tally.left_out == 0:
        tally.check()
    tokenised = _tokenised(look.first, tokenizer, tally)
    roles = {column: role for role, column in canonical.roles.columns.items()} if canonical else {}
    return Inspection(
        uri=uri,
        file_type=located.kinds,
        files=len(located.files),
        size_bytes=located.size_bytes,
        format=canonical.roles.format if canonical else "unknown",
        why=why,
        columns=[Column(name, types, roles.get(name, "")) for name, types in _types(readable).items()],
        samples=tally.good,
        complete=complete,
        bad=tally.bad,
        left_out=tally.left_out,
        bad_examples=tally.bad_examples,
        advice=tally.advice,
        duplicate_fraction=1 - len(look.distinct) / len(look.characters) if look.characters else 0.0,
        characters=Lengths.of(look.characters) if look.characters else None,
        notes=[*located.notes, *filter(None, [canonical.roles.note() if canonical else None])],
        **tokenised,
    )


def _unreadable(rows: Sequence[Record | BadRow]) -> str:
    """Why none of the first rows could be read."""
    return next((f"no row can be read; {row.place}: {row.reason}" for row in rows if isinstance(row, BadRow)), "no row can be read")


class _Look:
    """What is kept of each row while all of them pass by."""

    def __init__(self, canonical: Canonical | None, tally: Tally) -> None:
        self._canonical, self._tally = canonical, tally
        self.characters: list[int] = []
        self.distinct: set[bytes] = set()
        self.first: list[Placed] = []

    def at(self, row: Record | BadRow) -> None:
        if isinstance(row, BadRow):
            self._tally.add_bad(row.place, row.reason, row.count, advice=row.advice)
            return
        if self._canonical is None:
            self._tally.good += 1
            return
        try:
            sample = self._canonical(row.values)
        except LeftOut:
            self._tally.left_out += 1
            return
        except BadSample as error:
            self._tally.add_bad(row.place, lacking(self._canonical.roles, row.values) or str(error), advice=error.advice)
            return
        self._tally.good += 1
        self.characters.append(sum(len(piece.text) for piece in plain_pieces(sample)))
        self.distinct.add(blake2b(canonical_json(sample).encode(), digest_size=12).digest())
        if len(self.first) < _TOKENISED_SAMPLES:
            self.first.append(Placed(row.place, sample))


def _types(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        for name, value in row.items():
            kind = "null" if value is None else type(value).__name__
            found.setdefault(name, {}).setdefault(kind, 0)
            found[name][kind] += 1
    return {name: sorted(kinds, key=lambda kind: -kinds[kind]) for name, kinds in found.items()}


def _tokenised(samples: Sequence[Placed], tokenizer: Any | None, tally: Tally) -> dict[str, Any]:
    """Fields of Inspection that depend on tokens, where there is a tokenizer; samples to show in any case. Those that the chat template
    refuses become bad rows of `tally`."""
    pairs = bool(samples) and isinstance(samples[0].sample, Pair)
    if tokenizer is None or not samples or pairs:
        return {"shown": [plain_pieces(placed.sample) for placed in samples[:_SHOWN_SAMPLES]]}
    from tuneyard.data.chat import choose_template
    from tuneyard.data.tokens import Encoder

    kind: Any = {Chat: "assistant", Completion: "completion", Text: "all"}[type(samples[0].sample)]
    template = choose_template(tokenizer, None) if any(isinstance(p.sample, Chat) for p in samples) else None
    encoded = Encoder(tokenizer, kind, _UNLIMITED, "error", template).encode(samples)
    for place, reason, advice in encoded.bad:
        tally.became_bad(place, reason, advice=advice)
    if not encoded.ids:
        return {"shown": [plain_pieces(placed.sample) for placed in samples[:_SHOWN_SAMPLES]]}
    lengths = [len(ids) for ids in encoded.ids]
    counted = sum(int((labels >= 0).sum()) for labels in encoded.labels)
    return {
        "tokens": Lengths.of(lengths),
        "loss_token_fraction": counted / sum(lengths),
        "ends_with": None if kind == "all" else _end_of_answers(tokenizer, chats=template is not None),
        "longer_than": {limit: sum(n > limit for n in lengths) / len(lengths) for limit in SUGGESTED_LENGTHS},
        "shown": [
            token_pieces(tokenizer, encoded.ids[i].tolist(), encoded.labels[i].tolist()) for i in range(min(_SHOWN_SAMPLES, len(lengths)))
        ],
    }


def _end_of_answers(tokenizer: Any, *, chats: bool) -> str:
    from tuneyard.data.turns import turn_end

    end = turn_end(tokenizer) if chats else tokenizer.eos_token_id
    return "" if end is None else str(tokenizer.convert_ids_to_tokens(end))
