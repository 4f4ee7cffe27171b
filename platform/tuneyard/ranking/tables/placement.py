"""Ownership of table cells by ranks: a pure function of shapes, costs and memory.

Tables are placed whole, or cut by rows or by columns. Parts are assigned to ranks by longest processing time first (Graham 1969), whose
largest load is at most 4/3 of the optimum, or in turn. Columns are cut between blocks of `BLOCK_COLUMNS`. Row-wise Adagrad has one state
per block, so no placement changes an update.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from tuneyard.api import BadInput
from tuneyard.api.rank import ExchangeName
from tuneyard.planning import CELL_S, ID_S, vector_bytes
from tuneyard.ranking.tables.accesses import AccessCurve

BLOCK_COLUMNS = 16
_STATE_BYTES = 4
_SENT_BYTES = 4
"""Bytes of an id on the wire."""
_FINEST = 16
"""If parts do not fit side by side, they are cut smaller, down to this fraction of a rank's memory."""
_MOST_RANKS = 4_096
"""Largest number of ranks to try for the advice in an error."""

How = Literal["auto", "table", "row", "column"]
Balance = Literal["lpt", "round-robin"]


@dataclass(frozen=True)
class TableShape:
    """Shape and accesses of a table.

    `ids_per_row`: mean number of ids in a row of data. `vectors_per_row`: mean number of embeddings that these become: the same number for
    a sequence, and at most one for a bag. `accesses`: distribution of reads over rows; None: uniform.
    """

    name: str
    rows: int
    width: int
    ids_per_row: float = 1.0
    vectors_per_row: float = 1.0
    weight_bytes: int = 4
    wire: ExchangeName = "fp32"
    accesses: AccessCurve | None = field(default=None, repr=False)

    def share_of(self, start: int, stop: int) -> float:
        """Share of the accesses of a range of rows."""
        if self.accesses is None:
            return (stop - start) / self.rows
        return self.accesses.below(stop) - self.accesses.below(start)

    def ranges(self, parts: int, *, by_accesses: bool) -> list[tuple[int, int]]:
        """Ranges of rows with equal numbers of accesses, or of rows."""
        curve = self.accesses if by_accesses else None
        return list(pairwise([self.rows * at // parts for at in range(parts + 1)] if curve is None else curve.cut(parts)))

    def bytes_of(self, rows: int, columns: int) -> int:
        """Bytes of `rows` x `columns` cells, with the states of row-wise Adagrad."""
        return rows * (columns * self.weight_bytes + blocks(columns) * _STATE_BYTES)


def blocks(columns: int) -> int:
    """Number of blocks of columns. The last one may be smaller."""
    return -(-columns // BLOCK_COLUMNS)


@dataclass(frozen=True)
class Costs:
    """Cost of a part of a table for its rank, in seconds per row of data, over forward, backward and update.

    `id_s`: per id; `cell_s`: per element of its embedding; `byte_s`: per byte over the network; `memory_byte_s`: per byte of memory. The
    defaults come from `benchmarks/ranker_costs.py`, on a core of a virtual machine, with a network of 10 Gbit/s.
    """

    id_s: float = ID_S
    cell_s: float = CELL_S
    byte_s: float = 8e-10
    memory_byte_s: float = 1e-17

    def of(self, table: TableShape, rows: tuple[int, int], columns: int, ranks: int) -> float:
        """Cost of a range of rows that is `columns` wide."""
        share = table.share_of(*rows)
        ids = table.ids_per_row * share
        vectors = min(table.vectors_per_row, ids)
        away = (ranks - 1) / ranks
        sent = ids * _SENT_BYTES + 2 * vectors * vector_bytes(columns, table.wire)  # embeddings, and later their gradients
        return (
            ids * (self.id_s + columns * self.cell_s)
            + away * sent * self.byte_s
            + self.memory_byte_s * table.bytes_of(rows[1] - rows[0], columns)
        )


@dataclass(frozen=True)
class Shard:
    """Rows and columns of a table, each from … to (exclusive), that a rank owns. `cost`: see `Costs`; `memory`: bytes."""

    table: str
    rows: tuple[int, int]
    columns: tuple[int, int]
    rank: int
    cost: float = 0.0
    memory: int = 0

    @property
    def height(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def width(self) -> int:
        return self.columns[1] - self.columns[0]


@dataclass(frozen=True)
class Placement:
    """Every cell of every table is in exactly one shard."""

    tables: tuple[TableShape, ...]
    ranks: int
    shards: tuple[Shard, ...]

    def loads(self) -> list[float]:
        """Cost of each rank's shards."""
        return [sum(shard.cost for shard in self.shards if shard.rank == rank) for rank in range(self.ranks)]

    def memory(self) -> list[int]:
        """Bytes of each rank's shards."""
        return [sum(shard.memory for shard in self.shards if shard.rank == rank) for rank in range(self.ranks)]


def placed(
    tables: Sequence[TableShape],
    ranks: int,
    *,
    memory_bytes: int | None = None,
    costs: Costs | None = None,
    how: How = "auto",
    balance: Balance = "lpt",
) -> Placement:
    """Place tables on ranks. `memory_bytes`: limit of each rank for weights and states.

    `how`: `table` cuts no table; `row` and `column` cut every table into as many ranges of rows or blocks of columns as there are ranks;
    `auto` cuts tables that are too large for a rank or cost more than the mean load, by rows or columns, whichever costs less. `balance`:
    longest processing time first, or parts in their order to ranks in turn. Raises BadInput if a rank's memory is too small, with a
    sufficient limit and number of ranks.
    """
    if ranks < 1:
        raise BadInput(f"tables cannot be placed on {ranks} ranks", "give at least one rank")
    if twice := {table.name for table in tables if sum(other.name == table.name for other in tables) > 1}:
        raise BadInput(f"two tables are called {min(twice)}", "give each table a name of its own")
    policy = _Policy(costs or Costs(), how, balance)
    found = policy.placed(tables, ranks, memory_bytes)
    if found is None:
        raise _too_small(policy, tables, ranks, memory_bytes or 0)
    return Placement(tuple(tables), ranks, tuple(found))


@dataclass(frozen=True)
class _Policy:
    costs: Costs
    how: How
    balance: Balance

    def placed(self, tables: Sequence[TableShape], ranks: int, limit: int | None) -> list[Shard] | None:
        """The shards; None if they do not fit."""
        if limit is not None and sum(table.bytes_of(table.rows, table.width) for table in tables) > ranks * limit:
            return None
        finer = 1
        while True:
            parts = [part for table in tables for part in self._parts(table, tables, ranks, limit and limit // finer)]
            for by_memory in (False, True):
                if (found := self._assigned(parts, ranks, limit, by_memory=by_memory)) is not None:
                    return found
            if self.how != "auto" or finer >= _FINEST:
                return None
            finer *= 2

    def _parts(self, table: TableShape, tables: Sequence[TableShape], ranks: int, limit: int | None) -> list[Shard]:
        if self.how == "row":
            return self._cut(table, ranks, (min(ranks, table.rows), 1), limit)
        if self.how == "column":
            return self._cut(table, ranks, (1, min(ranks, blocks(table.width))))
        whole = self._cut(table, ranks, (1, 1))
        if self.how == "table":
            return whole
        mean = sum(self.costs.of(each, (0, each.rows), each.width, ranks) for each in tables) / ranks
        if whole[0].cost <= mean and _fits(whole, limit):
            return whole
        least = max(2, -(-whole[0].memory // limit) if limit else 2)
        most = max(ranks, 2 * least if limit else 2)
        by_rows = [(parts, 1) for parts in range(least, min(most, table.rows) + 1)]
        by_columns = [(1, parts) for parts in range(least, min(most, blocks(table.width)) + 1)]
        cuts = [cut for each in (by_rows, by_columns) if (cut := self._first(table, ranks, limit, mean, each))]
        tried = [self._cut(table, ranks, cut, limit) for cut in cuts]
        return min(tried, key=lambda parts: (not _fits(parts, limit), _largest(parts) > mean, _total(parts)), default=whole)

    def _first(
        self, table: TableShape, ranks: int, limit: int | None, mean: float, cuts: Sequence[tuple[int, int]]
    ) -> tuple[int, int] | None:
        """The first of `cuts` whose largest part is small enough, else the last one."""
        alike = replace(table, accesses=None)
        for cut in cuts:
            height = -(-table.rows // cut[0])
            columns = min(-(-blocks(table.width) // cut[1]) * BLOCK_COLUMNS, table.width)
            if limit is not None and table.bytes_of(height, columns) > limit:
                continue
            if self.costs.of(alike, (0, height), columns, ranks) > mean:
                continue
            if table.accesses is None or _largest(self._cut(table, ranks, cut, limit)) <= mean:
                return cut
        return cuts[-1] if cuts else None

    def _cut(self, table: TableShape, ranks: int, parts: tuple[int, int], limit: int | None = None) -> list[Shard]:
        """The table in `parts` (ranges of rows, ranges of columns), not yet assigned to ranks. Ranges of rows have equal accesses. If they
        do not fit into `limit`, they have equal numbers of rows instead, because a range with rare accesses is long.
        """
        by_accesses = self._cells(table, ranks, parts, by_accesses=True)
        return by_accesses if _fits(by_accesses, limit) else self._cells(table, ranks, parts, by_accesses=False)

    def _cells(self, table: TableShape, ranks: int, parts: tuple[int, int], *, by_accesses: bool) -> list[Shard]:
        edges = [min(blocks(table.width) * at // parts[1] * BLOCK_COLUMNS, table.width) for at in range(parts[1] + 1)]
        made = []
        for rows in table.ranges(parts[0], by_accesses=by_accesses):
            for columns in pairwise(edges):
                height, width = rows[1] - rows[0], columns[1] - columns[0]
                cost = self.costs.of(table, rows, width, ranks)
                made.append(Shard(table.name, rows, columns, -1, cost, table.bytes_of(height, width)))
        return made

    def _assigned(self, parts: Sequence[Shard], ranks: int, limit: int | None, *, by_memory: bool) -> list[Shard] | None:
        """Assign parts to ranks. `by_memory`: large parts first, to the rank with the least memory; it can succeed where the order of costs
        fails.
        """
        if not _fits(parts, limit):
            return None
        queue = [(0.0, rank) for rank in range(ranks)]  # by load, by memory, or by turn
        memory = [0] * ranks
        made = []
        for part in self._ordered(parts, by_memory=by_memory):
            full = []
            while queue and limit is not None and memory[queue[0][1]] + part.memory > limit:
                full.append(heapq.heappop(queue))
            if not queue:
                return None
            load, rank = heapq.heappop(queue)
            made.append(replace(part, rank=rank))
            memory[rank] += part.memory
            more = part.memory if by_memory else part.cost if self.balance == "lpt" else 1
            for each in [*full, (load + more, rank)]:
                heapq.heappush(queue, each)
        return made

    def _ordered(self, parts: Iterable[Shard], *, by_memory: bool) -> list[Shard]:
        if by_memory:
            return sorted(parts, key=lambda part: (-part.memory, part.table, part.rows, part.columns))
        if self.balance == "lpt":
            return sorted(parts, key=lambda part: (-part.cost, part.table, part.rows, part.columns))
        return list(parts)


def _fits(parts: Sequence[Shard], limit: int | None) -> bool:
    return limit is None or all(part.memory <= limit for part in parts)


def _largest(parts: Sequence[Shard]) -> float:
    return max(part.cost for part in parts)


def _total(parts: Sequence[Shard]) -> float:
    return sum(part.cost for part in parts)


def _too_small(policy: _Policy, tables: Sequence[TableShape], ranks: int, limit: int) -> BadInput:
    """The error, with remedies that were tried."""
    all_of_them = sum(table.bytes_of(table.rows, table.width) for table in tables)
    unlimited = policy.placed(tables, ranks, None) or []
    enough = max(Placement(tuple(tables), ranks, tuple(unlimited)).memory())
    while policy.placed(tables, ranks, enough) is None:  # with another limit, tables are cut differently
        enough += max(1, enough // 20)
    remedies = [f"a limit of {enough} bytes"]
    more = 2 * ranks
    while more <= _MOST_RANKS and policy.placed(tables, more, limit) is None:
        more *= 2
    if more <= _MOST_RANKS:
        remedies.insert(0, f"{more} ranks")
    elif policy.how != "auto" and replace(policy, how="auto").placed(tables, ranks, limit) is not None:
        remedies.insert(0, "how='auto', which cuts large tables")
    return BadInput(
        f"tables of {all_of_them} bytes do not fit into {limit} bytes on each of {ranks} ranks", f"give {' or '.join(remedies)}"
    )
