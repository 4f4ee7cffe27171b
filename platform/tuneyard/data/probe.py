"""A look at some 200 rows of a data set, rendered and tokenised by the code that trains: what cannot be trained on is known before anything
starts, and lengths in tokens are those of training. The rows are spread over the set; of a set in a store, they are its first ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from random import Random
from typing import Any

import numpy as np

from tuneyard.api import TrainData
from tuneyard.data import read_limit
from tuneyard.data.canonical import Canonical
from tuneyard.data.encoders import encoder_of
from tuneyard.data.measure import sample_size
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.roles import Completion, Pair
from tuneyard.data.samples import Objective, Placed, Tally, samples_of, training_samples
from tuneyard.data.sampling import RowSample
from tuneyard.data.sources import Located, locate
from tuneyard.data.tokens import IGNORED

ROWS = 200
_MOST_READ = 50_000
"""Rows that are read of a larger data set whose first `limit` rows count."""
READ_WHOLE_BYTES = 32 << 20
"""Rows of a set up to this size are taken from all rows; of a larger set, from places that are spread over its bytes."""
_GLUED_SHOWN = 24


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What the rows are that were looked at. Lists have an item for each sample, or for the longer of a pair's two."""

    rows: int
    """Rows that were looked at, good or bad."""
    complete: bool
    """They are all rows."""
    read_bytes: int | None = None
    """Bytes that were read of a set in a store, whose first rows are looked at. None: the rows are spread over the set."""
    format: str = ""
    """`Roles.format`."""
    bad: int = 0
    bad_examples: list[str] = field(default_factory=list)
    advice: str = ""
    sizes: list[int] = field(default_factory=list)
    """Characters of each sample, as `measure.sample_size` counts them."""
    tokens: list[int] = field(default_factory=list)
    """Tokens of each sample, uncut."""
    needed: list[int] = field(default_factory=list)
    """maxLength with which a sample keeps at least one token that carries loss."""
    glued: str = ""
    """An example of a prompt that runs into its answer, where most do; empty: they do not, or a template stands between them."""
    has_template: bool = False
    """The tokenizer has a chat template."""

    @property
    def is_head(self) -> bool:
        """The rows are the first ones of more, and need not be like the others."""
        return self.read_bytes is not None and not self.complete

    @property
    def extent(self) -> str:
        """How much was looked at, for people."""
        if self.complete:
            return f"all {self.rows:,} rows"
        if self.read_bytes is None:
            return f"{self.rows:,} rows, spread over all"
        return f"the first {self.rows:,} rows, for which {self.read_bytes / 1e6:.1f} MB were read"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def probe(spec: TrainData, tokenizer: Any, *, objective: Objective) -> Probe:
    """Look at the data of `spec`, one data set with a resolved `source`; under a limit of `read_limit` at its first rows.

    Raises BadInput where columns or tokenizer do not fit, and ReadLimit.
    """
    assert spec.source is not None
    located = locate(spec.source, file_type=spec.file_type, split=spec.split, sheet=spec.sheet)
    limited = read_limit.limit()
    rows, complete = _spread_rows(located, spec.limit) if limited is None else _first_rows(located, spec.limit)
    head = None if limited is None else iter(rows)
    roles, _ = training_samples(located, Tally(located.uri), source=spec, spec=spec, objective=objective, rows=head)
    if (
        limited is None
        and spec.limit is None
        and located.size_bytes > READ_WHOLE_BYTES
        and any(file.kind == "csv" for file in located.files)
    ):
        rows = [row for row in rows if isinstance(row, Record)]  # a block may begin inside of a quoted field: its bad rows say nothing
    tally = Tally(located.uri)
    samples = list(samples_of(iter(rows), tally, Canonical(roles, objective == "sft" and spec.loss_on != "all")))
    unlimited = spec.model_copy(update={"max_length": 2**31 - 1, "overlong": "truncate"})
    encoder = encoder_of(unlimited, tokenizer, roles, objective)
    sizes, tokens, needed = list[int](), list[int](), list[int]()
    for placed in samples:
        encoded = encoder.encode([placed])
        for place, reason, advice in encoded.bad:
            tally.became_bad(place, reason, advice=advice)
        if not encoded.ids:
            continue
        sizes.append(sample_size(placed.sample))
        tokens.append(max(map(len, encoded.ids)))
        needed.append(max(int(np.flatnonzero(labels != IGNORED)[0]) + 1 for labels in encoded.labels))
    return Probe(
        rows=len(rows),
        complete=complete,
        read_bytes=limited.read if limited is not None else None,
        format=roles.format,
        bad=tally.bad,
        bad_examples=tally.bad_examples,
        advice=tally.advice,
        sizes=sizes,
        tokens=tokens,
        needed=needed,
        glued="" if roles.as_messages else _glued(samples),
        has_template=tokenizer.chat_template is not None,
    )


def _first_rows(located: Located, limit: int | None) -> tuple[list[Record | BadRow], bool]:
    """The first rows, up to ROWS, and whether these are all. Raises ReadLimit where not one row is within the limit."""
    rows, most = list[Record | BadRow](), min(ROWS, limit or ROWS)
    try:
        for row in islice(read_records(located.files), most):
            rows.append(row)
    except read_limit.ReadLimit:
        if not rows:
            raise
        return rows, False
    return rows, len(rows) < most or most == limit


def _spread_rows(located: Located, limit: int | None) -> tuple[list[Record | BadRow], bool]:
    """Up to ROWS rows that are spread over the data set, or over its first `limit` rows, and whether these are all."""
    whole = located.size_bytes <= READ_WHOLE_BYTES or limit is not None
    drawn, kept, count = Random(0), list[tuple[int, Record | BadRow]](), 0  # at random: every nth row may be of one kind
    most = limit if limit is None or located.size_bytes <= READ_WHOLE_BYTES else min(limit, _MOST_READ)
    for row in islice(read_records(located.files), most) if whole else RowSample(located.files):
        place = count if count < ROWS else drawn.randrange(count + 1)
        if place < ROWS:
            kept[place : place + 1] = [(count, row)]
        count += 1
    return [row for _, row in sorted(kept, key=lambda each: each[0])], whole and len(kept) == count and (
        most is None or most == limit or count < most
    )


def _glued(samples: Sequence[Placed]) -> str:
    """An example, where most prompts run into their answers without a blank or a line break between them."""
    found = [pair for placed in samples for pair in _texts(placed)]
    joined = [(prompt, answer) for prompt, answer in found if prompt and not prompt[-1].isspace() and not answer[0].isspace()]
    if len(joined) * 2 <= len(found):
        return ""
    prompt, answer = joined[0]
    return f"…{prompt[-_GLUED_SHOWN:]}{answer[:_GLUED_SHOWN]}…"


def _texts(placed: Placed) -> Iterator[tuple[str, str]]:
    sample = placed.sample
    if isinstance(sample, Completion):
        yield sample.prompt, sample.completion
    elif isinstance(sample, Pair) and isinstance(sample.prompt, str) and isinstance(sample.chosen, str):
        yield sample.prompt, sample.chosen
