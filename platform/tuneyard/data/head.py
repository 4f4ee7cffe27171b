"""A check of the first rows of a data set before its task starts. Wrong columns, formats and encodings show there already.

At most 200 rows or 1 MB are read, without a tokenizer, in some milliseconds. Checks that need a tokenizer or all rows are left to the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tuneyard.api import BadInput, MixPart, ScoreTask, Source, TrainTask
from tuneyard.data.dataset import good_records
from tuneyard.data.mix_parts import of_part, part_data, part_names
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.samples import Tally, training_samples
from tuneyard.data.score_rows import check_score_rows
from tuneyard.data.sources import Located, locate

_ROWS, _CHARACTERS = 200, 1_000_000
_JSON_BYTES = 4_000_000
"""A JSON array can only be read as a whole, so a larger one is left to its task."""


def check_source(body: TrainTask | ScoreTask | None, source: Source, uri: str, *, first_rows: bool = True) -> list[str]:
    """Find the data of a task at `uri`, and check its first rows where a body gives their use. Returns notes on how these are read.

    Raises BadInput as `locate` and `check_head`. The error of a mixture's part names the part.
    """
    try:
        located = locate(uri, file_type=source.file_type, split=source.split, sheet=source.sheet)
        if body is not None and first_rows:
            return check_head(body, source, located)
    except BadInput as error:
        parts = body.data.mix if isinstance(body, TrainTask) else []
        names = [name for name, part in zip(part_names(parts), parts, strict=True) if part is source]
        if not names:
            raise
        raise of_part(names[0], error) from error
    return []


def check_head(body: TrainTask | ScoreTask, source: Source, located: Located) -> list[str]:
    """Check the first rows of `source`, found at `located`. Returns notes on how they are read.

    Raises BadInput for a missing column, an unknown format, no usable row, and, where all rows were read, for more bad rows than are
    tolerated.
    """
    if any(file.kind in ("json", "excel") and file.size_bytes > _JSON_BYTES for file in located.files):
        return []
    head = _Head(read_records(located.files))
    if isinstance(body, ScoreTask):
        return check_score_rows(body.data, located.uri, head)
    tally = Tally(located.uri, body.data.max_bad_fraction)
    if body.program is not None:  # the program decides the columns of its rows
        for _ in good_records(iter(head), tally):
            pass
        _check(tally, head, located)
        return []
    spec = part_data(body.data, source) if isinstance(source, MixPart) else body.data
    roles, samples = training_samples(located, tally, source=source, spec=spec, objective=body.objective, rows=iter(head))
    for _ in samples:
        pass
    _check(tally, head, located)
    return roles.notes()


def _check(tally: Tally, head: _Head, located: Located) -> None:
    if not head.complete:
        tally.uri = f"{located.uri} (first rows)"
    if head.complete or not (tally.good or tally.left_out):
        tally.check()


class _Head:
    """The first rows. `complete`: they are all rows."""

    def __init__(self, rows: Iterable[Record | BadRow]) -> None:
        self._rows = rows
        self.complete = False

    def __iter__(self) -> Iterator[Record | BadRow]:
        characters = 0
        for count, row in enumerate(self._rows):
            if count == _ROWS or characters > _CHARACTERS:
                return
            characters += len(str(row.values)) if isinstance(row, Record) else 0
            yield row
        self.complete = True
