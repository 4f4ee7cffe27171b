"""Rank tasks over a slow link: two hosts of two ranks each, the dense part averaged plainly, in 8 bits, sharded fully, and within hosts.

`python benchmarks/ranker_link.py [--rounds 3] [--speed 1]`: as root; writes docs/benchmarks/ranker_link.md. The ranks are started once for
each round, and run the layouts in turn. Tables are sharded over all ranks in every layout: their ids and embeddings cross the link as well.
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
MODEL = {"width": 32, "outputs": 16, "layers": [["dlrm", "dcn"]] * 2, "hidden": [1024, 512]}
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"zero": 0},
    "plain, int8": {"zero": 0, "quantisedAllReduce": "int8"},
    "full": {"zero": 3},
    "hybrid": {"zero": 3, "shardWithin": "host"},
    "hybrid, int8": {"zero": 3, "shardWithin": "host", "quantisedAllReduce": "int8"},
}


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
    rows = [
        "| layout | rows/s (median) | over plain | MB a step over the link | largest difference of a loss from plain |",
        "|---|---|---|---|---|",
    ]
    for name in LAYOUTS:
        rate = statistics.median(each[name]["rows_per_s"] for each in rounds)
        ratios = [each[name]["rows_per_s"] / each["plain"]["rows_per_s"] for each in rounds]
        apart = max(abs(a - b) for each in rounds for a, b in zip(each[name]["losses"], each["plain"]["losses"], strict=True))
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append(f"| {name} | {rate:,.0f} | {spread} | {rounds[0][name]['link_mb']:.1f} | {apart:.0e} |")
        print(rows[-1], file=sys.stderr)
    over = [each["hybrid"]["rows_per_s"] / each["full"]["rows_per_s"] for each in rounds]
    link = f"{options.speed:g} Gbit/s and {DELAY_MS:g} ms between them"
    text = (
        f"Two hosts of two ranks each on one machine, {link}, batches of {BATCH} rows, {STEPS} steps, {options.rounds} rounds. "
        f"Hybrid over full sharding of the dense part: **{statistics.median(over):.2f}**."
    )
    write_page("ranker_link", "Rank tasks over a slow link", [text, "", *rows])


def measured(gbit_s: float) -> dict[str, Any]:
    """One round: rows/s, losses and bytes by layout."""
    from tests.builders.rankers import rank_request, rank_task, write_clicks

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speed = folder / "speed"
        speed.write_text(str(gbit_s))
        clicks = write_clicks(folder / "clicks.parquet", rows=8_000)
        fields = {"batch": {"global": BATCH}, "steps": STEPS, "checkpoint": {"everySteps": 1000}, "model": MODEL}
        runs = []
        for layout, strategy in LAYOUTS.items():
            task = rank_task(clicks, strategy=strategy, **fields)
            runs.append((layout, rank_request(folder / layout, task, workers=HOSTS * PER_HOST)))
        given = folder / "runs.pickle"
        given.write_bytes(pickle.dumps(runs))
        with two_hosts(speed, DELAY_MS) as hosts:
            in_hosts(hosts, folder, given)
        found: dict[str, Any] = json.loads((folder / "found.json").read_text())
        return found


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
    for layout, request in pickle.loads(given.read_bytes()):
        dist.barrier()
        marks: list[tuple[float, int]] = []

        def emit(event: Any, marks: list[tuple[float, int]] = marks) -> None:
            if type(event).__name__ == "Step":
                marks.append((time.perf_counter(), sent_bytes()))

        result = train(request, emit=emit)
        if dist.get_rank() == 0:
            (began, before), (ended, after), steps = marks[1], marks[-1], len(marks) - 2
            rate = steps * BATCH / (ended - began)
            found[layout] = {"rows_per_s": rate, "losses": result.losses, "link_mb": (after - before) / steps / 1e6}
            (given.parent / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def sent_bytes() -> int:
    """Bytes that this host's end of the link has sent."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lan:"))
    return int(line.split(":")[1].split()[8])


if __name__ == "__main__":
    main()
