"""A trainer that one data worker cannot feed: how long its steps wait for rows without the service, with one worker, and autoscaled.

`python benchmarks/data_service.py [--seconds 60]`: the source is an S3 server behind a door that holds every answer back for a second, as
a distant store does; a trainer takes rows of one split in 0.9 s and computes nothing. Writes docs/benchmarks/data_service.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.training_cases import write_page
from tests.builders.models import sentences, tokenizer_of
from tests.servers.installed import S3, free_port
from tests.servers.slow_store import SlowStore

HELD_BACK_S = 1.0
SECONDS_PER_SPLIT = 0.9
STEPS_PER_SPLIT = 10
WARM_UP_S = 20.0
SPLITS = 160
SPLIT_BYTES = 256 << 10


@dataclass
class Measured:
    """Of the time after the warm-up. `shares` and `longest_s`: of single steps."""

    steps: int
    stalled: float
    longest_s: float
    workers: int


@contextmanager
def source(folder: Path) -> Iterator[str]:
    """A bucket with texts of SPLITS splits, whose parts are held back."""
    for name in ("buckets/tests", "logs"):
        (folder / name).mkdir(parents=True)
    texts = sentences(500)
    with (folder / "buckets/tests/texts.jsonl").open("w") as file:
        number = 0
        while file.tell() < SPLITS * SPLIT_BYTES:
            file.write(json.dumps({"text": f"{number} " + " ".join(texts[(number * 7 + i) % 500] for i in range(20))}) + "\n")
            number += 1
    server = S3(free_port(), folder / "buckets", folder / "logs")
    with server.started():
        door = SlowStore(("127.0.0.1", server.port), HELD_BACK_S)
        os.environ.update(server.environment | {"AWS_ENDPOINT_URL": door.url})
        try:
            yield "s3://tests/texts.jsonl"
        finally:
            door.close()


def trained(uri: str, folder: Path, number: int, service: tuple[int, int] | None, seconds: float) -> Measured:
    """Steps of a trainer that computes nothing, for `seconds` after the warm-up. `service`: least and most workers. `number`: rows
    of each way are of another length, so that none finds shards of one before."""
    from tuneyard.api import DataService, TrainData
    from tuneyard.data import prepare
    from tuneyard.runtime.ingest.service import Fetcher, Ingestion

    options = DataService(min_workers=service[0], max_workers=service[1]) if service else None
    ingestion = Ingestion("bench", folder.name, options) if options else None
    streams = folder / "streams"
    streams.mkdir(parents=True)
    fetcher = Fetcher(streams, ingestion.master) if ingestion else None
    spec = TrainData(source=uri, streaming=True, pack=True, max_length=512 + number, workers="auto" if service else 0)
    try:
        tokenizer = tokenizer_of([], eos="<|end|>", chat_template=None, size=4000)
        prepared = prepare(spec, tokenizer, objective="clm", seed=0, cache_dir=folder / "rank", service=streams if service else None)
        print(f"{folder.name}: {prepared.order.epoch_rows} rows", file=sys.stderr)
        rows_per_step = max(1, prepared.order.epoch_rows // SPLITS // STEPS_PER_SPLIT)
        return _steps(prepared, rows_per_step, seconds, ingestion)
    finally:
        if fetcher is not None:
            fetcher.close()
        if ingestion is not None:
            ingestion.close()


def _steps(prepared: Any, rows_per_step: int, seconds: float, ingestion: Any) -> Measured:
    waits: list[tuple[float, float]] = []
    began, position = time.monotonic(), 0
    while time.monotonic() - began < WARM_UP_S + seconds:
        start, before = time.monotonic(), prepared.train.tally.waited_s
        for _ in range(rows_per_step):
            prepared.train[prepared.order.at(position)]
            position += 1
        waited = prepared.train.tally.waited_s - before
        time.sleep(SECONDS_PER_SPLIT / STEPS_PER_SPLIT)
        if time.monotonic() - began > WARM_UP_S:
            waits.append((waited, time.monotonic() - start))
    account = ingestion.report() if ingestion else None
    return Measured(
        len(waits),
        sum(wait for wait, _ in waits) / sum(whole for _, whole in waits),
        max(wait for wait, _ in waits),
        account.most_workers if account else 0,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    import ray

    from tuneyard.data.stream import splits

    splits.LEAST_SPLIT_BYTES, splits._ROWS_OF_A_SHARD = SPLIT_BYTES, 0
    ways = {"no service: the rank makes its rows": None, "one worker": (1, 1), "1 to 6 workers, autoscaled": (1, 6)}
    with tempfile.TemporaryDirectory() as name, source(Path(name)) as uri:
        os.environ["TUNEYARD_CACHE"] = f"{name}/workers"
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        found = {way: trained(uri, Path(name) / str(i), i, service, seconds) for i, (way, service) in enumerate(ways.items())}
        ray.shutdown()
    lines = [
        f"A trainer takes the rows of a split ({SPLIT_BYTES >> 10} KiB of text) in {SECONDS_PER_SPLIT:g} s and computes nothing.",
        f"The store holds every range back for {HELD_BACK_S:g} s, so one worker needs longer than that for a split. Stall: share of the",
        f"time of steps in which the trainer waits for shards, after {WARM_UP_S:g} s of warm-up, over {seconds:g} s.",
        "",
        "| | steps | stall | longest wait | workers at most |",
        "|---|---:|---:|---:|---:|",
        *(f"| {way} | {m.steps} | {m.stalled:.1%} | {m.longest_s:.2f} s | {m.workers} |" for way, m in found.items()),
    ]
    write_page("data_service", "A trainer that one data worker cannot feed", lines)


if __name__ == "__main__":
    main()
