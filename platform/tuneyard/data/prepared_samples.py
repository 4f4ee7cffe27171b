"""The samples of a data set that is prepared whole, read split by split as in a stream, in the order of the files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tuneyard.api import TrainData
from tuneyard.data.access import Bucket
from tuneyard.data.canonical import Canonical
from tuneyard.data.file_types import DataFile
from tuneyard.data.roles import Roles
from tuneyard.data.samples import Objective, Placed, Tally, samples_of, training_samples
from tuneyard.data.sources import Located
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.splits import Split, split_bytes, splits_of

_AHEAD, _AHEAD_IN_STORE = 1, 16
"""Splits that are read ahead while earlier splits are tokenised: from a disk, and from a remote store."""


def prepared_samples(
    located: Located, tally: Tally, *, spec: TrainData, objective: Objective
) -> tuple[Roles, Sequence[Split], Iterator[Placed]]:
    """The roles of columns, the splits, and the samples of all splits.

    Raises BadInput and StorageError, also later from the iterator of samples.
    """
    roles, _ = training_samples(located, Tally(located.uri), source=spec, spec=spec, objective=objective)
    splits = splits_of(located.files, split_bytes(located.size_bytes, spec.max_length))
    canonical = Canonical(roles, objective == "sft" and spec.loss_on != "all")
    return roles, splits, _samples(located.files, splits, tally, canonical, spec.limit)


def _samples(files: Sequence[DataFile], splits: Sequence[Split], tally: Tally, canonical: Canonical, limit: int | None) -> Iterator[Placed]:
    line = 1
    for split, data in _read_ahead(files, splits):
        yield from samples_of(data.records(line), tally, canonical, None if limit is None else limit, split.number)
        if limit is not None and tally.good >= limit:
            return
        line = data.last_line(line)
    for file in files:
        file.check_unchanged()


def _read_ahead(files: Sequence[DataFile], splits: Sequence[Split]) -> Iterator[tuple[Split, SplitData]]:
    ahead = _AHEAD_IN_STORE if any(isinstance(file.found.fs, Bucket) for file in files) else _AHEAD
    waiting: deque[tuple[Split, Future[SplitData]]] = deque()
    with ThreadPoolExecutor(ahead, thread_name_prefix="read-ahead") as pool:
        try:
            for split in splits:
                waiting.append((split, pool.submit(SplitData, files, split)))
                if len(waiting) > ahead:
                    before, data = waiting.popleft()
                    yield before, data.result()
            while waiting:
                before, data = waiting.popleft()
                yield before, data.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
