"""Steps of a ranker with sharded tables: prefetched ids, placement by cost or in turn, and rows in fp16, on 1, 2 and 4 ranks.

`python benchmarks/ranker_tables.py`: as root; writes docs/benchmarks/ranker_tables.md. Several calls add up: a call adds its rounds to the
kept ones, `--rounds 0` writes the page. Ranks are started once for each setting and run the variants in turn, so that neighbours have the
same machine. Ranks are on one host, or on two that a link of a chosen speed joins (`shaped_link.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from shaped_link import Hosts, two_hosts
from training_cases import write_page

from tuneyard.ranking.tables.accesses import AccessCurve

FEATURES, LISTS, LIST_IDS = 26, 6, 20
"""Sparse features, how many of these are lists, and the mean number of ids in a list."""
SIZES = (100_000, 1_000_000)
WIDTH, DENSE, BATCH = 16, 13, 4096
STEPS, WARM, BATCHES = 4, 1, 4
ROUNDS = 6
DELAY_MS = 1.0
SETS = (1, 2, 3)
MEASURED = 1
"""The set whose steps are measured."""
RATE = 0.01
CUT_ROWS, CUT_IDS, CUT_SEEDS = 100_000, 200_000, 20
RESULTS = Path(tempfile.gettempdir()) / "ranker_tables.json"


@dataclass(frozen=True)
class Setting:
    """`gbit_s`: of the link between two hosts with half of the ranks each; 0: one host."""

    ranks: int
    gbit_s: float

    def __str__(self) -> str:
        return f"{self.ranks} ranks, {self.gbit_s:g} Gbit/s" if self.gbit_s else f"{self.ranks} rank{'s' * (self.ranks > 1)}, one host"


SETTINGS = (Setting(1, 0), Setting(2, 0), Setting(4, 0), Setting(2, 1.0), Setting(2, 0.25), Setting(4, 1.0), Setting(4, 0.25))
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "plain": {"prefetch": False},
    "prefetch": {"prefetch": True},
    "in turn": {"prefetch": True, "how": "table", "balance": "round-robin"},
    "fp16": {"prefetch": True, "rows": "fp16"},
}
RATIOS = {"prefetch": "plain", "in turn": "prefetch", "fp16": "prefetch"}


def config_of(seed: int) -> Any:
    """Tables of skewed sizes, of which some are of lists."""
    import numpy as np

    from tuneyard.ranking import EnsembleLayer, RankerConfig, SparseFeature

    draws = np.random.default_rng(seed)
    rows = np.exp(draws.uniform(*np.log(SIZES), FEATURES)).astype(int)
    sparse = tuple(SparseFeature(f"f{at}", int(rows[at]), pooling="sum" if at % 2 else "mean") for at in range(FEATURES))
    layers = (EnsembleLayer(("dlrm", "linear"), 8), EnsembleLayer(("dlrm", "linear"), 8))
    return RankerConfig(tuple(f"d{at}" for at in range(DENSE)), sparse, layers, width=WIDTH)


def ids_per_row(seed: int) -> dict[str, float]:
    """One, and of lists a number that is skewed too."""
    import numpy as np

    draws = np.random.default_rng(seed + 100)
    lists = draws.choice(FEATURES, LISTS, replace=False)
    means = draws.exponential(1.0, LISTS)
    return {f"f{at}": float(max(1.0, LIST_IDS * mean / means.mean())) for at, mean in zip(lists, means, strict=True)}


def placement_of(config: Any, seed: int, ranks: int, *, rows: str = "fp32", how: str = "auto", balance: str = "lpt", **_: Any) -> Any:
    from tuneyard.ranking import placed, shapes_of

    return placed(shapes_of(config, ids_per_row=ids_per_row(seed), rows=rows), ranks, how=how, balance=balance)


def batches_of(config: Any, seed: int, rank: int, rows: int) -> list[dict[str, Any]]:
    """Ids with Zipf's distribution, as those of a log."""
    import numpy as np
    import torch

    lists, made = ids_per_row(seed), []
    for number in range(BATCHES):
        draws = np.random.default_rng([seed, rank, number])
        batch = {"dense": torch.from_numpy(draws.random((rows, DENSE), dtype=np.float32))}
        for feature in config.sparse:
            mean = lists.get(feature.name)
            lengths = np.ones(rows, dtype=np.int64) if mean is None else draws.poisson(mean, rows)
            ids = (draws.zipf(1.2, lengths.sum()) * 2_654_435_761) % feature.rows  # the frequent ones are not the first rows
            batch[f"{feature.name}.ids"] = torch.from_numpy(ids.astype(np.int64))
            batch[f"{feature.name}.offsets"] = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
        batch["labels"] = torch.from_numpy((draws.random((rows, 1)) < 0.2).astype(np.float32))
        made.append(batch)
    return made


def rank_main(setting: Setting, rounds: int) -> None:
    """A rank: all variants in turn; the first prints a line of JSON for each."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if setting.ranks > 1:
        dist.init_process_group("gloo")
    rank = int(os.environ.get("RANK", 0))
    config = config_of(MEASURED)
    batches = batches_of(config, MEASURED, rank, BATCH // setting.ranks)
    runs: dict[str, Course] = {}
    for name, fields in VARIANTS.items():
        twin = next((run for other, run in runs.items() if _tables(VARIANTS[other]) == _tables(fields)), None)
        runs[name] = Course(config, setting.ranks, fields, twin)
    for turn in range(-1, rounds):
        names = list(VARIANTS) if turn % 2 else list(VARIANTS)[::-1]
        for name in names:
            sent = _sent()
            rate = runs[name].rate(batches)
            line = {"setting": str(setting), "variant": name, "rate": rate, "mb": (_sent() - sent) / 1e6 / (STEPS + WARM)}
            if rank == 0 and turn >= 0:  # the first turn warms up
                print(json.dumps(line | {"memory_mb": runs[name].memory_mb}), flush=True)


def _tables(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != "prefetch"}


class Course:
    """A variant on this rank. Two that differ in prefetching alone share tables."""

    def __init__(self, config: Any, ranks: int, fields: Mapping[str, Any], twin: Course | None) -> None:
        import torch
        import torch.distributed as dist

        from tuneyard.ranking import ShardedTables

        self.prefetches, self.ranks = fields["prefetch"], ranks
        placement = placement_of(config, MEASURED, ranks, **fields)
        self.memory_mb = max(placement.memory()) / 1e6
        if twin is not None:
            self.tables, self.model, self.optimizer = twin.tables, twin.model, twin.optimizer
            return
        torch.manual_seed(0)
        group = dist.new_group() if ranks > 1 else None
        self.tables = ShardedTables(config, placement, seed=0, group=group, rows=fields.get("rows", "fp32"))
        ranker = config.build(self.tables)
        self.model = torch.nn.parallel.DistributedDataParallel(ranker) if ranks > 1 else ranker
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE, fused=True)

    def rate(self, batches: Sequence[Mapping[str, Any]]) -> float:
        """Rows per second over all ranks, after some steps that do not count."""
        import torch.distributed as dist

        began = 0.0
        for step in range(WARM + STEPS):
            if step == WARM:
                if self.ranks > 1:
                    dist.barrier()
                began = time.perf_counter()
            self._step(batches, step)
        if self.ranks > 1:
            dist.barrier()
        return BATCH * STEPS / (time.perf_counter() - began)

    def _step(self, batches: Sequence[Mapping[str, Any]], step: int) -> None:
        from torch.nn.functional import binary_cross_entropy_with_logits

        batch = batches[step % BATCHES]
        if self.prefetches and step + 1 < WARM + STEPS:
            self.tables.prefetch(batches[(step + 1) % BATCHES])
        self.optimizer.zero_grad()
        binary_cross_entropy_with_logits(self.model(batch), batch["labels"]).backward()
        self.tables.apply_gradients(RATE, step=step)
        self.optimizer.step()


def _sent() -> int:
    """Bytes that this host's end of the link has sent; 0 without one."""
    lines = [line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lan:")]
    return int(lines[0].split(":")[1].split()[8]) if lines else 0


def measured(setting: Setting, rounds: int) -> list[dict[str, Any]]:
    """Lines of the first rank."""
    if not setting.gbit_s:
        return _started(setting, rounds, None)
    with tempfile.TemporaryDirectory() as name:
        speed = Path(name) / "speed"
        speed.write_text(str(setting.gbit_s))
        with two_hosts(speed, DELAY_MS) as hosts:
            return _started(setting, rounds, hosts)


def _started(setting: Setting, rounds: int, hosts: Hosts | None) -> list[dict[str, Any]]:
    ranks = []
    for rank in range(setting.ranks):
        command = [sys.executable, "-W", "ignore", __file__, "--rank", f"{setting.ranks}", f"{setting.gbit_s}", f"{rounds}"]
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577", "GLOO_SOCKET_IFNAME": "lo"}
        if hosts is not None:
            where |= {"MASTER_ADDR": hosts.addresses[0], "GLOO_SOCKET_IFNAME": hosts.device}
            command = hosts.inside(rank * 2 // setting.ranks, command)
        place = {"RANK": f"{rank}", "WORLD_SIZE": f"{setting.ranks}", "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen(command, env=os.environ | where | place, stdout=subprocess.PIPE, text=True))
    try:
        printed = ranks[0].communicate()[0]
        statuses = [process.wait() for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if any(statuses):
        raise RuntimeError(f"exit statuses {statuses} of {setting}")
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def kept() -> list[dict[str, Any]]:
    return list(json.loads(RESULTS.read_text())) if RESULTS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the settings to measure; default: all")
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        ranks, gbit_s, rounds = given.rank
        rank_main(Setting(int(ranks), float(gbit_s)), int(rounds))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ranks, link and namespaces go with it
    if given.only is None and given.rounds:
        RESULTS.unlink(missing_ok=True)  # a whole run begins anew; `--only` adds to what is there
    for number, setting in enumerate(SETTINGS):
        if given.rounds and (given.only is None or number in given.only):
            RESULTS.write_text(json.dumps([*kept(), *measured(setting, given.rounds)]))
            print(setting, {name: _rate(kept(), setting, name) for name in VARIANTS}, flush=True)
    write(kept())


def write(lines: Sequence[Mapping[str, Any]]) -> None:
    there = [setting for setting in SETTINGS if any(line["setting"] == str(setting) for line in lines)]
    rounds = sorted({len(_rates(lines, setting, "plain")) for setting in there})
    page = [
        f"A DHEN ranker of two layers (dlrm, linear) with {DENSE} dense features and {FEATURES} tables of {SIZES[0]:,} to {SIZES[1]:,}",
        f"rows of {WIDTH} columns, {LISTS} of them of lists with {LIST_IDS} ids in the mean; ids have Zipf's distribution (1.2).",
        f"{BATCH:,} rows a step over all ranks, dense weights by DDP and Adam, gloo, one thread a rank. All ranks share the machine's two",
        f"cores. Samples per second, median of {' or '.join(map(str, rounds))} rounds of {STEPS} steps; the variants",
        "run in turn in the same processes. Ratios are medians over the rounds (smallest to largest), each of two runs that stood next to",
        "each other. Two hosts are network namespaces with half of the ranks each, joined by a link of a chosen speed with",
        f"{DELAY_MS:g} ms of delay each way (`benchmarks/shaped_link.py`).",
        "",
        "- *plain*: placed by `auto`, longest processing time first; *prefetch*: the same, with the next batch's ids sent ahead;",
        "- *in turn*: prefetched, whole tables to ranks in turn; *fp16*: prefetched, rows in fp16 with stochastic rounding.",
        "",
        "| setting | plain | prefetch | in turn | fp16 | prefetch over plain | in turn over prefetch | fp16 over fp32 | MB a step |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(lines, setting) for setting in there),
        "",
        *_memory(lines, there),
        "Other work may have shared the cores: wide ranges are signs of it. What is measured decides nothing about placement",
        "by cost: set 1 is nearly balanced in turn on two ranks, and with four ranks on two cores an idle rank leaves its core to others.",
        "What `auto` cuts by rows sends more vectors: on four ranks 4.5 MB a step, and in turn 4.3.",
        "",
        "## Placement",
        "",
        f"The largest load of a rank over the mean load, by the cost that placement counts, for {len(SETS)} sets of {FEATURES} tables with",
        "sizes from a log-uniform distribution and lists whose mean lengths are exponential. Set 1 is the one above.",
        "",
        "| set | ranks | in turn | longest first, whole tables | longest first, `auto` | tables cut by `auto` |",
        "|---|---|---|---|---|---|",
        *(_placed_row(seed, ranks) for seed in SETS for ranks in (2, 4, 8)),
        "",
        "## Cuts by rows",
        "",
        f"Accesses of the busiest rank over the mean, counted, where a table of {CUT_ROWS:,} rows is cut by rows. {CUT_IDS:,} ids with",
        "Zipf's distribution (1.05), of which the hottest has a tenth; median (largest) of",
        f"{CUT_SEEDS} seeds, which draw ids and their order.",
        "",
        "| order of ids | ranks | equally many rows | equal accesses |",
        "|---|---|---|---|",
        *(_cut_row(by_frequency, ranks) for by_frequency in (True, False) for ranks in (2, 4, 8)),
    ]
    write_page("ranker_tables", "Sharded tables of a ranker", page)


def _rates(lines: Sequence[Mapping[str, Any]], setting: Setting, variant: str, kind: str = "rate") -> list[float]:
    return [line[kind] for line in lines if line["setting"] == str(setting) and line["variant"] == variant]


def _rate(lines: Sequence[Mapping[str, Any]], setting: Setting, variant: str) -> str:
    return f"{statistics.median(_rates(lines, setting, variant)):,.0f}"


def _row(lines: Sequence[Mapping[str, Any]], setting: Setting) -> str:
    cells = [str(setting), *(_rate(lines, setting, name) for name in VARIANTS)]
    for one, other in RATIOS.items():
        ratios = [a / b for a, b in zip(_rates(lines, setting, one), _rates(lines, setting, other), strict=True)]
        cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    cells.append(f"{statistics.median(_rates(lines, setting, 'prefetch', 'mb')):.1f}" if setting.gbit_s else "")
    return "| " + " | ".join(cells) + " |"


def _memory(lines: Sequence[Mapping[str, Any]], settings: Sequence[Setting]) -> list[str]:
    """What the fullest rank holds."""
    if not settings:
        return []
    one, other = (_rates(lines, settings[0], variant, "memory_mb")[0] for variant in ("prefetch", "fp16"))
    return [
        f"Tables and Adagrad's states of the fullest rank, {settings[0]}: {one:,.0f} MB with fp32 rows, {other:,.0f} MB with fp16 rows.",
        "",
    ]


def _placed_row(seed: int, ranks: int) -> str:
    config = config_of(seed)
    found = [
        placement_of(config, seed, ranks, how=how, balance=balance)
        for how, balance in (("table", "round-robin"), ("table", "lpt"), ("auto", "lpt"))
    ]
    cells = [f"{max(each.loads()) / (sum(each.loads()) / ranks):.2f}" for each in found]
    cut = {shard.table for shard in found[-1].shards if shard.height < next(t.rows for t in found[-1].tables if t.name == shard.table)}
    return f"| {seed} | {ranks} | {' | '.join(cells)} | {len(cut)} |"


def _cut_row(by_frequency: bool, ranks: int) -> str:
    shares = 1 / np.arange(1, CUT_ROWS + 1) ** 1.05
    found: list[tuple[float, float]] = []
    for seed in range(CUT_SEEDS):
        draws = np.random.default_rng(seed)
        ids = draws.choice(CUT_ROWS, CUT_IDS, p=shares / shares.sum())
        counts = np.bincount(ids if by_frequency else draws.permutation(CUT_ROWS)[ids], minlength=CUT_ROWS)
        read = np.flatnonzero(counts)
        curve = AccessCurve.of(read, counts[read], CUT_ROWS)
        assert curve is not None
        below = np.concatenate([[0], np.cumsum(counts)])
        equal = [round(CUT_ROWS * at / ranks) for at in range(ranks + 1)]
        one, other = (float(np.diff(below[edges]).max() * ranks / CUT_IDS) for edges in (equal, curve.cut(ranks)))
        found.append((one, other))
    cells = [f"{statistics.median(each):.2f} ({max(each):.2f})" for each in zip(*found, strict=True)]
    return f"| {'by frequency' if by_frequency else 'at random'} | {ranks} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
