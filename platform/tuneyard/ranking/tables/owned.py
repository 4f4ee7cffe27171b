"""The owner's side: all shards of one width on this rank, stacked in one tensor, so that one lookup serves all of them.

This follows FBGEMM's table-batched embeddings. An id arrives as a code: its row in the tensor, doubled, plus one if it is the first of a
bag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from tuneyard.ranking.tables.adagrad import Cells, read, summed, update
from tuneyard.ranking.tables.exchange import Awaited
from tuneyard.ranking.tables.initial import initialise
from tuneyard.ranking.tables.memory import empty_rows
from tuneyard.ranking.tables.placement import Placement, Shard, TableShape, blocks


def stacked(placement: Placement, width: int) -> list[dict[Shard, int]]:
    """For each rank, its shards of a width, with the first row of each in the stacked tensor."""
    found: list[dict[Shard, int]] = []
    for rank in range(placement.ranks):
        own = [shard for shard in placement.shards if shard.rank == rank and shard.width == width]
        first, at = {}, 0
        for shard in sorted(own, key=lambda shard: (shard.table, shard.rows, shard.columns)):
            first[shard] = at
            at += shard.height
        found.append(first)
    return found


@dataclass(frozen=True)
class _Pending:
    """Gradients of `bags` bags of requested ids."""

    codes: torch.Tensor
    bags: int
    gradients: Awaited


class OwnedRows:
    """Weights [rows, width], in fp32 or fp16, and the states of row-wise Adagrad [rows, blocks] in fp32."""

    def __init__(
        self,
        first: Mapping[Shard, int],
        tables: Mapping[str, TableShape],
        width: int,
        *,
        seed: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.first, self.width = first, width
        height = sum(shard.height for shard in first)
        self.weights = empty_rows(height, width, dtype, device)
        self.squares = empty_rows(height, blocks(width), torch.float32, device).zero_()
        self._pending: list[_Pending] = []
        self._names = _CellNames(first, width, device) if dtype == torch.float16 else None
        for shard in first:
            table = tables[shard.table]
            initialise(
                self.views(shard)[0],
                seed=seed,
                table=table.name,
                shape=(table.rows, table.width),
                first_row=shard.rows[0],
                first_column=shard.columns[0],
            )

    def views(self, shard: Shard) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and states of a shard, contiguous."""
        rows = slice(self.first[shard], self.first[shard] + shard.height)
        return self.weights[rows], self.squares[rows]

    def found(self, codes: torch.Tensor, bags: int) -> torch.Tensor:
        """Sums of the embeddings of each of `bags` bags: [bags, width] in fp32."""
        if not bags:
            return torch.zeros(0, self.width, device=self.weights.device)
        rows = codes >> 1
        if bags == len(codes):
            return read(self.weights, rows)
        first = (codes & 1).nonzero().view(-1).to(codes.dtype)
        if self.weights.dtype == torch.float32:
            return functional.embedding_bag(rows, self.weights, first, mode="sum")
        one_by_one = torch.arange(len(codes), dtype=codes.dtype, device=codes.device)
        return functional.embedding_bag(one_by_one, read(self.weights, rows), first, mode="sum")

    def expect(self, codes: torch.Tensor, bags: int, gradients: Awaited) -> None:
        """Keep gradients [bags, width], which may still be in flight, until `apply`."""
        self._pending.append(_Pending(codes, bags, gradients))

    def apply(self, learning_rate: float, *, epsilon: float, share: float, step: int) -> None:
        """Update rows with the kept gradients, multiplied by `share`. `step`: seeds the rounding of fp16 rows."""
        pending, self._pending = self._pending, []
        gradients = [each.gradients.wait()[0].to(self.weights.device) for each in pending]
        codes = [each.codes for each in pending]
        if not sum(map(len, codes)):
            return
        together = codes[0] if len(codes) == 1 else torch.cat(codes)
        of_bags = gradients[0] if len(gradients) == 1 else torch.cat(gradients)
        # The first id of a bag adds one, also across batches.
        bags = None if len(of_bags) == len(together) else torch.cumsum(together & 1, 0) - 1
        rows, sums = summed(together >> 1, bags, of_bags)
        cells = self._names.of(rows, step) if self._names is not None else None
        update(self.weights, self.squares, rows, sums, learning_rate=learning_rate, epsilon=epsilon, share=share, cells=cells)


class _CellNames:
    """Identifiers of cells that do not depend on the placement: from the name of the table, and the row and column in it."""

    def __init__(self, first: Mapping[Shard, int], width: int, device: torch.device) -> None:
        shards: Sequence[Shard] = list(first)
        self._starts = torch.tensor(list(first.values()), dtype=torch.int64, device=device)
        moves = [_number(shard.table) + shard.rows[0] - first[shard] for shard in shards]
        self._moves = torch.tensor(moves, dtype=torch.int64, device=device)
        self._columns = torch.arange(width, dtype=torch.int32, device=device)
        corners = [shard.columns[0] for shard in shards]
        self._corners = torch.tensor(corners, dtype=torch.int32, device=device) if any(corners) else None

    def of(self, rows: torch.Tensor, seed: int) -> Cells:
        shards = torch.searchsorted(self._starts, rows, right=True) - 1
        keys = (rows + self._moves[shards]).to(torch.int32)
        columns = self._columns if self._corners is None else self._columns + self._corners[shards].unsqueeze(1)
        return Cells(keys, columns, seed)


def _number(table: str) -> int:
    return int.from_bytes(hashlib.sha256(table.encode()).digest()[:4], "little")
