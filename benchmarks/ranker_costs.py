"""Costs of lookups and updates, measured on this machine: the coefficients by which placement weighs tables.

python benchmarks/ranker_costs.py: prints them as `Costs`, whose defaults come from it.
"""

from __future__ import annotations

import time

import torch

from tuneyard.ranking.tables.exchange import Awaited
from tuneyard.ranking.tables.owned import OwnedRows
from tuneyard.ranking.tables.placement import Costs, Shard, TableShape

_ROWS, _IDS = 1_000_000, 50_000
_NARROW, _WIDE = 16, 64
_TIMES = 9


def measured_costs(*, network_gbit_s: float = 10.0, device: torch.device | str = "cpu") -> Costs:
    """Seconds of an id and of an element, from lookups and updates of two widths in a table of a million rows; some seconds of work.

    `network_gbit_s`: speed of a rank's network, which is not measured.
    """
    narrow, wide = (_of_width(width, torch.device(device)) for width in (_NARROW, _WIDE))
    cell_s = max(wide - narrow, 0.0) / (_WIDE - _NARROW)
    return Costs(id_s=max(narrow - _NARROW * cell_s, 0.0), cell_s=cell_s, byte_s=8e-9 / network_gbit_s)


def _of_width(width: int, device: torch.device) -> float:
    """Seconds of an id: the shortest of some tries, as other work on the machine only adds."""
    shard = Shard("measured", (0, _ROWS), (0, width), 0)
    shape = TableShape("measured", _ROWS, width)
    owned = OwnedRows({shard: 0}, {"measured": shape}, width, seed=0, dtype=torch.float32, device=device)
    draws = torch.Generator().manual_seed(0)
    took = []
    for _ in range(_TIMES):
        codes = (torch.randint(_ROWS, (_IDS,), generator=draws) * 2 + 1).to(device, torch.int32)
        gradients = torch.ones(_IDS, width, device=device)
        _settled(device)
        began = time.perf_counter()
        owned.found(codes, _IDS)
        owned.expect(codes, _IDS, Awaited(lambda: [gradients]))  # noqa: B023 - called in this turn
        owned.apply(0.01, epsilon=1e-8, share=1.0, step=0)
        _settled(device)
        took.append(time.perf_counter() - began)
    return min(took) / _IDS


def _settled(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    print(measured_costs())
