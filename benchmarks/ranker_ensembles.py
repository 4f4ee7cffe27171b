"""Modules alone, ensembles of one and of several modules, 1 to 8 layers, beside a mixture of experts, DLRM and DCN-v2: what DHEN (Zhang et
al. 2022) compares.

`python benchmarks/ranker_ensembles.py --minutes 60`: trains what benchmarks/data/ranker_ensembles.csv lacks, each model in turn and with
three seeds, and writes docs/benchmarks/ranker_ensembles.md; without --minutes only the page. OMP_NUM_THREADS=1 keeps it to one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ranker_data import Data, clicks, movielens
from benchmarks.ranker_page import write
from benchmarks.ranker_results import SEEDS, Result, append, read
from benchmarks.ranker_training import BY, PEERS, RATES, Entry, dense_parameters, equalised, judged, trained

MODULES = ("dlrm", "dcn", "linear", "attention", "convolution")
PARTS: tuple[tuple[str, dict[str, tuple[int, ...]]], ...] = (
    (
        "clicks",
        {
            **dict.fromkeys(PEERS, (1,)),
            **dict.fromkeys(("dcn", "dlrm+dcn+linear", "dlrm+linear"), (1, 2, 4)),
            "dlrm": (1, 2),
            "linear": (1, 2),
            "attention": (1,),
            "convolution": (1,),
        },
    ),
    (
        "movielens",
        {
            **dict.fromkeys(PEERS, (1,)),
            **dict.fromkeys(("dcn", "dlrm", "linear", "dlrm+dcn+linear", "dlrm+linear"), (1, 2)),
            "attention": (1,),
            "convolution": (1,),
        },
    ),
    ("clicks", dict.fromkeys(("attention+linear", "dcn+attention+linear", "+".join(MODULES)), (1,))),
    ("clicks", {**{f"dlrm+dcn+linear{BY}{how}": (1, 2) for how in ("sum", "weighted_sum")}, "experts": (1, 2)}),
    ("clicks", {"dcn": (3,), "dlrm+dcn+linear": (3, 8), "dlrm+linear": (3, 8), "dlrm": (4,), "dcn+attention+linear": (2, 3, 4)}),
)
"""Data, and layers by family. A part is trained whole, in this order, before the next."""
DATA: dict[str, Callable[[], Data]] = {"clicks": clicks, "movielens": movielens}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="no training begins later than this")
    parser.add_argument("--data", choices=DATA, help="train on this data alone; by default on both")
    arguments = parser.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    results = read()
    made: dict[str, Data] = {}
    for data, entry, seed in wanted():
        if arguments.data not in (None, data):
            continue
        for rate in rates(results, data, entry, seed):
            if any((data, entry, seed, rate) == (old.data, Entry(old.family, old.layers), old.seed, old.rate) for old in results):
                continue
            if time.monotonic() > until:
                break
            if data not in made:
                made[data] = DATA[data]()
            results.append(result := measured(data, made[data], entry, seed, rate))
            append(result)
            print(result, flush=True)
    write(results, {name: made.get(name) or data() for name, data in DATA.items()})


def wanted() -> Iterator[tuple[str, Entry, int]]:
    """What is to be trained, in turn. In each part, the models by which rates are chosen come first."""
    for data, families in PARTS:
        grid = [Entry(family, layers) for family, depths in families.items() for layers in depths]
        yield from ((data, entry, SEEDS[0]) for entry in grid if entry.layers == searched_layers(entry.family))
        yield from ((data, entry, seed) for seed in SEEDS for entry in grid)


def searched_layers(family: str) -> int:
    """Layers of the model that a family's rate is chosen for: two, or one where two take long."""
    return 1 if family in PEERS or {"attention", "convolution"} & set(family.split("+")) else 2


def rates(results: Sequence[Result], data: str, entry: Entry, seed: int) -> tuple[float, ...]:
    """All rates for the model that rates are chosen for; else the one that was best for it on the part to choose by."""
    layers = searched_layers(entry.family)
    if entry.layers == layers and seed == SEEDS[0]:
        return RATES
    searched = [old for old in results if (old.data, old.family, old.layers, old.seed) == (data, entry.family, layers, SEEDS[0])]
    return (min(searched, key=lambda old: old.valid).rate,) if len(searched) == len(RATES) else ()


def measured(name: str, data: Data, entry: Entry, seed: int, rate: float) -> Result:
    began = time.process_time()
    model = trained(equalised(entry, data.config), data, rate=rate, seed=seed)
    seconds = time.process_time() - began
    valid, test = judged(model, data.valid), judged(model, data.test)
    return Result(
        data=name,
        family=entry.family,
        layers=entry.layers,
        seed=seed,
        rate=rate,
        parameters=dense_parameters(model),
        steps=len(data.train) * data.epochs,
        valid=round(valid.normalised_entropy, 6),
        normalised_entropy=round(test.normalised_entropy, 6),
        auc=round(test.auc, 6),
        calibration=round(test.calibration, 4),
        seconds=round(seconds, 1),
    )


if __name__ == "__main__":
    main()
