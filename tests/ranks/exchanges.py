"""Averages of gradients over real ranks, for tests: each rank draws its own values, and says what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.ranks.forks import Call, called
from tests.ranks.groups import group


@dataclass(frozen=True, kw_only=True)
class Case:
    """`per_host`: ranks that scatter and gather inside a host. `bad_rank` has one infinite value, in the middle."""

    form: Any
    elements: int
    steps: int = 1
    per_host: int | None = None
    bad_rank: int | None = None


@dataclass(frozen=True)
class Averaged:
    """Sums over the steps of what came out and of the true mean, and the bytes that the rank sent."""

    found: Any
    expected: Any
    bytes_sent: int


def averaged(cases: Sequence[Case], *, ranks: int) -> list[list[Averaged]]:
    """By case and rank."""
    by_rank = called([Call(_rank, (list(cases),), place) for place in group(ranks, per_machine=ranks)])
    return [list(each) for each in zip(*by_rank, strict=True)]


def _rank(cases: Sequence[Case]) -> list[Averaged]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    answers = [_averaged(case) for case in cases]
    dist.barrier()
    dist.destroy_process_group()
    return answers


def _averaged(case: Case) -> Averaged:
    import torch
    import torch.distributed as dist

    from tuneyard.parallel.exchange import GradientExchange

    rank, ranks = dist.get_rank(), dist.get_world_size()
    across, inside = dist.new_group(), None
    if case.per_host is not None:
        columns = [dist.new_group(list(range(place, ranks, case.per_host))) for place in range(case.per_host)]
        hosts = [dist.new_group(list(range(first, first + case.per_host))) for first in range(0, ranks, case.per_host)]
        across, inside = columns[rank % case.per_host], hosts[rank // case.per_host]
    exchange = GradientExchange(across, case.form, inside)
    draws = torch.Generator().manual_seed(rank)
    found, expected = torch.zeros(case.elements), torch.zeros(case.elements)
    for _ in range(case.steps):
        values = torch.randn(case.elements, generator=draws)
        if rank == case.bad_rank:
            values[case.elements // 2] = float("inf")
        true = values.clone()
        dist.all_reduce(true)
        expected += true / ranks
        exchange.start("values", [values[: case.elements // 3], values[case.elements // 3 :]])
        exchange.finish()
        found += values
    exchange.close()
    return Averaged(found, expected, exchange.bytes_sent)
