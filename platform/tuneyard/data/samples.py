"""Located files become canonical samples. A tally counts bad rows with their places; above a tolerated share, the data set is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tuneyard.api import BadInput, Source, TrainData
from tuneyard.data.bad_sample import BadSample, LeftOut
from tuneyard.data.canonical import Canonical
from tuneyard.data.faults import Faults
from tuneyard.data.meaning.numbers import may_be_whole, whole_number_columns
from tuneyard.data.meaning.paths import value_at
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.roles import REQUIRED, Roles, Sample, detect
from tuneyard.data.sources import Located

Objective = Literal["sft", "clm", "dpo"]
DETECTION_ROWS = 100
EARLY_CHECK_ROWS = 20_000
_NULL_WITHIN_ROWS = 10_000
"""Rows in which a null is looked for, where a column of floats holds whole numbers alone."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A sample and its place (`file:line`). `split`: the number of the split with which it is packed."""

    place: str
    sample: Sample
    split: int = 0


@dataclass
class Tally:
    """Counts of good, bad and left-out rows of one pass."""

    uri: str
    max_bad_fraction: float = 1.0
    good: int = 0
    bad: int = 0
    left_out: int = 0
    """Rows labelled as answers that must not be learned."""
    _faults: Faults = field(default_factory=Faults)
    _advices: Counter[str] = field(default_factory=Counter)

    @property
    def bad_examples(self) -> list[str]:
        """Places and reasons of some bad rows; see `Faults.examples`."""
        return self._faults.examples()

    @property
    def advice(self) -> str:
        """The remedy for most bad rows; empty where it is to repair them one by one."""
        return next((advice for advice, _ in self._advices.most_common(1)), "")

    def add_bad(self, place: str, reason: str, count: int = 1, *, advice: str = "") -> None:
        """Count bad rows. From EARLY_CHECK_ROWS rows on, raises BadInput as `check` does."""
        self.bad += count
        self._advices[advice] += count
        self._faults.add(f"{place}: {reason}", count)
        if self.good + self.bad >= EARLY_CHECK_ROWS:
            self.check()

    def take(self, bad: int, examples: Sequence[str], advice: str = "") -> None:
        """Add the bad rows of another tally."""
        self.bad += bad
        self._advices[advice] += bad
        for number, example in enumerate(examples):
            self._faults.add(example, 1 if number else bad)

    def became_bad(self, place: str, reason: str, *, advice: str = "") -> None:
        """Recount a sample as bad that was counted as good."""
        self.good -= 1
        self.add_bad(place, reason, advice=advice)

    def check(self) -> None:
        """Raises BadInput where the data set is empty, or the share of bad rows is above `max_bad_fraction`."""
        total = self.good + self.bad
        if total == 0 and self.left_out:
            raise BadInput(f"{self.uri}: all {self.left_out} rows are labelled as answers that must not be learned", "is the label right?")
        if total == 0:
            raise BadInput(f"{self.uri}: the data set is empty", "check the path; `tuneyard data inspect` shows its content")
        if self.bad == 0 or self.bad / total <= self.max_bad_fraction:
            return
        examples = self.bad_examples
        first = "".join(f"\n    {example}" for example in examples)
        more = f"\n    … and {self.bad - len(examples)} more" if self.bad > len(examples) else ""
        tolerated = f"{self.max_bad_fraction:.1%} are tolerated" if self.good else "none is usable"
        raise BadInput(
            f"{self.uri}: {self.bad} of {total} rows are bad ({self.bad / total:.1%}; {tolerated}):{first}{more}",
            self.advice
            or "repair or remove them" + (", or raise data.maxBadFraction" if self.good else "; is data.format or data.columns right?"),
        )


def training_samples(
    located: Located,
    tally: Tally,
    *,
    source: Source,
    spec: TrainData,
    objective: Objective,
    rows: Iterator[Record | BadRow] | None = None,
) -> tuple[Roles, Iterator[Placed]]:
    """The samples of a train task, as `stream_samples` gives them. `source`: `spec` itself, or its validation set.

    Raises BadInput as `stream_samples` does, and where the objective needs another format.
    """
    roles, samples = stream_samples(
        located,
        tally,
        columns=source.columns,
        format="preference" if objective == "dpo" and spec.format == "auto" else spec.format,
        chat=spec.chat,
        speakers=source.roles,
        template=source.template or spec.template,
        limit=source.limit,
        needs_assistant=objective == "sft" and spec.loss_on != "all",
        rows=rows,
    )
    _check_objective(roles, objective, located.uri)
    return roles, samples


def _check_objective(roles: Roles, objective: Objective, uri: str) -> None:
    if objective == "dpo" and roles.format != "preference":
        raise BadInput(
            f"{uri}: objective dpo needs preference data, this is {roles.format}",
            "use columns chosen and rejected, or objective: sft",
        )
    if objective != "dpo" and roles.format == "preference":
        raise BadInput(
            f"{uri}: preference data (chosen, rejected) needs objective dpo, not {objective}",
            "set objective: dpo, or train on the chosen answers: data.columns: {prompt: prompt, completion: chosen}",
        )


def stream_samples(
    located: Located,
    tally: Tally,
    *,
    columns: Mapping[str, str],
    format: str,
    chat: bool = False,
    speakers: Mapping[str, str] | None = None,
    template: str | None = None,
    limit: int | None = None,
    needs_assistant: bool = True,
    rows: Iterator[Record | BadRow] | None = None,
) -> tuple[Roles, Iterator[Placed]]:
    """Detect the format from the first rows, then stream all samples in order. `tally` counts bad rows.

    `rows`: the rows of `located`, or the first of them; default: all rows. `chat`: pairs of plain texts become chats.
    `speakers`: roles by further names of speakers. `template`: makes the prompts.
    Raises BadInput where the columns fit no format, or no row is readable.
    """
    rows = read_records(located.files) if rows is None else rows
    head = list(itertools.islice(rows, DETECTION_ROWS))
    readable = [row.values for row in head if isinstance(row, Record)]
    if not readable:
        for row in head:
            if isinstance(row, BadRow):
                tally.add_bad(row.place, row.reason, row.count, advice=row.advice)
        tally.max_bad_fraction = 0.0
        tally.check()
    roles = detect(readable, columns=columns, format=format, chat=chat, uri=located.uri, speakers=speakers, template=template)
    roles, more = settled(roles, readable, rows)
    canonical = Canonical(roles, needs_assistant)
    return roles, samples_of(itertools.chain(head, more, rows), tally, canonical, limit)


def settled(roles: Roles, head: Sequence[Mapping[str, Any]], rows: Iterator[Record | BadRow]) -> tuple[Roles, list[Record | BadRow]]:
    """The roles with the columns of whole numbers, and further rows that had to be read for them.

    Where the first rows (`head`) have whole floats alone and no null, a null further on decides how these numbers are written.
    """
    columns = [] if roles.form else [column for column in roles.read_columns if column not in roles.whole]
    if not any(may_be_whole([value_at(row, column) for row in head]) for column in columns):
        return roles, []
    more = list(itertools.islice(rows, _NULL_WITHIN_ROWS - len(head)))
    every = [*head, *(row.values for row in more if isinstance(row, Record))]
    return replace(roles, whole=whole_number_columns(every, roles.read_columns)), more


def samples_of(
    rows: Iterator[Record | BadRow], tally: Tally, canonical: Canonical, limit: int | None = None, split: int = 0
) -> Iterator[Placed]:
    """The samples of rows with a known format. `tally` counts bad rows. `split`: see `Placed`."""
    for row in rows:
        if isinstance(row, BadRow):
            tally.add_bad(row.place, row.reason, row.count, advice=row.advice)
            continue
        try:
            sample = canonical(row.values)
        except LeftOut:
            tally.left_out += 1
            continue
        except BadSample as error:
            tally.add_bad(row.place, lacking(canonical.roles, row.values) or str(error), advice=error.advice)
            continue
        tally.good += 1
        yield Placed(row.place, sample, split)
        if limit is not None and tally.good >= limit:
            return


def lacking(roles: Roles, row: Mapping[str, Any]) -> str:
    """The reason why a row without the required columns is no sample; empty where it has them."""
    if roles.form or roles.paths or roles.template:
        return ""
    missing = [column for role in REQUIRED[roles.format] if (column := roles.columns[role]) not in row]
    return f"no column {', '.join(missing)}; columns of this row: {', '.join(row) or 'none'}" if missing else ""
