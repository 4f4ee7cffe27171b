"""Inspection of a data set before training: format, columns, lengths, bad rows, duplicates, one sample with its loss.

A set above SAMPLED_FROM_BYTES is inspected by a sample, which takes seconds at any size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np

from tuneyard.api import BadInput
from tuneyard.data.canonical import Canonical
from tuneyard.data.forms import FORMS
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.roles import Chat, Completion, Pair, Roles, Sample, Text, detect
from tuneyard.data.row_statistics import Bin, RowStatistics, binned, most_duplicates
from tuneyard.data.samples import DETECTION_ROWS, Placed, Tally, settled
from tuneyard.data.sampling import PLACES, RowSample
from tuneyard.data.shown import Piece, pair_pieces, plain_pieces, token_pieces
from tuneyard.data.sources import Located, locate
from tuneyard.data.templated import COLUMN

SUGGESTED_LENGTHS = (512, 1024, 2048, 4096, 8192)
SAMPLED_FROM_BYTES = 128 << 20
"""A smaller set is read whole, in a few seconds; of a larger set a sample is read."""
CHARACTERS_PER_TOKEN = 4
"""For English text and code; assumed where there is no tokenizer."""
_COMPRESSION = 4
"""Bytes of text per byte of a compressed file: an assumption."""
_TOKENISED_SAMPLES = 10_000
_TOKENISED_OF_A_SAMPLE = 2_000_000
"""Characters, which take a second or two."""
_SHOWN_SAMPLES = 2
_UNLIMITED = 2**31 - 1
_TOLD_EVERY = 500


@dataclass(frozen=True)
class Column:
    """`types`: Python types seen in the first rows, most frequent first. `role`: the role of the column; empty where it has none."""

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


@dataclass(frozen=True)
class Sampled:
    """A sample that stands for the whole set. `seed` drew its places; `rows`: estimated rows of the whole set."""

    read_bytes: int
    seed: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The result. Where no format fits, `format` is `unknown`, `why` gives the reason, and lengths, duplicates and samples are empty."""

    uri: str
    file_type: str
    files: int
    size_bytes: int
    format: str
    why: str
    columns: list[Column]
    samples: int
    complete: bool
    """False: only the first rows were read (`limit`), or a sample (`sampled`)."""
    bad: int
    left_out: int = 0
    """Rows labelled as answers that must not be learned."""
    bad_examples: list[str] = field(default_factory=list)
    advice: str = ""
    """The remedy for most bad rows, where it is not to repair them one by one; where no format fits, the next step."""
    sampled: Sampled | None = None
    """The sample that all figures describe. None: they describe all rows that were read."""
    empty: int = 0
    """Bad rows whose required columns are empty."""
    duplicate_fraction: float = 0.0
    most_duplicates: float = 0.0
    """Upper bound of the share of rows that repeat another row; from a sample, with 95 % confidence."""
    characters: Lengths | None = None
    character_bins: list[Bin] = field(default_factory=list)
    loss_character_fraction: float | None = None
    tokens: Lengths | None = None
    token_bins: list[Bin] = field(default_factory=list)
    loss_token_fraction: float | None = None
    ends_with: str | None = None
    """The token at which an engine ends an answer; empty where neither chat template nor tokenizer has one. None without a tokenizer and
    for texts."""
    longer_than: dict[int, float] = field(default_factory=dict)
    """maxLength -> share of samples with more tokens."""
    longer_than_assumed: dict[int, float] = field(default_factory=dict)
    """The same estimated without a tokenizer, at CHARACTERS_PER_TOKEN."""
    shown: list[list[Piece]] = field(default_factory=list)
    roles: dict[str, str] = field(default_factory=dict)
    """Role -> column or path, of the rows' own columns; empty where a form reads them."""
    as_messages: bool = False
    """A chat template renders the samples."""
    strangers: list[str] = field(default_factory=list)
    """Speakers of chats that have no usual role."""
    notes: list[str] = field(default_factory=list)

    @property
    def false_labels(self) -> str:
        """How many rows are left out by their labels, for people; empty where none is."""
        label = self.roles.get("label")
        if not self.left_out or label is None:
            return ""
        of = self.left_out + self.samples + self.bad
        return f"{self.left_out:,} of {of:,} rows are labelled false by {label}, as answers that must not be learned, and are left out"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def inspect(
    uri: str,
    *,
    tokenizer: Any | None = None,
    file_type: str = "auto",
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
    template: str | None = None,
    chat: bool = False,
    sheet: str | None = None,
    format: str = "auto",
    limit: int | None = None,
    everything: bool = False,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Inspection:
    """Inspect `uri`: all rows, the first `limit` rows, or a sample where the set is large and `everything` is False.

    `roles`: speaker -> role. `template`, `chat`: as in the data of a task. `sheet`: of a workbook. `tokenizer` adds lengths in tokens and
    the chat template.
    `on_progress` is called with (done, total); a total of 0 is unknown.
    Raises BadInput where no row can be read, or `columns` and `format` do not fit. Bad rows and unknown formats are results, not errors.
    """
    located = locate(uri, file_type=file_type, split=split, sheet=sheet)
    large = limit is None and _text_bytes(located) > SAMPLED_FROM_BYTES
    sample = RowSample(located.files) if large and not everything else None
    rows = iter(sample) if sample else read_records(located.files)
    head = list(islice(rows, DETECTION_ROWS))
    readable = [row.values for row in head if isinstance(row, Record)]
    tally, step = Tally(uri), ""
    more: list[Record | BadRow] = []
    try:
        roles_found = (
            detect(readable, columns=columns, format=format, uri=uri, speakers=roles, template=template, chat=chat) if readable else None
        )
        if roles_found is not None:
            roles_found, more = settled(roles_found, readable, rows)
        canonical = Canonical(roles_found) if roles_found is not None else None
        why = canonical.roles.why if canonical else _unreadable(head)
    except BadInput as error:
        if columns or template or format != "auto":
            raise
        canonical, why, step = None, error.cause.partition(": ")[2], error.next_step
    statistics = RowStatistics(canonical, tally)
    expected = _expected_rows(located) if large and everything else 0
    every = chain(head, more, rows)
    for number, row in enumerate(every if limit is None else islice(every, limit)):
        statistics.add(row)
        if number % _TOLD_EVERY == 0:
            on_progress(*((sample.places, PLACES) if sample else (min(number, expected), expected)))
    complete = sample is None and (limit is None or next(every, None) is None)
    if tally.good + tally.bad + tally.left_out == 0:
        tally.check()
    tokenised = _tokenised(statistics.spread(_TOKENISED_SAMPLES, _TOKENISED_OF_A_SAMPLE if sample else _UNLIMITED), tokenizer, tally)
    parts = _parts_of(canonical.roles, readable) if canonical else {}
    stands_for = sample.estimated_rows() if sample else 0
    return Inspection(
        uri=uri,
        file_type=located.kinds,
        files=len(located.files),
        size_bytes=located.size_bytes,
        format=canonical.roles.format if canonical else "unknown",
        why=why,
        columns=[Column(name, types, parts.get(name, "")) for name, types in _types(readable).items()],
        samples=tally.good,
        complete=complete,
        sampled=Sampled(sample.read_bytes, sample.seed, stands_for) if sample else None,
        bad=tally.bad,
        empty=statistics.empty,
        left_out=tally.left_out,
        bad_examples=tally.bad_examples,
        advice=tally.advice or step,
        duplicate_fraction=statistics.duplicate_fraction,
        most_duplicates=most_duplicates(statistics.times, stands_for) if sample else statistics.duplicate_fraction,
        characters=Lengths.of(statistics.characters) if statistics.characters else None,
        character_bins=binned(statistics.characters),
        loss_character_fraction=statistics.loss_fraction,
        longer_than_assumed=_longer_than([n / CHARACTERS_PER_TOKEN for n in statistics.characters]) if tokenizer is None else {},
        roles=_own_roles(canonical.roles) if canonical else {},
        as_messages=canonical is not None and canonical.roles.as_messages,
        strangers=list(canonical.roles.strangers) if canonical else [],
        notes=[*located.notes, *(canonical.roles.notes() if canonical else [])],
        **tokenised,
    )


def _parts_of(roles: Roles, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Column -> the role that it has, or that a part of it has."""
    if roles.form:
        form = FORMS[roles.form]
        fitting = next((row for row in rows if form.has(row)), form.example)
        return {path if path in fitting else path.partition(".")[0].partition("[")[0]: "form" for path in form.uses(fitting)}
    placed = {column: f"{{{place}}} of the template" for place, column in roles.places.items()}
    inside = {path.partition(".")[0].partition("[")[0]: f"{role} ({path})" for role, path in roles.columns.items() if path in roles.paths}
    return inside | {column: role for role, column in roles.columns.items() if column not in roles.paths} | placed


def _own_roles(roles: Roles) -> dict[str, str]:
    own = {role: column for role, column in roles.columns.items() if column != COLUMN}
    return {} if roles.form else own | ({"prompt": next(iter(roles.places.values()))} if len(roles.places) == 1 else {})


def _text_bytes(located: Located) -> int:
    """Bytes of all files as uncompressed text."""
    return sum(file.size_bytes * (_COMPRESSION if file.compression else 1) for file in located.files)


def _expected_rows(located: Located) -> int:
    sample = RowSample(located.files)
    for _ in sample:
        pass
    return sample.estimated_rows()


def _longer_than(lengths: Sequence[float]) -> dict[int, float]:
    return {limit: sum(n > limit for n in lengths) / len(lengths) for limit in SUGGESTED_LENGTHS} if lengths else {}


def _unreadable(rows: Sequence[Record | BadRow]) -> str:
    """The reason why none of the first rows could be read."""
    return next((f"no row can be read; {row.place}: {row.reason}" for row in rows if isinstance(row, BadRow)), "no row can be read")


def _types(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        for name, value in row.items():
            kind = "null" if value is None else type(value).__name__
            found.setdefault(name, {}).setdefault(kind, 0)
            found[name][kind] += 1
    return {name: sorted(kinds, key=lambda kind: -kinds[kind]) for name, kinds in found.items()}


def _tokenised(samples: Sequence[Placed], tokenizer: Any | None, tally: Tally) -> dict[str, Any]:
    """Fields of Inspection that depend on tokens (empty without a tokenizer), and samples to show.

    Samples that the chat template refuses become bad rows of `tally`.
    """
    if tokenizer is None or not samples:
        return {"shown": [plain_pieces(placed.sample) for placed in samples[:_SHOWN_SAMPLES]]}
    from tuneyard.data.chat import choose_template
    from tuneyard.data.tokens import Encoder

    pairs = isinstance(samples[0].sample, Pair)
    parts: list[Sample] = []
    for placed in samples:
        parts.extend(placed.sample.halves if isinstance(placed.sample, Pair) else [placed.sample])
    kind: Any = {Chat: "assistant", Completion: "completion", Text: "all"}[type(parts[0])]
    template = choose_template(tokenizer, None) if any(isinstance(part, Chat) for part in parts) else None
    encoded = Encoder(tokenizer, kind, _UNLIMITED, "error", template).encode(samples)
    for place, reason, advice in encoded.bad:
        tally.became_bad(place, reason, advice=advice)
    if not encoded.ids:
        return {"shown": [plain_pieces(placed.sample) for placed in samples[:_SHOWN_SAMPLES]]}
    lengths = [len(ids) for ids in encoded.ids]
    counted = sum(int((labels >= 0).sum()) for labels in encoded.labels)
    few = list(zip(encoded.ids, encoded.labels, strict=True))[: _SHOWN_SAMPLES * (2 if pairs else 1)]
    shown = [token_pieces(tokenizer, ids.tolist(), labels.tolist()) for ids, labels in few]
    return {
        "tokens": Lengths.of(lengths),
        "loss_token_fraction": counted / sum(lengths),
        "ends_with": None if kind == "all" else _end_of_answers(tokenizer, chats=template is not None),
        "longer_than": _longer_than(lengths),
        "token_bins": binned(lengths),
        "shown": [pair_pieces(*shown[i : i + 2]) for i in range(0, len(shown), 2)] if pairs else shown,
    }


def _end_of_answers(tokenizer: Any, *, chats: bool) -> str:
    from tuneyard.data.turns import turn_end

    end = turn_end(tokenizer) if chats else tokenizer.eos_token_id
    return "" if end is None else str(tokenizer.convert_ids_to_tokens(end))
