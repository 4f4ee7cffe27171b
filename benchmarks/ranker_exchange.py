"""Embeddings and their gradients in fp32, fp16 and 8 bits between the workers of a rank task: speed over a slow link, and what is learned.

`python benchmarks/ranker_exchange.py [--rounds 3] [--speed 1]`: as root; writes docs/benchmarks/ranker_exchange.md. Two hosts of two
ranks each run the exchanges in turn, over a link of `--speed` Gbit/s. What is learned is judged on the next day, by two ranks on one host.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from shaped_link import Hosts, two_hosts
from training_cases import write_page

HOSTS, PER_HOST, DELAY_MS, STEPS, BATCH = 2, 2, 1.0, 8, 512
EXCHANGES = ("fp32", "fp16", "int8")
WIDE: dict[str, Any] = {"width": 256, "outputs": 2, "layers": [["linear"]], "hidden": [16]}
"""A model whose embeddings are nearly all that is sent."""
SEEDS, ROWS, HELD_OUT = (1, 2, 3), 30_000, 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--speed", type=float, default=1.0, help="Gbit/s in each direction")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank_main(options.rank)
        return
    rounds = [measured(options.speed) for _ in range(options.rounds)]
    link = f"{options.speed:g} Gbit/s and {DELAY_MS:g} ms between them"
    rows = ["| exchange | rows/s (median) | over fp32 | MB a step over the link |", "|---|---|---|---|"]
    for name in EXCHANGES:
        rate = statistics.median(each[name]["rows_per_s"] for each in rounds)
        ratios = [each[name]["rows_per_s"] / each["fp32"]["rows_per_s"] for each in rounds]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append(f"| {name} | {rate:,.0f} | {spread} | {rounds[0][name]['link_mb']:.2f} |")
        print(rows[-1], file=sys.stderr)
    text = (
        f"Two hosts of two ranks each on one machine, {link}, batches of {BATCH} rows, {STEPS} steps, {options.rounds} rounds, embeddings "
        f"of width {WIDE['width']}, the log of clicks. Other work may have shared the cores: the rates of one round tell nothing."
    )
    write_page("ranker_exchange", "Embeddings in fewer bytes between workers", [text, "", *rows, "", *learned()])


def measured(gbit_s: float) -> dict[str, Any]:
    """One round: rows/s, losses and bytes by exchange."""
    from tests.builders.rankers import rank_request, rank_task, write_clicks

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speed = folder / "speed"
        speed.write_text(str(gbit_s))
        clicks = write_clicks(folder / "clicks.parquet", rows=8_000)
        fields = {"batch": {"global": BATCH}, "steps": STEPS, "checkpoint": {"everySteps": 1000}, "model": WIDE}
        runs = []
        for exchange in EXCHANGES:
            task = rank_task(clicks, tables={"exchange": exchange}, **fields)
            runs.append((exchange, rank_request(folder / exchange, task, workers=HOSTS * PER_HOST)))
        given = folder / "runs.pickle"
        given.write_bytes(pickle.dumps(runs))
        with two_hosts(speed, DELAY_MS) as hosts:
            in_hosts(hosts, folder, given)
        found: dict[str, Any] = json.loads((folder / "found.json").read_text())
        return found


def learned() -> list[str]:
    """Normalised entropy on rows of the next day by exchange, two ranks, several seeds."""
    from tests.builders.rankers import rank_request, rank_task, write_clicks
    from tests.ranks.groups import results_in_ranks

    fields: dict[str, Any] = {
        "batch": {"global": 256},
        "epochs": 1,
        "checkpoint": {"everySteps": 10_000},
        "evaluation": {"everySteps": 10_000},
        "optimizer": {"learningRate": 0.003, "schedule": "constant", "warmup": 0},
        "model": {"width": 32, "outputs": 4, "layers": [["dlrm", "dcn"]] * 2},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        day = {"validation": {"source": str(write_clicks(folder / "next-day.parquet", HELD_OUT, first_row=ROWS))}}
        clicks = write_clicks(folder / "clicks.parquet", ROWS)
        cases = [(exchange, seed) for exchange in EXCHANGES for seed in SEEDS]
        requests = [
            rank_request(
                folder / f"{exchange}-{seed}", rank_task(clicks, tables={"exchange": exchange}, seed=seed, **day, **fields), workers=2
            )
            for exchange, seed in cases
        ]
        results = dict(zip(cases, results_in_ranks(requests, 2), strict=True))
    rows = [
        f"{ROWS:,} rows of the log, read once by two ranks, width 32, two layers of dlrm and dcn, {len(SEEDS)} seeds; {HELD_OUT:,} rows of "
        "the next day. Differences are from fp32 with the same seed.",
        "",
        "| exchange | normalised entropy (mean of seeds) | differences | largest difference of a step's loss |",
        "|---|---|---|---|",
    ]
    for exchange in EXCHANGES:
        entropy = [results[exchange, seed].details["metrics"]["normalised_entropy"] for seed in SEEDS]
        plain = [results["fp32", seed].details["metrics"]["normalised_entropy"] for seed in SEEDS]
        apart = ", ".join(f"{one - other:+.5f}" for one, other in zip(entropy, plain, strict=True))
        losses = max(
            abs(one - other)
            for seed in SEEDS
            for one, other in zip(results[exchange, seed].losses, results["fp32", seed].losses, strict=True)
        )
        rows.append(f"| {exchange} | {statistics.mean(entropy):.5f} | {apart} | {losses:.0e} |")
        print(rows[-1], file=sys.stderr)
    return rows


def in_hosts(hosts: Hosts, folder: Path, given: Path) -> None:
    ranks = []
    for rank in range(HOSTS * PER_HOST):
        host, local = divmod(rank, PER_HOST)
        place = {"RANK": rank, "WORLD_SIZE": HOSTS * PER_HOST, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": PER_HOST}
        where = {"MASTER_ADDR": hosts.addresses[0], "MASTER_PORT": 29500, "GLOO_SOCKET_IFNAME": hosts.device, "OMP_NUM_THREADS": 1}
        environment = {name: str(value) for name, value in {**place, **where, "DS_ACCELERATOR": "cpu"}.items()}
        command = hosts.inside(host, [sys.executable, "-W", "ignore", __file__, "--rank", str(given)])
        log = (folder / f"rank{rank}.log").open("w")
        ranks.append(subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log))
    try:
        statuses = [process.wait() for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if any(statuses):
        raise RuntimeError("\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("rank*.log"))))


def rank_main(given: Path) -> None:
    import torch
    import torch.distributed as dist

    from tuneyard.training import train

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {}
    for exchange, request in pickle.loads(given.read_bytes()):
        dist.barrier()
        marks: list[tuple[float, int]] = []

        def emit(event: Any, marks: list[tuple[float, int]] = marks) -> None:
            if type(event).__name__ == "Step":
                marks.append((time.perf_counter(), sent_bytes()))

        result = train(request, emit=emit)
        if dist.get_rank() == 0:
            (began, before), (ended, after), steps = marks[1], marks[-1], len(marks) - 2
            rate = steps * BATCH / (ended - began)
            found[exchange] = {"rows_per_s": rate, "losses": result.losses, "link_mb": (after - before) / steps / 1e6}
            (given.parent / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def sent_bytes() -> int:
    """Bytes that this host's end of the link has sent."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lan:"))
    return int(line.split(":")[1].split()[8])


if __name__ == "__main__":
    main()
