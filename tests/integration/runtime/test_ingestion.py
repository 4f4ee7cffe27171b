"""The ingestion service on a real Ray: every row exactly once and in order, whatever is killed or hangs; workers by what the ranks need."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import dumps
from typing import Any

import pytest
import ray
import torch
from tests.builders.models import CHAT_TEMPLATE, tokenizer_of, write_text
from tests.builders.rankers import rank_task, small_windows, write_clicks
from tests.servers.installed import make_s3

from tuneyard.api import DataService, TrainData
from tuneyard.data import prepare, prepare_rows
from tuneyard.data.shared.courier import shared_here, sharing
from tuneyard.data.shared.place import Counts, SharedShards
from tuneyard.data.stream import splits
from tuneyard.ranking import config_of_task
from tuneyard.ranking.stream import open_table_stream
from tuneyard.runtime.ingest import master as ingest_master
from tuneyard.runtime.ingest.service import Fetcher, Ingestion
from tuneyard.runtime.ingest.worker import Built, DataWorker

pytestmark = pytest.mark.timeout(600)


class Store:
    """The S3 server that holds the data. `away` takes it down for a while, and is passed over while it is."""

    def __init__(self, folder: Path) -> None:
        self.s3 = make_s3(folder)
        self._returns = threading.Thread()
        self._up = self.s3.started()
        self._up.__enter__()

    def away(self, seconds: float) -> None:
        if not self._returns.is_alive():
            self._up.__exit__(None, None, None)
            self._returns = threading.Thread(target=self._return, args=(seconds,))
            self._returns.start()

    def settle(self) -> None:
        """Wait until it is back."""
        if self._returns.is_alive():
            self._returns.join()

    def _return(self, seconds: float) -> None:
        time.sleep(seconds)
        self._up = self.s3.started()
        self._up.__enter__()

    def close(self) -> None:
        self.settle()
        self._up.__exit__(None, None, None)


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """And a Ray whose processes know it."""
    made = Store(tmp_path_factory.mktemp("s3"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.s3.environment.items():
            patch.setenv(name, value)
        patch.setenv("TUNEYARD_CACHE", str(tmp_path_factory.mktemp("cache")))  # where workers keep shards, also those of an earlier run
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield made
        ray.shutdown()
    made.close()


@dataclass
class Setting:
    """A service whose fetcher runs here, as in the agent of a machine."""

    service: Ingestion
    folder: Path
    data: dict[str, Any]
    cache: Path
    fetcher: Fetcher | None = None

    def rows(self, *, leave_s: float = 30.0) -> Any:
        tokenizer = tokenizer_of([], eos="<|end|>", chat_template=CHAT_TEMPLATE)
        spec = TrainData.model_validate(self.data)
        prepared = prepare(spec, tokenizer, objective="clm", seed=1, cache_dir=self.cache, service=self.folder)
        prepared.train.stream = replace(prepared.train.stream, leave_s=leave_s)
        return prepared.train

    def fetch(self) -> None:
        if self.fetcher is not None:
            self.fetcher.close()
        self.fetcher = Fetcher(self.folder, self.service.master)


@pytest.fixture
def setting(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Setting]]:
    monkeypatch.setattr(splits, "LEAST_SPLIT_BYTES", 4096)
    monkeypatch.setattr(splits, "_ROWS_OF_A_SHARD", 0)
    store.settle()  # it may be away still when the test before ends
    write_text(store.s3.root / store.s3.bucket / "text.jsonl", 3000)
    made: list[Setting] = []

    def make(**service: Any) -> Setting:
        options = DataService(**{"cpus": 0.1, "memory_gb": 0.1, **service})
        data = {"source": f"s3://{store.s3.bucket}/text.jsonl", "streaming": True, "maxLength": 64}
        made.append(Setting(Ingestion("job", f"task-{len(made)}", options), tmp_path / f"streams-{len(made)}", data, tmp_path / "cache"))
        made[-1].folder.mkdir()
        made[-1].fetch()
        return made[-1]

    yield make
    for each in made:
        assert each.fetcher is not None
        each.fetcher.close()
        each.service.close()


def undisturbed(setting: Setting, tmp_path: Path, count: int) -> list[tuple[int, ...]]:
    tokenizer = tokenizer_of([], eos="<|end|>", chat_template=CHAT_TEMPLATE)
    spec = TrainData.model_validate({**setting.data, "workers": 0})
    rows = prepare(spec, tokenizer, objective="clm", seed=1, cache_dir=tmp_path / "other").train
    return [tuple(rows[position]["input_ids"]) for position in range(count)]


def test_rows_come_from_the_service_and_are_those_of_one_process(setting: Callable[..., Setting], tmp_path: Path) -> None:
    """And what its workers have built is fetched by the next job of the team, on another machine."""
    used, place = setting(min_workers=2), SharedShards(str(tmp_path / "tier"), "maps")
    used.data["maxLength"] = 60  # shards of other tests lie on the machine of the workers
    with sharing(place, "first"):
        rows = used.rows()
        found = [tuple(rows[position]["input_ids"]) for position in range(3500)]
        assert shared_counts().stored >= 1, "the sample, which the rank has built"
    assert found == undisturbed(used, tmp_path, 3500)
    used.service.finish()
    account = used.service.report()
    assert account is not None
    assert account.shards >= len(rows.stream.splits)
    assert account.fetched_bytes > 0
    assert account.fetch_s > 0
    assert account.shared.built == account.shared.stored + account.shared.stored_by_others >= len(rows.stream.splits)
    with sharing(place, "second"):
        assert undisturbed(used, tmp_path / "next", 3500) == found
        assert shared_counts().fetched >= len(rows.stream.splits)
        assert shared_counts().built == 0


def shared_counts() -> Counts:
    """Of the courier on this machine."""
    courier = shared_here()
    assert courier is not None
    counts = courier.finish(frozenset())
    assert counts is not None
    return counts


def account_of(used: Setting) -> Any:
    account = used.service.report()
    assert account is not None
    return account


def check_that_workers_made(used: Setting, splits: Sequence[Any]) -> None:
    account = account_of(used)
    assert account.fetched_bytes > 0
    assert account.shards >= len(splits) - 1


def test_rows_of_a_table_come_from_the_service_though_a_worker_is_killed(
    setting: Callable[..., Setting], store: Store, tmp_path: Path
) -> None:
    used, config = setting(min_workers=2), config_of_task(rank_task())
    write_clicks(store.s3.root / store.s3.bucket / "days" / "0.parquet", rows=6_000)
    uri = f"s3://{store.s3.bucket}/days"
    with small_windows(split_bytes=24 << 10):
        alone = open_table_stream(uri, config, seed=1, workers=0, cache_dir=tmp_path / "other")
        table = open_table_stream(uri, config, seed=1, service=used.folder, cache_dir=used.cache)
    table.stream = replace(table.stream, leave_s=30.0)
    table._leave_s = 30.0
    for start in range(0, 9_000, 500):
        made, wanted = (each.batch(range(start, start + 500)) for each in (table, alone))
        assert all(torch.equal(made[name], wanted[name]) for name in wanted)
        if start == 1_500:
            os.kill(account_of(used).pids[0], signal.SIGKILL)
    check_that_workers_made(used, table.stream.splits)


def test_rows_of_a_program_come_from_the_service_though_a_worker_is_killed(setting: Callable[..., Setting], tmp_path: Path) -> None:
    used = setting(min_workers=2)
    spec = TrainData.model_validate({"source": used.data["source"], "streaming": True, "validationFraction": 0.01})
    alone = prepare_rows(spec.model_copy(update={"workers": 0}), seed=1, cache_dir=tmp_path / "other").train
    rows: Any = prepare_rows(spec, seed=1, cache_dir=used.cache, service=used.folder).train
    rows.stream = replace(rows.stream, leave_s=30.0)
    for position in range(4_000):
        assert rows[position] == alone[position]
        if position == 500:
            os.kill(account_of(used).pids[0], signal.SIGKILL)
    check_that_workers_made(used, rows.stream.splits)


@pytest.mark.parametrize("kills", [8, pytest.param(100, marks=pytest.mark.long)])
def test_no_row_is_lost_or_doubled_whatever_is_killed(setting: Callable[..., Setting], store: Store, tmp_path: Path, kills: int) -> None:
    """Workers, the master and the client (the rank with its fetcher) at random, and the store goes away and comes back."""
    used, chance = setting(min_workers=2), random.Random(4)
    wanted = undisturbed(used, tmp_path, 3000)
    rows = used.rows(leave_s=2.0)
    done, found, epoch = 0, [], 0
    while done < kills or len(found) < 3000:
        if done < kills and chance.random() < (kills - done + 3) / 3000 * 2:
            kind = chance.choice(["worker", "worker", "master", "client", "store"])
            if kind == "worker":
                account = used.service.report()
                for pid in account.pids[:1] if account is not None else ():
                    with suppress(ProcessLookupError):  # killed before, and not replaced yet
                        os.kill(pid, signal.SIGKILL)
            elif kind == "master":
                ray.kill(used.service.master, no_restart=False)
            elif kind == "store":
                store.away(chance.uniform(0.2, 2.0))
            else:
                store.settle()  # a start lists the data, and tells at once that a store is not there: the job's retries are for that
                rows_before = rows
                used.fetch()
                rows = used.rows(leave_s=2.0)
                rows.place(rows_before.cursor(len(found) % 3000))
            done += 1
        if len(found) == 3000:
            assert found == wanted, f"epoch {epoch}"
            found, epoch = [], epoch + 1
            for path in used.cache.glob("shards/*.shard"):
                path.unlink()
            store.settle()
            rows = used.rows(leave_s=2.0)
        found.append(tuple(rows[len(found)]["input_ids"]))
    assert found == wanted


def test_a_worker_that_hangs_is_replaced(setting: Callable[..., Setting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_master, "_SLOWEST_S", 2.0)  # of this process: the master below runs here
    made = ray.remote(num_cpus=0)(DataWorker)
    master = ingest_master.IngestMaster(DataService(min_workers=1, max_workers=1), lambda: made.remote(str(tmp_path / "worker")))
    stream, key = setting().rows().stream, "stream"
    assert master.want("here", key, [0], 0.0) is None
    master.open_stream(key, dumps(stream))
    deadline = time.monotonic() + 60
    while not (pids := master.report().pids):
        master.want("here", key, [], 0.0)
        assert time.monotonic() < deadline
    os.kill(pids[0], signal.SIGSTOP)
    while not (found := master.want("here", key, [0], 0.0)):
        time.sleep(0.05)
        assert time.monotonic() < deadline
    problem, shard = found[0]
    assert problem == ""
    assert ray.get(shard).endswith(b"tuneyard-shard-1")
    assert 1 <= master.report().replaced <= 3
    assert master.report().leases_lost == 0


def test_there_are_as_many_workers_as_the_ranks_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_master, "_SCALE_EVERY_S", 0.0)
    monkeypatch.setattr(ingest_master, "_IDLE_S", 0.2)
    made: list[Any] = []

    def worker() -> Any:
        made.append(ray.remote(num_cpus=0)(Slow).remote())
        return made[-1]

    master = ingest_master.IngestMaster(DataService(min_workers=1, max_workers=3), worker)
    master.open_stream("s", b"")
    deadline, waited = time.monotonic() + 120, 0.0
    while master.report().workers < 3:
        waited += 0.02
        master.want("here", "s", list(range(250)), waited)
        time.sleep(0.02)
        assert time.monotonic() < deadline
    while master.report().workers > 1:
        master.want("here", "s", [], waited)
        time.sleep(0.02)
        assert time.monotonic() < deadline
    assert master.report().most_workers == 3


class Slow:
    """A worker that takes a while and answers nothing."""

    def ready(self) -> int:
        return os.getpid()

    def build(self, _key: str, _blob: bytes, _number: int) -> tuple[Built, bytes]:
        time.sleep(0.1)
        return Built("", Counts()), b""
