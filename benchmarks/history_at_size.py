"""Run history of a hub with 100,000 jobs: rows written per second, latency of each reader's query, and retention.

`python benchmarks/history_at_size.py [--jobs 100000] [--url postgresql+psycopg://…]`: by default in a SQLite file.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tuneyard.tracking.history import History
from tuneyard.tracking.hub_rows import JobRows, key_of
from tuneyard.tracking.past import JobFilter

HUB = "hub-1"
BATCH = 200
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


def write(history: History, jobs: int) -> float:
    """Rows per second."""
    began, rows = time.perf_counter(), 0
    for first in range(0, jobs, BATCH):
        batch = [job(number) for number in range(first, min(jobs, first + BATCH))]
        history.record(batch, BEGAN)
        rows += sum(1 + len(each.attempts) + len(each.usage) + len(each.scores) + len(each.steps) for each in batch)
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
        "retention, one step": lambda: history.tidy(end, 7.0, 90.0),
    }


def median_ms(ask: Callable[[], Any], times: int = 7) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        found.append(time.perf_counter() - began)
    return 1000 * statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--url")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        history = History.open(chosen.url or f"sqlite:///{folder}/history.db")
        rate = write(history, chosen.jobs)
        print(f"{chosen.jobs:,} jobs on {history.shown_url.partition(':')[0]}\n\n| what | |\n|---|---|\n| rows written | {rate:,.0f}/s |")
        for name, ask in queries(history, chosen.jobs).items():
            print(f"| {name} | {median_ms(ask):.1f} ms |")
        history.close()


if __name__ == "__main__":
    main()
