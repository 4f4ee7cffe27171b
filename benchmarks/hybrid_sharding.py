"""Hybrid sharding beside full sharding over a slow link: two hosts of two ranks each, at five link speeds, plain and in 8 bits.

`python benchmarks/hybrid_sharding.py`: as root, 25 minutes; `--speeds 1 --rounds 1` is a short look. Writes its page
in docs/benchmarks and its pictures. The ranks of a speed are started once and run the layouts in turn, so that each pair has the same
machine. `--bf16` measures bf16 optimizer states alone, on one host.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shaped_link import Hosts, two_hosts
from training_cases import request_of, task_of, write_material

from tuneyard.catalog import ModelShape, gpu
from tuneyard.planning import Layout, Setup, estimate_speed
from tuneyard.training import TrainRequest

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Gbit/s in each direction."""
DELAY_MS = 1.0
HOSTS, PER_HOST = 2, 2
SHAPE = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 6}
STEPS = 6
TOKENS = 96
ROUNDS = 3
LAYOUTS: dict[str, dict[str, Any]] = {
    "full": {"zero": 3},
    "hybrid": {"zero": 3, "shard_within": "host"},
    "hybrid, int8": {"zero": 3, "shard_within": "host", "quantised_all_reduce": "int8"},
    "hybrid, fp8": {"zero": 3, "shard_within": "host", "quantised_all_reduce": "fp8"},
}
RESULTS = Path(tempfile.gettempdir()) / "hybrid_sharding.json"
"""Of speeds that were measured, so that a long benchmark can be made in several goes."""


@dataclass(frozen=True)
class Course:
    """One run: steps per second after the first step, losses, and bytes that the first host sent over the link per step."""

    steps_s: float
    losses: list[float]
    link_mb: float
    exchange_mb: float


def measured(gbit_s: float, rounds: int) -> dict[str, list[Course]]:
    """Courses by layout, at one speed of the link."""
    with tempfile.TemporaryDirectory() as name, two_hosts(gbit_s, DELAY_MS) as hosts:
        folder = Path(name)
        model, text = write_material(folder, SHAPE)
        data = {"source": str(text), "maxLength": TOKENS, "pack": True}
        task = task_of(model, text, data=data, batch={"global": HOSTS * PER_HOST}, steps=STEPS)
        layouts = [(layout, fields) for _ in range(rounds) for layout, fields in LAYOUTS.items()]
        requests = [
            request_of(folder / str(i), task, workers=HOSTS * PER_HOST, micro_batch=1, grad_accum=1, **fields)
            for i, (_, fields) in enumerate(layouts)
        ]
        courses = in_hosts(hosts, folder, requests)
    found: dict[str, list[Course]] = {}
    for (layout, _), course in zip(layouts, courses, strict=True):
        found.setdefault(layout, []).append(course)
    return found


def in_hosts(hosts: Hosts, folder: Path, requests: Sequence[TrainRequest]) -> list[Course]:
    """Run requests one after the other, in ranks that are started once."""
    given, answered = folder / "requests.pickle", folder / "courses.json"
    given.write_bytes(pickle.dumps(list(requests)))
    ranks = []
    for rank in range(HOSTS * PER_HOST):
        host, local = divmod(rank, PER_HOST)
        place = {"RANK": rank, "WORLD_SIZE": HOSTS * PER_HOST, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": PER_HOST}
        where = {"MASTER_ADDR": hosts.addresses[0], "MASTER_PORT": 29500, "GLOO_SOCKET_IFNAME": hosts.device, "OMP_NUM_THREADS": 1}
        environment = {name: str(value) for name, value in {**place, **where, "DS_ACCELERATOR": "cpu"}.items()}
        command = hosts.inside(host, [sys.executable, "-W", "ignore", __file__, "--rank", str(given), str(answered)])
        log = (folder / f"rank{rank}.log").open("w")
        ranks.append(subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log))
    statuses = [process.wait() for process in ranks]
    if any(statuses):
        logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("rank*.log")))
        raise RuntimeError(f"exit statuses {statuses}:\n{logs}")
    return [Course(**values) for values in json.loads(answered.read_text())]


def rank_main(given: Path, answered: Path) -> None:
    import torch
    import torch.distributed as dist

    from tuneyard.training import train

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    courses = []
    for request in pickle.loads(given.read_bytes()):
        marks: list[tuple[float, int]] = []

        def emit(event: Any, marks: list[tuple[float, int]] = marks) -> None:
            if type(event).__name__ == "Step":
                marks.append((time.perf_counter(), _sent()))

        result = train(request, emit=emit)
        if dist.get_rank() == 0:
            (began, before), (ended, after) = marks[0], marks[-1]
            steps = len(marks) - 1
            exchange = result.details.get("exchange", {}).get("bytes_per_step", 0)
            courses.append(Course(steps / (ended - began), result.losses, (after - before) / steps / 1e6, exchange / 1e6))
    if dist.get_rank() == 0:
        answered.write_text(json.dumps([asdict(course) for course in courses]))
    dist.destroy_process_group()


def _sent() -> int:
    """Bytes that this host's end of the link has sent."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lan:"))
    return int(line.split(":")[1].split()[8])


def predicted(gbit_s: float, layout: Mapping[str, Any]) -> float:
    """Steps per second by the planner, from the machine's measured peaks and the speed of the link."""
    shape = ModelShape.from_config({"model_type": "llama", "vocab_size": 384, **SHAPE})
    plan = Layout(workers=HOSTS * PER_HOST, precision="fp32", attention="sdpa", micro_batch=1, seq_len=TOKENS, **layout)
    return 1 / estimate_speed(Setup(shape=shape, gpu=gpu("cpu"), layout=plan, gpus_per_node=PER_HOST, network_gb_s=gbit_s / 8)).step_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speeds", type=float, nargs="*", default=SPEEDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--page", action="store_true", help="write the page from what was measured before")
    parser.add_argument("--rank", type=Path, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        rank_main(*given.rank)
        return
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not given.page:
        for speed in given.speeds:
            courses = measured(speed, given.rounds)
            kept[str(speed)] = {layout: [asdict(course) for course in each] for layout, each in courses.items()}
            RESULTS.write_text(json.dumps(kept))
            print(speed, {layout: [round(course.steps_s, 3) for course in each] for layout, each in courses.items()}, flush=True)


if __name__ == "__main__":
    main()
