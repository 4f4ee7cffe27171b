"""Averages of gradients over real ranks, for tests: each rank draws its own values, and says what came out."""

from __future__ import annotations

from typing import Any

from tests.forks import Call, called
from tests.ranks import group


def averaged(
    form: str, elements: int, *, ranks: int, per_host: int | None = None, steps: int = 1, bad_rank: int | None = None
) -> list[Any]:
    """By rank: the sums over steps of the compressed and of the true mean, and bytes sent. `bad_rank` has one infinite value."""
    places = group(ranks, per_machine=ranks)
    return called([Call(_rank, (form, elements, per_host, steps, bad_rank), place) for place in places])


def _rank(form: Any, elements: int, per_host: int | None, steps: int, bad_rank: int | None) -> Any:
    import torch
    import torch.distributed as dist

    from tuneyard.parallel.exchange import GradientExchange

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    across, inside = dist.new_group(), None
    if per_host is not None:
        columns = [dist.new_group(list(range(place, ranks, per_host))) for place in range(per_host)]
        hosts = [dist.new_group(list(range(first, first + per_host))) for first in range(0, ranks, per_host)]
        across, inside = columns[rank % per_host], hosts[rank // per_host]
    exchange = GradientExchange(across, form, inside)
    draws = torch.Generator().manual_seed(rank)
    found, expected = torch.zeros(elements), torch.zeros(elements)
    for _ in range(steps):
        values = torch.randn(elements, generator=draws)
        if rank == bad_rank:
            values[elements // 2] = float("inf")
        true = values.clone()
        dist.all_reduce(true)
        expected += true / ranks
        exchange.start("values", [values[: elements // 3], values[elements // 3 :]])
        exchange.finish()
        found += values
    exchange.close()
    dist.barrier()
    dist.destroy_process_group()
    return found, expected, exchange.bytes_sent
