"""The read path beside its peers: rows of tokens and a wide table, samples per CPU second, and the first batch after a resume.

`python benchmarks/read_path.py [--mib 200] [--rounds 5] [--folder FOLDER]`: makes the data (kept in FOLDER), runs all
readers in turns, and writes docs/benchmarks/read_path.md. The peers are installed into a folder of the cache.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peer_packages import add_packages
from training_cases import write_page

PACKAGES = (
    *("torchdata==0.11.0", "mosaicml-streaming==0.13.0", "torchvision==0.28.0", "boto3==1.44.8", "botocore==1.44.8", "catalogue==2.0.10"),
    *("brotli==1.2.1", "cramjam==2.14.0", "python-snappy==0.7.3", "s3transfer==0.19.3", "zstd==1.5.7.2"),
)
add_packages("read_path", PACKAGES)

import torch  # noqa: E402 - the peers are on the path only from here on
from read_path_text import BATCH, LENGTH, Ours, checked, peers, ray_data, tokenizer, write_peers, write_texts  # noqa: E402
from read_path_wide import about, ray_way, wide_table, wide_ways  # noqa: E402
from reading_rounds import Reading, Way, first_batch_s, in_turns  # noqa: E402

FRACTIONS = (0.0, 0.5, 0.9)

_HEAD = """\
All readers run in one process, one after another, without processes of a loader and with torch on one thread; the page cache is
warm. Samples are rows. CPU seconds are those of the process and all its children. `opening` is what a reader takes until its
first batch; rows of tokens are counted from there on, the wide table from its opening on. Ray Data reads ahead of its first
batch, so its opening holds a part of its reading. Medians of {rounds} rounds in turns, ratios with their range; Ray Data, whose
processes never rest, after the others. Versions: {versions}."""
_TEXT = """\
{mib} MiB of text as packed rows of at most {length} tokens; {read:,} of them are read in shuffled order, as micro-batches of
{batch}: int64 tensors `input_ids` and `labels`. Tuneyard's reader is what a rank of a train task runs, with `position_ids` and
the account of tokens; it fills rows up itself. Its shards are all built, and no data workers run. The peers have {rows:,} of
the same rows, filled up before, as int32 of fixed length in their own format: Arrow, MDS, Parquet of Ray's tensors."""
_RESUME = """\
Seconds from nothing (the data set closed, libraries loaded) to the first batch, at a share of an epoch; medians of 3.
Tuneyard's epoch is the whole data set, that of the peers {rows:,} rows. torch's DataLoader and Ray Data have no state inside an
epoch. The streaming `datasets` do not keep their shuffle buffer: rows in it are lost."""
_NEW = """\
Tuneyard on a machine that has no shards: the data set is opened (a sample of 4 MiB is tokenised) and placed by a checkpoint's
cursor, and the shards of the first batch are built. `without counts` is a cursor without the rows of each split, which older
checkpoints have: all of the window is built first."""


def reading_table(ways: Sequence[Way], found: dict[str, list[Reading]]) -> Iterator[str]:
    """Ratios are those of the rounds: CPU seconds per row over those of the first way."""
    yield "| reader | samples/s | CPU s per 1,000 samples | samples per CPU s | CPU, Tuneyard = 1 | opening, CPU s |"
    yield "|---|---:|---:|---:|---:|---:|"
    base = [one.cpu_s / one.rows for one in found[ways[0].name]]
    for name, readings in found.items():
        cpu = [one.cpu_s / one.rows for one in readings]
        wall = statistics.median(one.wall_s / one.rows for one in readings)
        opening = statistics.median(one.opening_cpu_s for one in readings)
        ratios = [theirs / ours for ours, theirs in zip(base, cpu, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        middle = statistics.median(cpu)
        yield f"| {name} | {1 / wall:,.0f} | {middle * 1000:.3f} | {1 / middle:,.0f} | {spread} | {opening:.2f} |"


def resume_table(ways: Sequence[Way], rounds: int) -> Iterator[str]:
    yield "| reader | at 0 %, s | at 50 %, s | at 90 %, s |"
    yield "|---|---:|---:|---:|"
    for way in ways:
        seconds = [first_batch_s(way, way.state(fraction), rounds) for fraction in FRACTIONS] if way.state else []
        yield f"| {way.name} | {' | '.join(f'{each:.3f}' for each in seconds) or 'no state | no state | no state'} |"


def new_machine(ours: Ours) -> Iterator[str]:
    """One resume each, from an empty cache."""
    yield "| resume at | opened and placed, s | first batch, s | shards |"
    yield "|---|---:|---:|---:|"
    for fraction, counts in [*((each, True) for each in FRACTIONS), (FRACTIONS[-1], False)]:
        state = ours.state(True, fraction)
        if not counts:
            state["cursors"][""].pop("rows")
        with tempfile.TemporaryDirectory() as empty:
            start = time.perf_counter()
            prepared = ours.prepared(streaming=True, cache=Path(empty))
            prepared.place(state["cursors"])
            opened = time.perf_counter()
            next(ours.batches(prepared, state["step"]))
            first = time.perf_counter()
            shards = len(prepared.streams[0][1].tally.splits)
        yield f"| {fraction:.0%}{'' if counts else ', without counts'} | {opened - start:.2f} | {first - opened:.2f} | {shards} |"


def made(folder: Path, mib: int, rows: int) -> Ours:
    """The data in all formats, made once."""
    folder.mkdir(parents=True, exist_ok=True)
    source, known = folder / "text.jsonl", tokenizer()
    if not source.exists():
        write_texts(source, mib)
    ours = Ours(source, folder / "cache", known)
    if not (folder / "made").exists():
        ours.prepared(streaming=False)
        write_peers(folder, *ours.exported(rows))
        (folder / "made").touch()
    for fraction in (1.0, 0.0):  # all shards are there
        ours.state(True, fraction)
    return ours


def with_ray(ways: list[Way], last: Way, given: Any, *, whole: bool) -> Iterator[str]:
    """The table of all ways: those of one process in turns, then Ray Data."""
    import ray

    most = last.rows if whole else given.read
    found = in_turns(ways, given.rounds, most, whole=whole)
    ray.init(num_cpus=2, object_store_memory=1 << 30, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    found |= in_turns([last], given.rounds, most, whole=whole)
    ray.shutdown()
    yield from reading_table([*ways, last], found)


def text_lines(folder: Path, given: Any) -> list[str]:
    ours = made(folder, given.mib, given.rows)
    ways: list[Way] = [*ours.ways(given.rows), *peers(folder, given.rows)]
    checked(ways)
    text = _TEXT.format(mib=given.mib, length=LENGTH, rows=given.rows, read=given.read, batch=BATCH)
    return ["## Rows of tokens", "", text, "", *with_ray(ways, ray_data(folder, given.rows), given, whole=False)]


def resume_lines(folder: Path, given: Any) -> list[str]:
    ours = made(folder, given.mib, given.rows)
    ways = [way for way in [*ours.ways(given.rows), *peers(folder, given.rows)] if way.state is not None]
    return ["## Resume", "", _RESUME.format(rows=given.rows), "", *resume_table(ways, 3), "", _NEW, "", *new_machine(ours)]


def wide_lines(folder: Path, given: Any) -> list[str]:
    import datasets

    datasets.disable_progress_bars()
    table, features = wide_table(folder)
    ways = wide_ways(folder, table, features)
    read = list(with_ray(ways, ray_way(table, features), given, whole=True))
    resumed = resume_table([way for way in ways if way.state], 3)
    return ["## A wide table", "", about(table), "", *read, "", "The first batch after a resume:", "", *resumed]


def versions() -> str:
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("torch", "datasets", "torchdata", "mosaicml-streaming", "ray"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=200, help="of text")
    parser.add_argument("--rows", type=int, default=16_000, help="of tokens that the peers have")
    parser.add_argument("--read", type=int, default=8_000, help="rows that one reading reads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="of data and figures, which stay there: what it has is not made or measured again")
    parser.add_argument("--part", choices=list(_PARTS), help="measure this part alone, into the folder; the page waits for the others")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as passing:
        folder = given.folder or Path(passing)
        for name, measure in _PARTS.items():
            figures = folder / f"{name}.figures"
            if given.part in (None, name) and not figures.exists():
                lines = measure(folder, given)
                figures.write_text("\n".join(lines) + "\n")
                print("\n".join(lines), flush=True)
        if given.part is None:
            lines = [line for name in _PARTS for line in [*(folder / f"{name}.figures").read_text().splitlines(), ""]]
            head = _HEAD.format(rounds=given.rounds, versions=versions()).splitlines()
            write_page("read_path", "The read path beside its peers", [*head, "", *lines[:-1]])


_PARTS = {"text": text_lines, "resume": resume_lines, "wide": wide_lines}

if __name__ == "__main__":
    main()
