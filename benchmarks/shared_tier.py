"""Two jobs one after the other on the same data, each with an empty disk of its own, with and without a place for shared shards.

`python benchmarks/shared_tier.py [--rounds 3] [--megabytes 60]`: texts and a table, on a volume and on a real S3 server of this machine.
A job is a process that reads an epoch, as a rank does, with one data worker beside it. Writes docs/benchmarks/shared_tier.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.training_cases import ROOT, write_page

KINDS, PLACES = ("texts", "table"), ("volume", "S3")
ROW_GROUP = 50_000
TABLE_ROWS_PER_MEGABYTE = 16_000
"""Of the generated log, as Parquet."""
Found = dict[str, Any]
Read = Callable[[Path, Path], Any]


def write_texts(path: Path, megabytes: int) -> None:
    from tests.builders.models import sentences

    lines = [json.dumps({"text": f"{number} " + " ".join([text] * 6)}) + "\n" for number, text in enumerate(sentences(2_000))]
    with path.open("w") as file:
        for round_ in range(10**6):
            if file.tell() > megabytes << 20:
                return
            file.writelines(line.replace('"text": "', f'"text": "{round_} ') for line in lines)


def write_table(folder: Path, megabytes: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tuneyard.ranking import generated_clicks

    folder.mkdir()
    rows = pa.Table.from_batches(list(generated_clicks(megabytes * TABLE_ROWS_PER_MEGABYTE, seed=1, batch=20_000)))
    pq.write_table(rows, folder / "0.parquet", row_group_size=ROW_GROUP)


def reader_of_texts() -> Read:
    """Reads all rows of an epoch."""
    from tests.builders.models import tokenizer_of

    from tuneyard.api import TrainData
    from tuneyard.data import prepare

    tokenizer = tokenizer_of([], eos="<|end|>", chat_template=None, size=4000)

    def read(data: Path, cache: Path) -> Any:
        spec = TrainData.model_validate({"source": str(data), "streaming": True, "workers": 1, "maxLength": 1024, "pack": True})
        rows = prepare(spec, tokenizer, objective="clm", seed=1, cache_dir=cache).train
        for position in range(0, rows.epoch_rows, 8):
            rows.__getitems__(range(position, min(position + 8, rows.epoch_rows)))
        return rows

    return read


def reader_of_table() -> Read:
    from tests.builders.rankers import rank_task

    from tuneyard.ranking import config_of_task
    from tuneyard.ranking.stream import open_table_stream

    config = config_of_task(rank_task())

    def read(data: Path, cache: Path) -> Any:
        rows = open_table_stream(str(data), config, seed=1, workers=1, cache_dir=cache)
        for position in range(0, len(rows), 4_096):
            rows.batch(range(position, min(position + 4_096, len(rows))))
        return rows

    return read


def job(kind: str, data: Path, cache: Path, place: str) -> Found:
    """In a process of its own: seconds until an epoch is read, with what is behind them."""
    from tuneyard.data.shared.courier import sharing
    from tuneyard.data.shared.place import SharedShards

    read = reader_of_texts() if kind == "texts" else reader_of_table()
    began = time.perf_counter()
    with sharing(SharedShards(place, "bench") if place else None, str(cache)):
        rows = read(data, cache)
        read_s = time.perf_counter() - began
        courier = rows.stream.shared
        counts = courier.finish(frozenset()) if courier is not None else None
    ended_s = time.perf_counter() - began
    made = {"read_s": read_s, "end_s": ended_s - read_s, "waited_s": rows.tally.waited_s, "shards": len(rows.tally.splits)}
    about = {} if counts is None else asdict(counts)
    work_s = sum(rows.tally.facts.seconds.values()) if counts is None else counts.build_s + counts.fetch_s + counts.lost_s
    return {**made, **about, "work_s": work_s}


def run(kind: str, data: Path, cache: Path, place: str) -> Found:
    command = [sys.executable, __file__, "--job", kind, str(data), str(cache), place]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: Found = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(cache)
    return found


@contextmanager
def a_bucket(folder: Path) -> Iterator[str]:
    from tests.servers.installed import make_s3

    server = make_s3(folder)
    with server.started():
        os.environ |= server.environment
        yield f"s3://{server.bucket}"


def measure(rounds: int, megabytes: int) -> list[Found]:
    found = []
    with tempfile.TemporaryDirectory() as name, a_bucket(Path(name)) as bucket:
        folder = Path(name)
        sources = {"texts": folder / "texts.jsonl", "table": folder / "table"}
        write_texts(sources["texts"], megabytes)
        write_table(sources["table"], megabytes)
        for round_ in range(rounds):
            for kind, data in sources.items():
                alone = run(kind, data, folder / "cache", "")
                for where in PLACES:
                    place = f"{folder}/tier-{kind}-{round_}" if where == "volume" else f"{bucket}/{kind}-{round_}"
                    first, second = (run(kind, data, folder / "cache", place) for _ in range(2))
                    found.append({"kind": kind, "place": where, "alone": alone, "first": first, "second": second})
                    print(json.dumps(found[-1]), flush=True)
    return found


def of(found: list[Found], kind: str, where: str, job_: str, name: str) -> list[float]:
    return [each[job_][name] for each in found if (each["kind"], each["place"]) == (kind, where)]


def ratio(found: list[Found], kind: str, where: str, jobs: tuple[str, str], name: str) -> list[float]:
    one, other = (of(found, kind, where, each, name) for each in jobs)
    return [first / second for first, second in zip(one, other, strict=True)]


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def page(found: list[Found], megabytes: int) -> list[str]:
    lines = [
        "| data | place | job | shards built | fetched | work on rows, s | waited for rows, s | reads an epoch, s | at its end, s |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    ratios = []
    for kind in KINDS:
        for where in PLACES:
            for job_ in ("alone", "first", "second"):
                values = {name: of(found, kind, where, job_, name) for name in ("work_s", "waited_s", "read_s", "end_s")}
                shards = ["" if job_ == "alone" else f"{of(found, kind, where, job_, name)[0]:.0f}" for name in ("built", "fetched")]
                named = {"alone": "without a place", "first": "first", "second": "second"}[job_]
                lines.append(f"| {kind} | {where} | {named} | {' | '.join(shards)} | {' | '.join(map(shown, values.values()))} |")
            work, read = (ratio(found, kind, where, ("first", "second"), name) for name in ("work_s", "read_s"))
            cost = ratio(found, kind, where, ("first", "alone"), "read_s")
            ratios.append(
                f"- {kind}, {where}: the first job has {shown(work)} times the second one's work on rows, and reads the epoch "
                f"in {shown(read)} times its time. The first takes {shown(cost)} times as long as without a place."
            )
    return [
        f"{megabytes} MB of texts in one file, packed into rows of 1,024 tokens, and a table of {megabytes * TABLE_ROWS_PER_MEGABYTE:,}",
        "rows of 4 numbers and 7 sparse features. A job is a process with an empty cache that reads one epoch, with one data worker and",
        "without training. Its programs are loaded before. Work on rows is in seconds of one process, those of fetching included. The S3",
        "server (versitygw) runs on the same two cores. Medians, and their ranges.",
        "",
        *lines,
        "",
        *ratios,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=60)
    parser.add_argument("--job", nargs=4)
    options = parser.parse_args()
    if options.job:
        kind, data, cache, place = options.job
        print(json.dumps(job(kind, Path(data), Path(cache), place)))
        return
    write_page("shared_tier", "Shards that two jobs share", page(measure(options.rounds, options.megabytes), options.megabytes))


if __name__ == "__main__":
    main()
