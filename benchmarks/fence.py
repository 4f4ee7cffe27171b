"""Attempts that race for a commit log, in random orders on each store and in all orders of a small case: does the fence hold?

`python benchmarks/fence.py [--interleavings 1000]`: writes docs/benchmarks/fence.md. S3 is versitygw on this machine.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.commits.interleavings import (  # noqa: E402 -- found by the line above
    Deed,
    Fault,
    History,
    Life,
    MemoryStore,
    Plan,
    every_order,
    random_order,
    random_plan,
    run,
)
from tests.commits.promises import violations  # noqa: E402
from tests.servers.installed import make_s3  # noqa: E402

from tuneyard.storage import Store, open_store  # noqa: E402

DOCUMENT = ROOT / "docs" / "benchmarks" / "fence.md"
COMMIT = Life((Deed("commit"),))
ANSWER_LOST = (Fault.ANSWER_LOST, Fault.ANSWER_NEVER, Fault.ARRIVES_LATE)
DIED = (Fault.DIES_BEFORE, Fault.DIES_AFTER)


@dataclass
class Row:
    store: str
    interleavings: int = 0
    operations: int = 0
    commits: int = 0
    fenced: int = 0
    answers_lost: int = 0
    died: int = 0
    violations: int = 0
    seconds: float = 0.0

    def add(self, history: History) -> None:
        self.interleavings += 1
        self.operations += history.turns
        self.commits += sum(entry["kind"] == "commit" for entry in history.entries)
        self.fenced += sum(told.outcome == "fenced" for told in history.told)
        self.answers_lost += sum(history.faults[fault] for fault in ANSWER_LOST)
        self.died += sum(history.faults[fault] for fault in DIED)
        self.violations += len(violations(history))

    def __str__(self) -> str:
        counts = (self.interleavings, self.operations, self.commits, self.fenced, self.answers_lost, self.died, self.violations)
        return f"| {self.store} | {' | '.join(f'{count:,}' for count in counts)} | {self.seconds:.1f} |"


def measured(store: str, histories: Callable[[], Iterable[History]]) -> Row:
    row = Row(store)
    began = time.perf_counter()
    for history in histories():
        row.add(history)
    row.seconds = time.perf_counter() - began
    print(row, flush=True)
    return row


def at_random(make: Callable[[], Store], count: int) -> Iterable[History]:
    """`make`: a store, once for all that share it; each interleaving has a folder of its own there."""
    for seed in range(count):
        yield run(make(), random_plan(seed), random_order(seed), prefix=f"{seed}/log")


@contextmanager
def s3_store(folder: Path) -> Iterator[Store]:
    server = make_s3(folder)
    os.environ.update(server.environment)
    with server.started():
        yield open_store(f"s3://{server.bucket}/fence")


HEAD = (
    "| store | interleavings | operations | commits | calls fenced | answers lost | attempts killed | violations | seconds |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)
PAGE = """# The fence under races

`python {command}`, {date}, {cores} cores, shared with other work: the counts repeat exactly, the seconds do not.

Two or three places with up to three attempts each, and a bystander who reads. An attempt opens the log, commits growing steps, at times
goes back, is killed, loses an answer, sleeps while others go on, and insists after it was fenced. One storage operation at a time, in an
order drawn from the seed; then everything that anybody was told is held against the entries of the log
([design](../design/033-fenced-commits.md)).

{table}

*Violations* are: two winners of one number; a commit that an attempt was told of, and that does not count in the end though no restart
voided it; an entry by a token after a higher one opened; steps that do not grow; a reader that saw anything but a prefix of the one
history, or an older one than was complete when it began; a success after being fenced; being fenced by nobody. *Answers lost*: of
writes that were sent, or arrived after they were given up. *All orders*: of two attempts that open and commit once, on an empty log.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interleavings", type=int, default=1000)
    count = parser.parse_args().interleavings
    print(HEAD)
    plan = Plan(((COMMIT,), (COMMIT,)))
    rows = [
        measured("memory, all orders", lambda: every_order(lambda choose: run(MemoryStore(), plan, choose))),
        measured("memory", lambda: at_random(MemoryStore, count)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        local = open_store(f"{folder}/local")
        rows.append(measured("local disk", lambda: at_random(lambda: local, count)))
        with s3_store(Path(folder)) as s3:
            rows.append(measured("S3 (versitygw)", lambda: at_random(lambda: s3, count)))
    table = "\n".join([HEAD, *map(str, rows)])
    command = " ".join(["benchmarks/fence.py", *sys.argv[1:]])
    DOCUMENT.write_text(PAGE.format(command=command, date=datetime.date.today(), cores=len(os.sched_getaffinity(0)), table=table))
    if any(row.violations for row in rows):
        sys.exit("the fence does not hold")


if __name__ == "__main__":
    main()
