"""Hybrid sharding beside full sharding over a slow link: two hosts of two ranks each, at five link speeds, plain and in 8 bits.

`python benchmarks/hybrid_sharding.py --states --page`: as root; writes docs/benchmarks/hybrid_sharding.md and its picture. Several
calls add up: a call adds its rounds to the kept ones, `--rounds 0 --states` measures the bf16 states, `--rounds 0 --page` writes the
page from the kept rounds. The ranks are started once, and run the layouts in turn at each speed, so that neighbours have the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from philly_figures import standalone
from shaped_link import Hosts, two_hosts
from training_cases import ROOT, request_of, run_in_ranks, task_of, write_material, write_page

from tuneyard.catalog import gpu, shape_from_config
from tuneyard.planning import Layout, Setup, estimate_speed
from tuneyard.tracking.charts import Line
from tuneyard.training import TrainRequest

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Gbit/s in each direction."""
DELAY_MS = 1.0
HOSTS, PER_HOST = 2, 2
SHAPE = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 6}
STEPS = 6
SETTLES_S = 0.5
"""After a change of the link's speed."""
TOKENS = 96
FEWER_TOKENS = (48, 24)
"""Rows with less work for as many bytes, at `SAME_AT`: a faster device, by another name."""
SAME_AT = 1.0
ROUNDS = 3
LAYOUTS: dict[str, dict[str, Any]] = {
    "full": {"zero": 3},
    "hybrid": {"zero": 3, "shard_within": "host"},
    "hybrid, int8": {"zero": 3, "shard_within": "host", "quantised_all_reduce": "int8"},
    "hybrid, fp8": {"zero": 3, "shard_within": "host", "quantised_all_reduce": "fp8"},
}
SHOWN = ("full", "hybrid", "hybrid, int8")
FP8_AT = 1.0
"""The one speed at which fp8 is measured: it sends as much as int8."""
STATES_STEPS = 300
RESULTS = Path(tempfile.gettempdir()) / "hybrid_sharding.json"
"""Of speeds that were measured, so that a long benchmark can be made in several goes."""

Rates = Mapping[float, Mapping[str, Sequence[float]]]
"""Steps per second by speed and layout, one per round."""


@dataclass(frozen=True)
class Course:
    """One run: steps per second after the first step, losses, and bytes that the first host sent over the link per step."""

    steps_s: float
    losses: list[float]
    link_mb: float
    exchange_mb: float


def measure(turn: int) -> None:
    """Add a round of all speeds and layouts to what is kept. Ranks are started once: what each run leaves in them limits a process to one
    round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speed = folder / "speed"
        speed.write_text("1")
        model, text = write_material(folder, SHAPE)

        def run(gbit_s: float, layout: str, tokens: int = TOKENS) -> tuple[float, int, str, TrainRequest]:
            data = {"source": str(text), "maxLength": tokens, "pack": True}
            task = task_of(model, text, data=data, batch={"global": HOSTS * PER_HOST}, steps=STEPS)
            place = folder / f"{turn}-{gbit_s}-{tokens}-{layout}"
            request = request_of(place, task, workers=HOSTS * PER_HOST, micro_batch=1, grad_accum=1, **LAYOUTS[layout])
            return gbit_s, tokens, layout, request

        runs = [run(gbit_s, layout) for gbit_s in SPEEDS for layout in LAYOUTS if layout in SHOWN or gbit_s == FP8_AT]
        runs += [run(SAME_AT, layout, tokens) for tokens in FEWER_TOKENS for layout in SHOWN]
        with two_hosts(speed, DELAY_MS) as hosts:
            in_hosts(hosts, folder, runs)


def in_hosts(hosts: Hosts, folder: Path, runs: Sequence[tuple[float, int, str, TrainRequest]]) -> None:
    """Start the ranks, which do all runs one after the other."""
    given = folder / "runs.pickle"
    given.write_bytes(pickle.dumps(list(runs)))
    ranks = []
    for rank in range(HOSTS * PER_HOST):
        host, local = divmod(rank, PER_HOST)
        place = {"RANK": rank, "WORLD_SIZE": HOSTS * PER_HOST, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": PER_HOST}
        where = {"MASTER_ADDR": hosts.addresses[0], "MASTER_PORT": 29500, "GLOO_SOCKET_IFNAME": hosts.device, "OMP_NUM_THREADS": 1}
        environment = {name: str(value) for name, value in {**place, **where, "DS_ACCELERATOR": "cpu"}.items()}
        command = hosts.inside(host, [sys.executable, "-W", "ignore", __file__, "--rank", str(given), str(hosts.speed)])
        log = (folder / f"rank{rank}.log").open("w")
        output = None if rank == 0 else log
        ranks.append(subprocess.Popen(command, env=os.environ | environment, stdout=output, stderr=log))
    try:
        statuses = [process.wait() for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if any(statuses):
        logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("rank*.log")))
        raise RuntimeError(f"exit statuses {statuses}:\n{logs}")


def rank_main(given: Path, speed: Path) -> None:
    """A rank: does the runs, and the first keeps what came of each."""
    import torch
    import torch.distributed as dist

    from tuneyard.training import train

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for gbit_s, tokens, layout, request in pickle.loads(given.read_bytes()):
        if dist.get_rank() == 0:
            fresh = speed.with_suffix(".new")
            fresh.write_text(str(gbit_s))
            fresh.replace(speed)
            time.sleep(SETTLES_S)
        dist.barrier()
        marks: list[tuple[float, int]] = []

        def emit(event: Any, marks: list[tuple[float, int]] = marks) -> None:
            if type(event).__name__ == "Step":
                marks.append((time.perf_counter(), _sent()))

        result = train(request, emit=emit)
        if dist.get_rank() == 0:
            (began, before), (ended, after) = marks[0], marks[-1]
            steps = len(marks) - 1
            exchange = result.details.get("exchange", {}).get("bytes_per_step", 0)
            course = Course(steps / (ended - began), result.losses, (after - before) / steps / 1e6, exchange / 1e6)
            _keep(f"{gbit_s}" if tokens == TOKENS else f"{tokens} tokens", layout, course)
            print(gbit_s, tokens, layout, f"{course.steps_s:.3f} steps/s", flush=True)
    dist.destroy_process_group()


def kept() -> dict[str, Any]:
    """What was measured: by speed (or `N tokens`) and layout, one course per round."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def _keep(place: str, layout: str, course: Course) -> None:
    found = kept()
    found.setdefault(place, {}).setdefault(layout, []).append(asdict(course))
    RESULTS.write_text(json.dumps(found))


def _sent() -> int:
    """Bytes that this host's end of the link has sent."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lan:"))
    return int(line.split(":")[1].split()[8])


def predicted(gbit_s: float, layout: Mapping[str, Any]) -> float:
    """Steps per second by the planner, from the machine's measured peaks and the speed of the link."""
    shape = shape_from_config({"model_type": "llama", "vocab_size": 384, **SHAPE})
    plan = Layout(workers=HOSTS * PER_HOST, precision="fp32", attention="sdpa", micro_batch=1, seq_len=TOKENS, **layout)
    return 1 / estimate_speed(Setup(shape=shape, gpu=gpu("cpu"), layout=plan, gpus_per_node=PER_HOST, network_gb_s=gbit_s / 8)).step_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--states", action="store_true", help="measure bf16 optimizer states")
    parser.add_argument("--page", action="store_true", help="write the page from what was measured")
    parser.add_argument("--rank", type=Path, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        rank_main(*given.rank)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ranks, link and namespaces go with it
    for turn in range(given.rounds):
        measure(turn)
    if given.states:
        RESULTS.write_text(json.dumps(kept() | {"states": states()}))
    if given.page:
        write(kept())


def states() -> dict[str, Any]:
    """Losses, bytes of tensors and time of the optimizer with fp32 and with bf16 states, two seeds each."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, text = write_material(folder)
        for seed in (42, 43):
            for kind in ("fp32", "bf16"):
                optimizer = {"learningRate": 1e-3, "states": kind}
                task = task_of(model, text, optimizer=optimizer, steps=STATES_STEPS, seed=seed)
                answer = run_in_ranks(request_of(folder / f"{kind}{seed}", task, workers=1), torchrun=False)
                split = answer.result.split
                found[f"{kind}, seed {seed}"] = {
                    "losses": answer.result.losses,
                    "tensors_mb": answer.tensor_bytes / 1e6,
                    "optimizer_ms": 1e3 * split["optimizer"] / STATES_STEPS,
                    "step_ms": 1e3 * sum(split[part] for part in ("forward", "backward", "optimizer")) / STATES_STEPS,
                }
                print(kind, seed, {key: value for key, value in found[f"{kind}, seed {seed}"].items() if key != "losses"}, flush=True)
    return found


def write(found: Mapping[str, Any]) -> None:
    """The page and its picture."""
    speeds = _speeds(found)
    rates = {speed: _steps_s(found[str(speed)]) for speed in speeds}
    planned = {speed: {layout: predicted(speed, fields) for layout, fields in LAYOUTS.items()} for speed in speeds}
    rounds = sorted({len(rates[speed]["full"]) for speed in speeds})
    lines = [
        f"Two network namespaces of two ranks each, joined by a link of a chosen speed with {DELAY_MS:g} ms of delay each way",
        "(`benchmarks/shaped_link.py`: a relay between TUN devices that holds packets; this kernel has no netem). All four ranks share the",
        "machine's two cores. A 10-million-parameter Llama shape, full training in fp32, one row of 96 tokens per rank and step, gloo.",
        f"Steps per second after the first step, median of {' or '.join(map(str, rounds))} runs of {STEPS} steps; the layouts run in",
        "turn in the same processes, and rounds of several calls are kept.",
        "Ratios are medians over the rounds (smallest to largest), each of two runs that stood next to each other.",
        "",
        "| Gbit/s | full sharding | hybrid | hybrid, int8 | hybrid over full | int8 over hybrid |",
        "|---|---|---|---|---|---|",
        *(_row(speed, rates[speed]) for speed in speeds),
        "",
        *(["![Steps per second by speed of the link](hybrid_sharding.svg)", ""] if len(speeds) > 1 else []),
        "The planner's prediction for the same steps, before anything runs. It does not count the arithmetic of 8 bits, which a GPU does",
        "beside backward, and which these two cores do in its place:",
        "",
        "| Gbit/s | full sharding | hybrid | hybrid, int8 | hybrid over full | int8 over hybrid |",
        "|---|---|---|---|---|---|",
        *(_planned_row(speed, planned[speed]) for speed in speeds),
        "",
        "Bytes that a host sends over the link in a step, as its interface counts them, and what training counts for a rank's exchange:",
        "",
        "| layout | MB over the link | exchange, MB per rank | largest relative difference of losses to full sharding |",
        "|---|---|---|---|",
        *(_bytes_row(found, layout) for layout in LAYOUTS),
        "",
        *_fp8_line(rates),
        *_fewer_tokens_section(found),
        "gloo makes a reduce-scatter from an all-reduce, so full sharding sends more here than ZeRO-3 does by NCCL.",
        "",
        *(_states_section(found["states"]) if "states" in found else []),
    ]
    if len(speeds) > 1:
        _draw(speeds, rates, planned)
    write_page("hybrid_sharding", "Hybrid sharding over a slow link, and bf16 optimizer states", lines)


def _speeds(found: Mapping[str, Any]) -> list[float]:
    return sorted(float(speed) for speed in found if speed != "states" and not speed.endswith("tokens"))


def _steps_s(courses: Mapping[str, Any]) -> dict[str, list[float]]:
    return {layout: [course["steps_s"] for course in each] for layout, each in courses.items()}


def _fewer_tokens_section(found: Mapping[str, Any]) -> list[str]:
    """The same bytes beside less work."""
    rows = [(tokens, found[place]) for tokens in (TOKENS, *FEWER_TOKENS) if (place := _place(tokens)) in found]
    if len(rows) < 2:
        return []
    return [
        f"At {SAME_AT:g} Gbit/s with shorter rows, so that a step has less work for the same bytes. Four ranks on two cores hide the plain",
        "exchange under what they compute, and pay for the arithmetic of 8 bits, which a GPU does on the side:",
        "",
        "| tokens per row | full sharding | hybrid | hybrid, int8 | hybrid over full | int8 over hybrid |",
        "|---|---|---|---|---|---|",
        *(_row(tokens, _steps_s(courses)) for tokens, courses in rows),
        "",
    ]


def _place(tokens: int) -> str:
    return str(SAME_AT) if tokens == TOKENS else f"{tokens} tokens"


def _draw(speeds: Sequence[float], rates: Rates, planned: Mapping[float, Mapping[str, float]]) -> None:
    drawn = [
        Line(layout, [(speed, statistics.median(rates[speed][layout])) for speed in speeds], f"s{at}") for at, layout in enumerate(SHOWN)
    ]
    drawn.append(Line("planner, hybrid", [(speed, planned[speed]["hybrid"]) for speed in speeds], "s3"))
    chart = standalone(drawn, "Steps per second", over="Gbit/s")
    (ROOT / "docs" / "benchmarks" / "hybrid_sharding.svg").write_text(chart, encoding="utf-8")


def _states_section(found: Mapping[str, Any]) -> list[str]:
    return [
        "## bf16 optimizer states",
        "",
        f"{STATES_STEPS} steps of a 6-million-parameter Llama shape, one process, ZeRO 0, fp32, AdamW with both kinds of states.",
        "Losses are means over steps: of the last 50, and the largest distance to the run with fp32 states in any window of 20.",
        "",
        "| states | loss at the end | distance | tensors after the last step, MB | optimizer, ms per step | forward to optimizer, ms |",
        "|---|---|---|---|---|---|",
        *_states_rows(found),
    ]


def _ratio(rates: Mapping[str, Sequence[float]], one: str, other: str) -> str:
    """Median of the ratios of neighbouring runs, with the smallest and the largest."""
    ratios = [a / b for a, b in zip(rates[one], rates[other], strict=False)]  # the last round may have been cut short
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _row(speed: float, rates: Mapping[str, Sequence[float]]) -> str:
    cells = [f"{speed:g}", *(f"{statistics.median(rates[layout]):.3f}" for layout in SHOWN)]
    cells += [_ratio(rates, *pair) for pair in (("hybrid", "full"), ("hybrid, int8", "hybrid"))]
    return "| " + " | ".join(cells) + " |"


def _planned_row(speed: float, planned: Mapping[str, float]) -> str:
    cells = [f"{speed:g}", *(f"{planned[layout]:.3f}" for layout in SHOWN)]
    cells += [f"{planned['hybrid'] / planned['full']:.2f}", f"{planned['hybrid, int8'] / planned['hybrid']:.2f}"]
    return "| " + " | ".join(cells) + " |"


def _fp8_line(rates: Rates) -> list[str]:
    if "hybrid, fp8" not in rates.get(FP8_AT, {}):
        return []
    return [f"fp8 at {FP8_AT:g} Gbit/s: {_ratio(rates[FP8_AT], 'hybrid, fp8', 'hybrid')} times the steps of plain hybrid sharding.", ""]


def _bytes_row(found: Mapping[str, Any], layout: str) -> str:
    courses = [course for speed in _speeds(found) for course in found[str(speed)].get(layout, [])]
    full = found[str(_speeds(found)[0])]["full"][0]["losses"]
    apart = max(abs(a / b - 1) for course in courses for a, b in zip(course["losses"], full, strict=True))
    link = statistics.median(course["link_mb"] for course in courses)
    exchange = statistics.median(course["exchange_mb"] for course in courses)
    return f"| {layout} | {link:.1f} | {exchange:.1f} | {apart:.1e} |"


def _states_rows(found: Mapping[str, Any]) -> list[str]:
    def smooth(losses: Sequence[float]) -> list[float]:
        return [statistics.fmean(losses[at : at + 20]) for at in range(len(losses) - 19)]

    rows = []
    for name, values in found.items():
        fp32 = found[f"fp32, {name.partition(', ')[2]}"]["losses"]
        apart = max(abs(a - b) for a, b in zip(smooth(values["losses"]), smooth(fp32), strict=True))
        rows.append(
            f"| {name} | {statistics.fmean(values['losses'][-50:]):.4f} | {apart:.4f} | {values['tensors_mb']:.1f} "
            f"| {values['optimizer_ms']:.1f} | {values['step_ms']:.1f} |"
        )
    return rows


if __name__ == "__main__":
    main()
