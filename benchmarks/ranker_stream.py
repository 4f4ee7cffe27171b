"""A rank task whose table is stored before the first step, streamed beside the rank, or streamed from an ingestion service.

`python benchmarks/ranker_stream.py [--rounds 3]`: in each round one rank trains the same steps in each way, with empty caches.
The log is the generated one, the same 400,000 rows in each of its files. Writes docs/benchmarks/ranker_stream.md.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.training_cases import ROOT, write_page

ROWS_OF_A_FILE, FILES, ROW_GROUP = 400_000, 24, 50_000
STEPS, BATCH, WARM_UP_STEPS = 250, 4096, 10
WORKERS = 1
WAYS = ("stored", "streamed", "service")
Found = dict[str, Any]


def write_log(folder: Path) -> None:
    """FILES equal files of the generated log."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tuneyard.ranking import generated_clicks

    folder.mkdir()
    rows = pa.Table.from_batches(list(generated_clicks(ROWS_OF_A_FILE, seed=1, batch=20_000)))
    pq.write_table(rows, folder / "00.parquet", row_group_size=ROW_GROUP)
    for number in range(1, FILES):
        shutil.copy(folder / "00.parquet", folder / f"{number:02}.parquet")


def request_of(way: str, log: Path, folder: Path) -> Any:
    """The task of one way, in a folder of its own."""
    from tests.builders.rankers import rank_request, rank_task

    model = {"width": 16, "outputs": 4, "layers": [["dlrm"]], "hidden": [32]}
    fields: dict[str, Any] = {"batch": {"global": BATCH}, "steps": STEPS, "model": model, "streaming": way != "stored"}
    request = rank_request(folder, rank_task(log, **fields))
    return replace(request, streams=str(folder / "streams") if way == "service" else "")


def rank_main(given: Path, answered: Path) -> None:
    """One rank: seconds to its first step, rows/s of the later ones, and the first losses."""
    from tuneyard.tracking.bottleneck import stall_of
    from tuneyard.tracking.events import Step
    from tuneyard.training import train

    ends: list[float] = []
    began = time.perf_counter()

    def emit(event: Any) -> None:
        if isinstance(event, Step):
            ends.append(time.perf_counter())

    result = train(pickle.loads(given.read_bytes()), emit=emit)
    found = {
        "first_s": ends[0] - began,
        "rows_per_s": (len(ends) - WARM_UP_STEPS) * BATCH / (ends[-1] - ends[WARM_UP_STEPS - 1]),
        "all_s": ends[-1] - began,
        "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "waiting": stall_of(result.split),
        "losses": result.losses,
    }
    answered.write_text(json.dumps(found))


@contextmanager
def service(folder: Path) -> Iterator[None]:
    """Data workers of the service, and a fetcher for the rank's machine."""
    from tuneyard.api import DataService
    from tuneyard.runtime.ingest.service import TABLES, Fetcher, Ingestion

    (folder / "streams").mkdir(parents=True)
    ingestion = Ingestion("bench", folder.name, DataService(min_workers=WORKERS, max_workers=WORKERS), loads=TABLES)
    fetcher = Fetcher(folder / "streams", ingestion.master)
    try:
        yield
    finally:
        fetcher.close()
        ingestion.close()


def measured(way: str, log: Path, folder: Path) -> Found:
    """One way, in processes and with caches of its own."""
    folder.mkdir(parents=True)
    (folder / "request").write_bytes(pickle.dumps(request_of(way, log, folder)))
    command = [sys.executable, __file__, "--request", str(folder / "request"), "--answer", str(folder / "answer")]
    values = {**os.environ, "TUNEYARD_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    if way == "service":
        with service(folder):
            subprocess.run(command, env=values, check=True, stdout=sys.stderr)
    else:
        subprocess.run(command, env=values, check=True, stdout=sys.stderr)
    found: Found = json.loads((folder / "answer").read_text())
    found["disk_gb"] = sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file()) / 1e9
    shutil.rmtree(folder)
    print(way, {name: value for name, value in found.items() if name != "losses"}, file=sys.stderr, flush=True)
    return found


def _spread(values: Sequence[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def page(rounds: Sequence[dict[str, Found]], log_bytes: int) -> list[str]:
    """Medians with their ranges, and ratios within a round."""
    rows = ROWS_OF_A_FILE * FILES
    equal = all(one["streamed"]["losses"] == one["service"]["losses"] for one in rounds)
    lines = [
        f"The log: {rows:,} rows of 4 numbers and 7 sparse features in {FILES} files, {log_bytes / 1e9:.2f} GB of Parquet.",
        f"One rank trains {STEPS} steps of {BATCH:,} rows ({STEPS * BATCH / rows:.0%} of the log) of a ranker of one layer, with empty",
        f"caches. Other work shared the machine. Medians of {len(rounds)} rounds, and their ranges. First step: from the start of the",
        "rank's work, with torch loaded.",
        f"The service has {WORKERS} data worker, on the same cores as the rank; Ray runs already, the worker starts with the task.",
        "",
        "| | first step, s | rows/s after it | all steps, s | waiting for rows | memory, GB | disk behind it, GB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for way in WAYS:
        columns = (
            ("first_s", ".1f"),
            ("rows_per_s", ",.0f"),
            ("all_s", ".1f"),
            ("waiting", ".0%"),
            ("memory_gb", ".2f"),
            ("disk_gb", ".2f"),
        )
        lines.append(f"| {way} | " + " | ".join(_spread([one[way][name] for one in rounds], form) for name, form in columns) + " |")
    ratios = {way: [one[way]["rows_per_s"] / one["stored"]["rows_per_s"] for one in rounds] for way in WAYS[1:]}
    sooner = {way: [one["stored"]["first_s"] / one[way]["first_s"] for one in rounds] for way in WAYS[1:]}
    return [
        *lines,
        "",
        *(
            f"- {way} over stored: rows/s {_spread(ratios[way], '.2f')}, first step {_spread(sooner[way], '.1f')} times as early."
            for way in ratios
        ),
        f"- Losses of streamed and service are {'equal bit for bit' if equal else '**not equal**'}.",
        "",
        "Stored rows are on the disk as a whole before the first step. Streamed ones are those of the windows so far; from 2 GB on (or",
        "four windows, where row groups are large), old ones are removed. Memory is the largest resident set, which counts mapped pages",
        "of these files.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--request", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.request is not None:
        rank_main(given.request, given.answer)
        return
    import ray

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "log")
        log_bytes = sum(path.stat().st_size for path in (folder / "log").iterdir())
        os.environ["TUNEYARD_CACHE"] = str(folder / "of-workers")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        rounds = []
        for number in range(given.rounds):
            ways = WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]
            rounds.append({way: measured(way, folder / "log", folder / f"{number}-{way}") for way in ways})
            shutil.rmtree(folder / "of-workers", ignore_errors=True)
        ray.shutdown()
    write_page("ranker_stream", "A rank task: stored, streamed, from a service", page(rounds, log_bytes))


if __name__ == "__main__":
    main()
