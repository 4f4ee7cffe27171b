"""Tables whose shards are owned by the ranks of a process group.

A step, on every rank:

    prefetch   compute routes of the next batch's ids; exchange their numbers
    begin      owners receive ids, look up and sum embeddings, and start to send the sums; the next batch's ids follow
    (finish)   the sums arrive; partial sums of a bag are added, means divided
    backward   gradients are sent to owners, which keep them
    apply      owners sum the gradients of each row, over ranks and micro-batches, and update it

All ranks call these in the same order, and with the same batches prefetched. No weight is a parameter of the module: wrappers of the model
(DDP, DeepSpeed) see only the dense weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tuneyard.api import BadInput
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.tables.exchange import Exchange
from tuneyard.ranking.tables.flight import Flight
from tuneyard.ranking.tables.names import PREFIX, table_names
from tuneyard.ranking.tables.owned import OwnedRows, stacked
from tuneyard.ranking.tables.placement import Placement, Shard, blocks
from tuneyard.ranking.tables.routes import Routes, picked
from tuneyard.ranking.tables.shapes import Rows
from tuneyard.ranking.tables.wire import Wire

EPSILON = 1e-8
SQUARES = "squares"
_DTYPES: Mapping[Rows, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16}
_SENT_ROWS = 65_536
PREFETCHED = "prefetched"
"""Key in a batch: the number that `prefetch` has returned for it."""
MOST_AHEAD = 16
"""Batches that may be prefetched before the first of them is used."""


@dataclass(frozen=True)
class TablePiece:
    """A contiguous view of cells that this rank owns. `box`: the first index and the length along each dimension of the whole table."""

    name: str
    shape: tuple[int, ...]
    box: tuple[tuple[int, int], ...]
    tensor: torch.Tensor


class ShardedTables(nn.Module):  # type: ignore[misc]
    """Sharded tables, see `Tables`. `seed`: of the weights, equal on all ranks; `group`: the ranks of `placement`, by default all ranks, or
    none for one.

    `wire`: what embeddings and gradients are sent as. `device`: of the tables, which may stay on the host while the rest of the ranker is
    on a GPU. Gradients are summed over ranks and divided by their number, as for a loss whose gradients DDP averages. Raises BadInput for a
    placement of other tables or another number of ranks, and for a backend that cannot send `wire`.
    """

    def __init__(
        self,
        config: RankerConfig,
        placement: Placement,
        *,
        seed: int,
        group: Any = None,
        rows: Rows = "fp32",
        wire: Wire = "fp32",
        device: torch.device | str = "cpu",
        epsilon: float = EPSILON,
        most_ahead: int = MOST_AHEAD,
    ) -> None:
        super().__init__()
        self._most_ahead = most_ahead
        ranks, rank = (dist.get_world_size(group), dist.get_rank(group)) if dist.is_initialized() else (1, 0)
        if placement.ranks != ranks:
            raise BadInput(f"tables are placed on {placement.ranks} ranks, and {ranks} take part", f"place them on {ranks} ranks")
        if [(table.name, table.rows, table.width) for table in placement.tables] != [
            (feature.name, feature.rows, config.width) for feature in config.sparse
        ]:
            raise BadInput("the placement is not one of this ranker's tables", "place shapes_of(config)")
        self.placement, self.rank = placement, rank
        self._features, self._epsilon = config.sparse, epsilon
        self._names = table_names([feature.name for feature in config.sparse])
        self._exchange, self.group = Exchange(ranks, group, wire), group
        self._device = torch.device(device)
        widths = sorted({shard.width for shard in placement.shards})
        self._routes = [Routes(config.sparse, placement, width) for width in widths]
        # Ids of a batch are concatenated once, in the order of most sends.
        in_config = tuple(range(len(config.sparse)))
        orders = (routes.features for routes in self._routes)
        self._order = next((order for order in orders if sorted(order) == list(in_config)), in_config)
        tables = {table.name: table for table in placement.tables}
        self._owned = [
            OwnedRows(stacked(placement, width)[rank], tables, width, seed=seed, dtype=_DTYPES[rows], device=self._device)
            for width in widths
        ]
        self._ahead: list[tuple[int, Flight]] = []
        self._prefetched = 0

    def prefetch(self, batch: Mapping[str, torch.Tensor]) -> int:
        """Start to exchange the ids of a batch that `begin` gets later, in the same order of batches.

        `begin` recognises the batch by its tensors; if wrappers copy them, by the returned number as `batch[PREFETCHED]`. Raises BadInput
        if too many batches are prefetched and not used.
        """
        if len(self._ahead) >= self._most_ahead:
            raise BadInput(f"{self._most_ahead} batches were prefetched and not used", "begin with the tensors that were prefetched")
        self._prefetched += 1
        if self._routes:
            self._ahead.append((self._prefetched, self._departed(batch)))
        return self._prefetched

    def begin(self, batch: Mapping[str, torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        if not self._routes:
            return list
        flight = self._of(batch)
        flight.look_up()
        self._advance()
        return lambda: self._features_of(flight, flight.embeddings())

    def forward(self, batch: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        return self.begin(batch)()

    def apply_gradients(self, learning_rate: float, *, step: int = 0) -> None:
        """Update the rows of all backward passes since the last call. `step`: seeds the stochastic rounding of rows in fp16."""
        self._advance()
        for owned in self._owned:
            owned.apply(learning_rate, epsilon=self._epsilon, share=1 / self._exchange.ranks, step=step)

    def pieces(self) -> list[TablePiece]:
        """This rank's cells, and the states of row-wise Adagrad, which have a column per block of the table's columns."""
        found: list[TablePiece] = []
        for owned in self._owned:
            for shard in owned.first:
                found += self._pieces_of(shard, *owned.views(shard))
        return found

    def gathered(self, name: str) -> torch.Tensor | None:
        """The table of a feature on the first rank, in a new tensor on the host; None on the others. All ranks call it.

        Owners send some rows at a time, so that there is no second copy of a table.
        """
        table = next(table for table in self.placement.tables if table.name == name)
        dtype = self._owned[0].weights.dtype
        whole = torch.empty(table.rows, table.width, dtype=dtype) if self.rank == 0 else None
        for shard in sorted((shard for shard in self.placement.shards if shard.table == name), key=lambda each: (each.rows, each.columns)):
            own = next((owned.views(shard)[0] for owned in self._owned if shard in owned.first), None)
            for start in range(0, shard.height, _SENT_ROWS):
                rows = slice(start, min(start + _SENT_ROWS, shard.height))
                block = self._on_first(shard, own[rows] if own is not None else None, rows.stop - start, dtype)
                if whole is not None:
                    whole[shard.rows[0] + start : shard.rows[0] + rows.stop, slice(*shard.columns)] = block
        return whole

    def _on_first(self, shard: Shard, own: torch.Tensor | None, rows: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Rows of a shard, on the first rank."""
        if shard.rank == 0:
            return own
        device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(self.group) == "nccl" else torch.device("cpu")
        if shard.rank == self.rank and own is not None:
            dist.send(own.to(device).contiguous(), group=self.group, group_dst=0)
        elif self.rank == 0:
            block = torch.empty(rows, shard.width, dtype=dtype, device=device)
            dist.recv(block, group=self.group, group_src=shard.rank)
            return block
        return None

    def _pieces_of(self, shard: Shard, weights: torch.Tensor, squares: torch.Tensor) -> Iterator[TablePiece]:
        table = next(table for table in self.placement.tables if table.name == shard.table)
        name = f"{PREFIX}.{self._names[shard.table]}"
        rows = (shard.rows[0], shard.height)
        yield TablePiece(name, (table.rows, table.width), (rows, (shard.columns[0], shard.width)), weights)
        box = (rows, (blocks(shard.columns[0]), blocks(shard.width)))
        yield TablePiece(f"{name}.{SQUARES}", (table.rows, blocks(table.width)), box, squares)

    def _departed(self, batch: Mapping[str, torch.Tensor]) -> Flight:
        picks = picked(self._features, batch, self._order)
        sents = [routes.sent(picks) for routes in self._routes]
        return Flight(self._owned, self._exchange, sents, self._key(batch), self._advance)

    def _of(self, batch: Mapping[str, torch.Tensor]) -> Flight:
        key, asked = self._key(batch), batch.get(PREFETCHED)
        for at, (number, flight) in enumerate(self._ahead):
            same = (one is other for one, other in zip(flight.key, key, strict=True))
            if number == asked if asked is not None else all(same):
                del self._ahead[: at + 1]  # earlier ones were skipped
                return flight
        return self._departed(batch)

    def _key(self, batch: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        return [batch[f"{feature.name}.ids"] for feature in self._features]

    def _advance(self) -> None:
        """Let batches that are ahead send their ids. Called where every rank is at the same point."""
        for _, flight in self._ahead:
            flight.send_ids()

    def _features_of(self, flight: Flight, embeddings: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A tensor for each feature, from the embeddings [bags, width] of each width."""
        columns: list[list[tuple[tuple[int, int], torch.Tensor]]] = [[] for _ in self._features]
        for routes, sent, of_width in zip(self._routes, flight.sents, embeddings, strict=True):
            for route, found in zip(routes.all, torch.split(of_width, sent.route_bags), strict=True):
                columns[route.feature].append((route.columns, found))
        made = []
        for feature, parts in zip(self._features, columns, strict=True):
            ordered = [found for _, found in sorted(parts, key=lambda part: part[0])]
            found = ordered[0] if len(ordered) == 1 else torch.cat(ordered, dim=1)
            made.append(found.view(-1, feature.length, found.shape[1]) if feature.length else found)
        return made
