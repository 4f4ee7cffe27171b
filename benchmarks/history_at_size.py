"""Run history of a hub with 100,000 jobs: rows written per second, latency of each reader's query, and retention.

`python benchmarks/history_at_size.py [--jobs 100000] [--on sqlite postgresql]`. All jobs but the last are copied into the tables; the
last are written as a hub writes them, into a database that has its size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers.installed import PostgresServer

from tuneyard.tracking import tables
from tuneyard.tracking.history import History
from tuneyard.tracking.hub_rows import JobRows, key_of
from tuneyard.tracking.past import JobFilter

HUB = "hub-1"
BATCH = 200
"""Jobs in one transaction of a hub."""
COPIED_AT_ONCE = 5_000
WRITTEN = 4_000
"""Jobs that are written as a hub writes them."""
STEPS = 4
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_SPEC = {"spec": {"tasks": [{"name": "train", "train": {"model": {"name": "m"}, "steps": 100}}], "note": "x" * 1_500}}


def job(number: int) -> JobRows:
    """A job of one of 20 namespaces with two attempts, three minutes after the one before."""
    at, key = BEGAN + timedelta(minutes=3 * number), key_of("bench", number)
    status = "failed" if number % 17 == 0 else "succeeded"
    space, ended = f"team-{number % 20}", at + timedelta(hours=2)
    own = {"name": f"job-{number % 5_000}", "namespace": space, "team": space, "status": status, "message": "", "output": "", "spec": _SPEC}
    hub = {"origin": "hub", "hub": HUB, "uid": key, "submitted_by": f"user-{number % 200}", "placed_at": at, "version": number}
    attempts = []
    for n in (1, 2):
        place = {"sku": "h100-80gb", "workers": 8, "gpus": 8, "cluster": f"c{number % 10}", "price_per_gpu_hour": 2.0, "placement": {}}
        task = {"task": "train", "kind": "train", "number": n, "status": status, "failure": "" if n == 2 else "NodeLost", "message": ""}
        times = {"started_at": at + timedelta(hours=n - 1), "placed_at": at + timedelta(hours=n - 1), "ended_at": at + timedelta(hours=n)}
        attempts.append({"id": key_of(key, n), "job_id": key, **task, **place, **times, "settings": {"gpus": 8}, "result": {"loss": 1.0}})
    ids = [each["id"] for each in attempts]
    spent = {"team": space, "sku": "h100-80gb", "workers": 8, "seconds": 3600.0, "gpu_hours": 8.0, "cost": 16.0}
    return JobRows(
        job={"id": key, **own, **hub, "started_at": at, "ended_at": ended},
        attempts=tuple(attempts),
        usage=tuple({"attempt_id": each, **spent} for each in ids),
        scores=({"attempt_id": ids[1], "metric": "loss", "value": 1.0},),
        steps=tuple({"attempt_id": ids[1], "step": 10 * n, "loss": 1.0, "tokens_per_s": 10.0, "mfu": 0.4} for n in range(STEPS)),
    )


def rows_by_table(made: Sequence[JobRows], now: datetime) -> Iterator[tuple[sa.Table, list[dict[str, Any]]]]:
    yield tables.jobs, [{**each.job, "mark": each.mark, "recorded_at": now} for each in made]
    for name in ("attempts", "usage", "scores", "steps"):
        yield tables.metadata.tables[name], [row for each in made for row in getattr(each, name)]


def cursor_of(connection: sa.Connection) -> Any:
    """Of psycopg itself, which has COPY."""
    return connection.connection.cursor()


def copy(engine: sa.Engine, jobs: int) -> None:
    """Fill the tables without the writer: COPY on PostgreSQL, executemany on SQLite."""
    for first in range(0, jobs, COPIED_AT_ONCE):
        made = [job(number) for number in range(first, min(jobs, first + COPIED_AT_ONCE))]
        with engine.begin() as connection:
            for table, rows in rows_by_table(made, BEGAN):
                if engine.dialect.name == "sqlite":
                    connection.execute(table.insert(), rows)
                    continue
                names = list(rows[0])
                with cursor_of(connection).copy(f"COPY {table.name} ({', '.join(names)}) FROM STDIN") as into:
                    for row in rows:
                        into.write_row([json.dumps(value) if isinstance(value, Mapping) else value for value in row.values()])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))  # on PostgreSQL, autovacuum does


def write(history: History, first: int, jobs: int) -> float:
    """Rows per second, of a hub's writer with full batches."""
    batches = [[job(number) for number in range(at, min(jobs, at + BATCH))] for at in range(first, jobs, BATCH)]
    rows = sum(1 + len(each.attempts) + len(each.usage) + len(each.scores) + len(each.steps) for batch in batches for each in batch)
    began = time.perf_counter()
    for batch in batches:
        history.record(batch, BEGAN)
    return rows / (time.perf_counter() - began)


def queries(history: History, jobs: int) -> dict[str, Callable[[], Any]]:
    end = BEGAN + timedelta(minutes=3 * jobs)
    mine = JobFilter(hub=HUB, namespace="team-7")
    deep = history.page(JobFilter(hub=HUB, until=BEGAN + timedelta(minutes=30)), 2).after
    newest = history.page(mine, 1).jobs[0]
    month = (end - timedelta(days=31), end)
    return {
        "newest 500 of all namespaces": lambda: history.page(JobFilter(hub=HUB), 500),
        "newest 500 of a namespace": lambda: history.page(mine, 500),
        "newest 50 of a namespace": lambda: history.page(mine, 50),
        "failed jobs of a namespace, 50": lambda: history.page(JobFilter(hub=HUB, namespace="team-7", status="failed"), 50),
        "jobs of a user, 50": lambda: history.page(JobFilter(hub=HUB, user="user-7"), 50),
        "the oldest page": lambda: history.page(JobFilter(hub=HUB), 50, deep),
        "a part of a name, 50": lambda: history.page(JobFilter(text="job-4999"), 50),
        "one job by name": lambda: history.find("job-107", mine),
        "one job by id": lambda: history.find(newest.id, mine),
        "attempts, series and scores of a job": lambda: history.detail(newest),
        "a page of 500 training runs": lambda: history.training_page(JobFilter(hub=HUB), 500),
        "usage of a month by team and SKU": lambda: history.usage(*month, ("team", "sku"), JobFilter(hub=HUB)),
        "usage of a month, one namespace, by user": lambda: history.usage(*month, ("user",), mine),
        "marks of 200 jobs (the writer)": lambda: history.marks([job(number).job["id"] for number in range(200)]),
        "retention, one step of a first pass": lambda: history.tidy(end, 7.0, 90.0),
    }


def median_ms(ask: Callable[[], Any], times: int = 7) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        found.append(time.perf_counter() - began)
    return 1000 * statistics.median(found)


@contextmanager
def database(kind: str) -> Iterator[str]:
    """URL of an empty one; PostgreSQL with fsync, as people run it."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/history.db"
        return
    server = PostgresServer("-bench", durable=True)
    try:
        server.start()
        yield server.url
    finally:
        server.remove()


def measure(url: str, jobs: int) -> dict[str, str]:
    history = History.open(url)
    engine = sa.create_engine(url)
    copied = max(0, jobs - WRITTEN)
    began = time.perf_counter()
    copy(engine, copied)
    print(f"{copied:,} jobs copied into {engine.dialect.name} in {time.perf_counter() - began:.0f} s", flush=True)
    engine.dispose()
    found = {"rows written by a hub": f"{write(history, copied, jobs):,.0f}/s"}
    for name, ask in queries(history, jobs).items():
        found[name] = f"{median_ms(ask):,.1f} ms"
    end = BEGAN + timedelta(minutes=3 * jobs)
    began, steps, longest_s, last = time.perf_counter(), 0, 0.0, -1
    while last:
        step = time.perf_counter()
        last = history.tidy(end, 7.0, 90.0)
        steps, longest_s = steps + 1, max(longest_s, time.perf_counter() - step)
    found["retention, the rest of a first pass"] = f"{time.perf_counter() - began:.1f} s in {steps} steps, the longest {longest_s:.2f} s"
    found["retention, nothing left to do (each hour)"] = f"{median_ms(lambda: history.tidy(end, 7.0, 90.0)):,.1f} ms"
    history.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--on", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"])
    chosen = parser.parse_args()
    columns = {}
    for kind in chosen.on:
        with database(kind) as url:
            columns[kind] = measure(url, chosen.jobs)
    print(f"\n{chosen.jobs:,} jobs\n\n| what | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name in next(iter(columns.values())):
        print(f"| {name} | {' | '.join(column[name] for column in columns.values())} |")


if __name__ == "__main__":
    main()
