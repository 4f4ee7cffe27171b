"""Steps of sharded tables on real ranks, for tests, beside whole tables with Adagrad written down plainly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests.ranks.forks import Call, called
from tests.ranks.groups import group

from tuneyard.ranking import RankerConfig, SparseFeature
from tuneyard.ranking.tables import Placement, ShardedTables, WholeTables, placed, shapes_of, table_names

SEED = 5
RATE = 0.1
ROWS = 24
"""Of the batch of a step, over all ranks: in as many shares as there are ranks, or micro-batches of them."""
FEATURES = (
    SparseFeature("user", 40),
    SparseFeature("tags", 7, pooling="sum"),
    SparseFeature("shared.topics", 90),
    SparseFeature("seen", 13, length=3),
    SparseFeature("flag", 1),
)

Batch = dict[str, torch.Tensor]
Drawn = Callable[[int], list[list[list[int]]]]
"""For a step, the ids of each row of each feature."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """`lists`: name of a function of this module that draws ids. `only_first`: all shards are on the first rank."""

    how: Any = "table"
    width: int = 16
    lists: str = "mixed_lists"
    steps: int = 3
    micro_batches: int = 1
    prefetch: bool = False
    only_first: bool = False
    rows: Any = "fp32"
    wire: Any = "fp32"

    def config(self) -> RankerConfig:
        return RankerConfig(dense=(), sparse=FEATURES, layers=(), width=self.width)

    def placement(self, ranks: int) -> Placement:
        shapes = shapes_of(self.config(), rows=self.rows)
        if not self.only_first:
            return placed(shapes, ranks, how=self.how)
        return Placement(shapes, ranks, placed(shapes, 1, how=self.how).shards)


@dataclass(frozen=True)
class Outcome:
    """Of a rank: embeddings of its rows of the first step; tables as the first rank gathers them; boxes of its pieces."""

    found: list[torch.Tensor]
    tables: dict[str, torch.Tensor]
    pieces: list[tuple[str, tuple[int, ...], tuple[tuple[int, int], ...], torch.Tensor]]


def mixed_lists(step: int) -> list[list[list[int]]]:
    """Empty bags, ids that are hashed, the same id twice in a bag and in many rows."""
    draws = torch.Generator().manual_seed(step)

    def ids(feature: SparseFeature, most: int) -> list[int]:
        count = int(torch.randint(0, most + 1, (), generator=draws))
        return torch.randint(-2, feature.rows + 3, (count,), generator=draws).tolist()

    return [[ids(feature, most) for _ in range(ROWS)] for feature, most in zip(FEATURES, (1, 4, 5, 6, 2), strict=True)]


def single_ids(step: int) -> list[list[list[int]]]:
    """One id in every bag: nothing is empty, and nothing is added."""
    return [[[(step + row * 7) % feature.rows] for row in range(ROWS)] for feature in FEATURES]


def no_ids(step: int) -> list[list[list[int]]]:  # noqa: ARG001 - as the others
    return [[[] for _ in range(ROWS)] for _ in FEATURES]


def ids_on_first_rows(step: int) -> list[list[list[int]]]:
    """All ids are in the first row: the other ranks send nothing."""
    return [[each if row == 0 else [] for row, each in enumerate(rows)] for rows in single_ids(step)]


def long_lists(step: int) -> list[list[list[int]]]:
    """Two features with 100,000 ids in a row."""
    lists = mixed_lists(step)
    for feature in (1, 2):
        lists[feature][5] = [(step + at * at) % 97 for at in range(100_000)]
    return lists


def batch_of_lists(lists: Sequence[Sequence[Sequence[int]]], rows: range) -> Batch:
    made: Batch = {}
    for feature, of_rows in zip(FEATURES, lists, strict=True):
        own = [of_rows[row] for row in rows]
        made[f"{feature.name}.ids"] = torch.tensor([each for ids in own for each in ids], dtype=torch.int64)
        made[f"{feature.name}.offsets"] = torch.tensor([0, *map(len, own)]).cumsum(0)
    return made


def loss_of(found: Sequence[torch.Tensor], rows: range) -> torch.Tensor:
    """A sum over rows in which every element has a weight of its own, and a gradient that is not constant."""
    total = torch.zeros(())
    for at, each in enumerate(found):
        flat = each.flatten(1)
        weights = torch.sin(torch.arange(flat.shape[1]) + at + 0.1 * torch.tensor(list(rows)).unsqueeze(1))
        total = total + (flat * weights + flat.square()).sum()
    return total


def reference(case: Case) -> tuple[list[torch.Tensor], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Embeddings of the first step, tables, and states, of one process that updates whole tables in fp64."""
    tables = WholeTables(case.config(), seed=SEED).double()
    names = table_names([feature.name for feature in FEATURES])
    weights = {feature.name: tables.get_parameter(names[feature.name]) for feature in FEATURES}
    squares = {name: torch.zeros(weight.shape[0], -(-weight.shape[1] // 16), dtype=weight.dtype) for name, weight in weights.items()}
    first: list[torch.Tensor] = []
    for step in range(case.steps):
        found = tables(batch_of_lists(globals()[case.lists](step), range(ROWS)))
        first = first or [each.detach() for each in found]
        tables.zero_grad()
        (loss_of(found, range(ROWS)) / ROWS).backward()
        for name, weight in weights.items():
            _adagrad(weight, squares[name])
    return first, {name: weight.detach() for name, weight in weights.items()}, squares


def _adagrad(weight: torch.nn.Parameter, squares: torch.Tensor) -> None:
    assert weight.grad is not None
    for block in range(squares.shape[1]):
        columns = slice(16 * block, 16 * (block + 1))
        gradient = weight.grad[:, columns]
        squares[:, block] += gradient.square().mean(1)
        weight.data[:, columns] -= RATE * gradient / (squares[:, block : block + 1].sqrt() + 1e-8)


def trained(cases: Sequence[Case], ranks: int) -> list[list[Outcome]]:
    """By case and rank."""
    if ranks == 1:
        return [[steps_of(case, 0, 1)] for case in cases]
    by_rank = called([Call(_rank, (list(cases),), place) for place in group(ranks, per_machine=ranks)])
    return [list(each) for each in zip(*by_rank, strict=True)]


def _rank(cases: Sequence[Case]) -> list[Outcome]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    outcomes = [steps_of(case, dist.get_rank(), dist.get_world_size()) for case in cases]
    dist.barrier()
    dist.destroy_process_group()
    return outcomes


def steps_of(case: Case, rank: int, ranks: int) -> Outcome:
    """All steps of this rank."""
    tables = ShardedTables(case.config(), case.placement(ranks), seed=SEED, rows=case.rows, wire=case.wire)
    assert list(tables.parameters()) == []
    share = ROWS // ranks // case.micro_batches
    first: list[torch.Tensor] = []
    shares = [
        (step, range(start, start + share))
        for step in range(case.steps)
        for start in range(rank * ROWS // ranks, rank * ROWS // ranks + share * case.micro_batches, share)
    ]
    batches = [(step, rows, batch_of_lists(globals()[case.lists](step), rows)) for step, rows in shares]
    for at, (step, rows, batch) in enumerate(batches):
        if case.prefetch and at + 1 < len(batches):
            tables.prefetch(batches[at + 1][2])
        finish = tables.begin(batch)
        found = finish()
        first = first or [each.detach().clone() for each in found]
        (loss_of(found, rows) / ROWS * ranks).backward()
        if at + 1 == len(batches) or batches[at + 1][0] != step:
            tables.apply_gradients(RATE, step=step)
    gathered = {feature.name: tables.gathered(feature.name) for feature in FEATURES}
    pieces = [(piece.name, piece.shape, piece.box, piece.tensor.clone()) for piece in tables.pieces()]
    return Outcome(first, {name: table for name, table in gathered.items() if table is not None}, pieces)


def joined(pieces: Mapping[int, Outcome] | Sequence[Outcome], name: str) -> torch.Tensor:
    """A whole of the pieces of all ranks; cells of which there is not exactly one are NaN."""
    outcomes = list(pieces.values()) if isinstance(pieces, Mapping) else list(pieces)
    found = [(shape, box, tensor) for outcome in outcomes for each, shape, box, tensor in outcome.pieces if each == name]
    whole, times = torch.zeros(found[0][0]), torch.zeros(found[0][0])
    for _, box, tensor in found:
        cells = tuple(slice(first, first + length) for first, length in box)
        whole[cells] = tensor.float()
        times[cells] += 1
    return torch.where(times == 1, whole, torch.nan)
