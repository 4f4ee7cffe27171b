"""The sender's side: the owner of each id of a batch, and the place of each returned embedding.

Ids are sent as the owner's rows (see `owned`), and only bags with ids are sent. A sequence is one bag per place that has an id. A route
leads a feature's ids to the owners of some of its columns: to one owner, or to the owner of each id's row. Routes of equal width share one
lookup at the owner, so all of this is done once per width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch.nn import functional

from tuneyard.ranking.config import SparseFeature
from tuneyard.ranking.tables.ids import hashed, last_places
from tuneyard.ranking.tables.owned import stacked
from tuneyard.ranking.tables.placement import Placement, Shard

_MOST_INT32 = 1 << 30
"""Rows whose codes fit into 32 bits."""


@dataclass(frozen=True)
class Picked:
    """Features of a batch, concatenated in `order`: rows of their tables [ids], the number of ids in each bag [bags], and the number of ids
    and bags of each feature.
    """

    order: tuple[int, ...]
    rows: torch.Tensor
    lengths: torch.Tensor
    ids: list[int]
    bags: list[int]

    def of(self, order: tuple[int, ...]) -> Picked:
        """Some of the features, reordered or repeated."""
        if order == self.order:
            return self
        rows, lengths = torch.split(self.rows, self.ids), torch.split(self.lengths, self.bags)
        at = [self.order.index(feature) for feature in order]
        rows, lengths = (torch.cat([each[place] for place in at]) for each in (rows, lengths))
        return Picked(order, rows, lengths, [self.ids[place] for place in at], [self.bags[place] for place in at])


@dataclass(frozen=True)
class Sent:
    """A batch as it is sent. `codes` [ids] in the order of owners, with the number of `ids` and `bags` for each owner. `route_bags`: bags
    of the batch, by route; `scale` [bags of the batch, 1]: factor of each bag's sum, None for 1.
    """

    codes: torch.Tensor
    ids: list[int]
    bags: list[int]
    route_bags: list[int]
    scale: torch.Tensor | None
    gathering: Gathering | None
    """None if every bag of the batch is sent once, in order."""


@dataclass(frozen=True)
class Gathering:
    """Assembly of the batch's bags from those that were sent: bag b is the sum of `order[offsets[b]:offsets[b + 1]]`, and sent bag s
    belongs to bag `bag_of[s]`. Owners of parts of a bag are added in their order, on every device.
    """

    bag_of: torch.Tensor
    order: torch.Tensor
    offsets: torch.Tensor

    @classmethod
    def of(cls, bag_of: torch.Tensor, counts: torch.Tensor, *, is_sorted: bool) -> Gathering:
        """`counts` [bags of the batch]: number of sent bags of each."""
        order = torch.arange(len(bag_of), device=bag_of.device) if is_sorted else torch.sort(bag_of.int(), stable=True)[1]
        offsets = counts.new_zeros(len(counts) + 1)
        torch.cumsum(counts, 0, out=offsets[1:])
        return cls(bag_of, order, offsets)

    def gathered(self, vectors: torch.Tensor) -> torch.Tensor:
        """[sent bags, width] -> [bags of the batch, width]; zeros without ids."""
        if not len(vectors):
            return vectors.new_zeros(len(self.offsets) - 1, vectors.shape[1])
        return functional.embedding_bag(self.order, vectors, self.offsets, mode="sum", include_last_offset=True)

    def spread(self, gradients: torch.Tensor) -> torch.Tensor:
        """The reverse."""
        return functional.embedding(self.bag_of, gradients)


def picked(features: Sequence[SparseFeature], batch: Mapping[str, torch.Tensor], order: tuple[int, ...]) -> Picked:
    """The ids that count, hashed into their tables."""
    ids, lengths = [], []
    for feature in (features[at] for at in order):
        own, offsets = batch[f"{feature.name}.ids"], batch[f"{feature.name}.offsets"]
        if feature.length:
            places, inside = last_places(offsets, feature.length)
            ids.append(own[places[inside]])
            lengths.append(inside.view(-1).long())
        else:
            ids.append(own)
            lengths.append(offsets[1:] - offsets[:-1])
    counts = [len(each) for each in ids]
    together = torch.cat(ids)
    sizes = repeated([features[at].rows for at in order], counts, together.device)
    # A remainder takes longer than all the rest, and usually every id is inside.
    if together.device.type != "cpu" or not bool(((together >= 0) & (together < sizes)).all()):
        together = hashed(together, sizes)
    return Picked(order, together, torch.cat(lengths), counts, [len(each) for each in lengths])


@dataclass(frozen=True)
class Route:
    """`feature`: its index in the config; `parts`: shards with the same columns, by rows."""

    feature: int
    columns: tuple[int, int]
    parts: tuple[Shard, ...]


class Routes:
    """All routes of one width: first those to one owner, by owner; then those of tables cut by rows."""

    def __init__(self, features: Sequence[SparseFeature], placement: Placement, width: int) -> None:
        self._ranks = placement.ranks
        first = {shard: start for of_rank in stacked(placement, width) for shard, start in of_rank.items()}
        heights = [sum(shard.height for shard in of_rank) for of_rank in stacked(placement, width)]
        self._dtype = torch.int32 if max(heights) < _MOST_INT32 else torch.int64
        routes = _routes(features, [shard for shard in placement.shards if shard.width == width])
        whole = sorted((route for route in routes if len(route.parts) == 1), key=lambda route: (route.parts[0].rank, route.feature))
        cut = [route for route in routes if len(route.parts) > 1]
        self.all: list[Route] = [*whole, *cut]
        self.features = tuple(route.feature for route in self.all)
        self._whole = len(whole)
        self._shift = [first[route.parts[0]] for route in whole]
        starts, rows = [], 0
        self._owner_of_part: list[int] = []
        self._shift_of_part: list[int] = []
        for route in cut:
            self._shift.append(rows)
            for part in route.parts:
                starts.append(rows + part.rows[0])
                self._owner_of_part.append(part.rank)
                self._shift_of_part.append(first[part] - part.rows[0] - rows)
            rows += route.parts[-1].rows[1]
        self._starts = starts
        self._means = [features[route.feature].pooling == "mean" and not features[route.feature].length for route in self.all]

    def sent(self, picks: Picked) -> Sent:
        own = picks.of(self.features)
        rows, lengths, counts, bags = own.rows, own.lengths, own.ids, own.bags
        shifted = rows + repeated(self._shift, counts, rows.device)
        filled = lengths.nonzero().view(-1)
        is_single = len(filled) == len(rows)
        scale = None if is_single else self._scale(lengths, bags)
        whole_ids, whole_bags = sum(counts[: self._whole]), sum(bags[: self._whole])
        whole = self._to_owners(shifted[:whole_ids], lengths[:whole_bags], filled, counts, bags, is_single=is_single)
        if self._whole == len(self.all):
            gathering = None if len(filled) == len(lengths) else Gathering.of(filled, (lengths > 0).long(), is_sorted=True)
            return Sent(whole.codes, whole.ids, whole.bags, bags, scale, gathering)
        by_row = self._by_row(shifted[whole_ids:], lengths[whole_bags:], whole_bags)
        bag_of = _merged((whole.bag_of, whole.bags), (by_row.bag_of, by_row.bags))
        return Sent(
            _merged((whole.codes, whole.ids), (by_row.codes, by_row.ids)),
            _added(whole.ids, by_row.ids),
            _added(whole.bags, by_row.bags),
            bags,
            scale,
            Gathering.of(bag_of, torch.bincount(bag_of, minlength=len(lengths)), is_sorted=False),
        )

    def _to_owners(
        self,
        rows: torch.Tensor,
        lengths: torch.Tensor,
        filled: torch.Tensor,
        counts: Sequence[int],
        bags: Sequence[int],
        *,
        is_single: bool,
    ) -> _Part:
        """Routes to one owner are already in the order of owners. `filled`: bags with ids, also of the other routes."""
        ids_to, bags_until = [0] * self._ranks, [0] * self._ranks
        for route, count, size in zip(self.all[: self._whole], counts, bags, strict=False):
            ids_to[route.parts[0].rank] += count
            bags_until[route.parts[0].rank] += size
        edges = torch.tensor([0, *accumulate(bags_until)], device=rows.device)
        places = torch.searchsorted(filled, edges).tolist()
        filled = filled[: places[-1]]
        codes = rows.to(self._dtype).mul_(2)
        if is_single:
            codes += 1
        else:
            first = (torch.cumsum(lengths, 0) - lengths).index_select(0, filled)
            codes.scatter_add_(0, first, torch.ones((), dtype=self._dtype, device=rows.device).expand(len(first)))
        return _Part(codes, ids_to, filled, [stop - start for start, stop in pairwise(places)])

    def _by_row(self, rows: torch.Tensor, lengths: torch.Tensor, first_bag: int) -> _Part:
        """Sort ids by the owner of their row. `rows`: of all cut tables, stacked."""
        device = rows.device
        bag = torch.repeat_interleave(torch.arange(first_bag, first_bag + len(lengths), device=device), lengths, output_size=len(rows))
        part = torch.searchsorted(torch.tensor(self._starts, device=device), rows, right=True) - 1
        # Sorting takes one pass per byte of a number.
        owner, order = torch.sort(torch.tensor(self._owner_of_part, dtype=torch.int16, device=device).index_select(0, part), stable=True)
        bag = bag.index_select(0, order)
        shifted = (rows + torch.tensor(self._shift_of_part, device=device).index_select(0, part)).index_select(0, order)
        first = torch.ones_like(owner, dtype=torch.bool)
        first[1:] = (owner[1:] != owner[:-1]) | (bag[1:] != bag[:-1])
        ids_to, bags_to = (torch.bincount(each, minlength=self._ranks).tolist() for each in (owner, owner[first]))
        return _Part((shifted * 2 + first).to(self._dtype), ids_to, bag[first], bags_to)

    def _scale(self, lengths: torch.Tensor, bags: Sequence[int]) -> torch.Tensor | None:
        if not any(self._means):
            return None
        counted = torch.where(repeated(self._means, bags, lengths.device), lengths, 1)
        return counted.clamp_(min=1).float().reciprocal_().unsqueeze(1)


@dataclass(frozen=True)
class _Part:
    """Codes [ids] and, for each sent bag, its bag in the batch, in the order of owners, with the counts for each owner."""

    codes: torch.Tensor
    ids: list[int]
    bag_of: torch.Tensor
    bags: list[int]


def _routes(features: Sequence[SparseFeature], shards: Sequence[Shard]) -> list[Route]:
    places = {feature.name: at for at, feature in enumerate(features)}
    parts: dict[tuple[int, tuple[int, int]], list[Shard]] = {}
    for shard in shards:
        parts.setdefault((places[shard.table], shard.columns), []).append(shard)
    return [
        Route(feature, columns, tuple(sorted(each, key=lambda shard: shard.rows))) for (feature, columns), each in sorted(parts.items())
    ]


def repeated(values: Sequence[int | bool], counts: Sequence[int], device: torch.device) -> torch.Tensor:
    """Each value, repeated by its count."""
    each, often = torch.tensor(values, device=device), torch.tensor(counts, device=device)
    return torch.repeat_interleave(each, often, output_size=sum(counts))


def _merged(one: tuple[torch.Tensor, list[int]], other: tuple[torch.Tensor, list[int]]) -> torch.Tensor:
    """Both parts for the first owner, then both for the second, …"""
    cut = [torch.split(tensor, counts) for tensor, counts in (one, other)]
    return torch.cat([part for of_owner in zip(*cut, strict=True) for part in of_owner])


def _added(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(one, other, strict=True)]
