"""Token rows of streamed texts: by position, and for evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.api import BadInput
from tuneyard.data.stream.evaluation_rows import EvaluationRows
from tuneyard.data.stream.rows import StreamedRows
from tuneyard.data.stream.shards import Shard, ShardFacts
from tuneyard.data.token_batch import RowParts, TokenBatch

_HINT = "check data.maxLength and data.lossOn"


class _TokenRows:
    """What token rows have, wherever their shards come from."""

    def __init__(self, *args: Any, packed: bool = False, longest: int = 0, **options: Any) -> None:
        """`longest`: tokens of the longest sample of a part of the data, as far as it is known. Others: as the rows of any stream."""
        super().__init__(*args, **options)
        self._packed = packed
        self.longest = longest
        self._most_tokens: int | None = None

    @property
    def column_names(self) -> list[str]:
        """The columns, as for a data set that is prepared whole."""
        return ["input_ids", "labels", *(["position_ids"] if self._packed else []), "length"]

    def __getitem__(self, number: int) -> Mapping[str, Any]:
        """A row. Raises BadInput for unusable data, StorageError where they cannot be read or stored."""
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> TokenBatch:
        """These rows, in this order. Raises as `__getitem__`."""
        return TokenBatch.of_parts([self._parts(number) for number in numbers])

    def refuse_longer(self, tokens: int) -> None:
        """Raise BadInput when a sample of more tokens is read; of rows for evaluation, when they are built."""
        self._most_tokens = tokens

    def _parts(self, number: int) -> RowParts:
        raise NotImplementedError


class StreamedTokens(_TokenRows, StreamedRows[Shard]):
    """Token rows by position."""

    INPUTS = "its settings, the tokenizer with its chat template"

    def _parts(self, number: int) -> RowParts:
        shard, row = self._found(number)
        parts = shard.row(row)
        if self._most_tokens is not None:
            self._check_length(parts, self._most_tokens)
        return parts

    def _check_length(self, parts: RowParts, most: int) -> None:
        tokens = len(parts.ids) if parts.samples is None else int(parts.samples.max())
        if tokens > most:
            raise _too_long(self.stream.uri, tokens, most)

    def _nothing_left(self, facts: ShardFacts) -> BadInput:
        why = f": {facts.dropped} were dropped, such as {facts.dropped_examples[0]}" if facts.dropped else ""
        return BadInput(f"{self.stream.uri}: no sample is left to train on{why}", _HINT)


class EvaluatedTokens(_TokenRows, EvaluationRows[Shard]):
    """Token rows for evaluation."""

    HINT = _HINT

    def _parts(self, number: int) -> RowParts:
        shard, row = self._found(number)
        return shard.row(row)

    def _check(self, shards: Sequence[Shard]) -> None:
        # Of the first splits of a stream, most rows are not evaluated; the stream refuses them itself.
        longest = max((shard.longest for shard in shards), default=0) if self._splits is None else 0
        if self._most_tokens is not None and longest > self._most_tokens:
            raise _too_long(self._stream.uri, longest, self._most_tokens)
        super()._check(shards)


def _too_long(uri: str, tokens: int, most: int) -> BadInput:
    """The error for a sample that is longer than the model has positions."""
    cause = f"{uri}: a sample has {tokens:,} tokens, and the model has positions for {most:,}"
    return BadInput(cause, f"set data.maxLength to at most {most}")
