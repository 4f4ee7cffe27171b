"""Databases in trouble under a hub: jobs run as ever, the log says why history waits, and later it has what happened meanwhile."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.clusters.hub_history import (
    Members,
    api_with_nodes,
    failures,
    held,
    history_of,
    lags,
    longest_pause_s,
    one_job,
    told,
    with_history,
    write_quickly,
)
from tests.clusters.hub_in_memory import Scene, running_hub, until
from tests.servers.installed import PostgresServer

from tuneyard.tracking import History
from tuneyard_operators.history import writer
from tuneyard_operators.hub import actions
from tuneyard_operators.metrics import families

AGAIN = "it is tried again, and nothing is lost"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    write_quickly(monkeypatch)


def test_a_database_that_is_away_for_an_hour_holds_up_only_the_last_of_a_deleted_job(
    mortal: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(mortal.url, hold_s=86_400.0), api=api) as stage:
            members = asyncio.create_task(Members(api, fails=0.0).run())
            mortal.kill()
            began = time.monotonic()
            await one_job(stage, "leaf")
            assert time.monotonic() - began < 20, "jobs run as ever"
            await stage.delete("leaf")
            await until(lambda: held(stage), "the deletion waits")
            assert stage.status("leaf")["phase"] == "Succeeded"
            hour_has_passed(stage, monkeypatch)
            await asyncio.to_thread(mortal.start)
            await stage.let_go("leaf")
            members.cancel()
        assert [job.status for job in History.open(mortal.url).jobs()] == ["succeeded"]

    asyncio.run(scene())


def hour_has_passed(stage: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the writer is an hour further: the lag says so, and the deleted job is not let go."""
    history, loop = history_of(stage), asyncio.get_running_loop()
    monkeypatch.setattr(writer, "_now_s", lambda: loop.time() + 3600)
    assert not history.may_vanish(("default", "leaf"), datetime.now(UTC) + timedelta(hours=1))
    assert told(stage, families.HISTORY_LAG) >= 3600


def test_a_database_that_is_gone_for_good_holds_a_namespace_for_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "_RECORD_AGAIN_S", 0.2)
    (tmp_path / "file").write_text("")
    url = f"sqlite:///{tmp_path}/file/none/history.db"

    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url, hold_s=2.0), api=api) as stage:
            members = asyncio.create_task(Members(api, fails=0.0).run())
            await one_job(stage, "leaf")
            await stage.delete("leaf")
            await stage.let_go("leaf")
            members.cancel()
            assert failures(stage, "let go") == 1
            assert failures(stage, "away") >= 1

    asyncio.run(scene())


@pytest.mark.parametrize("lock", ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"])
def test_a_locked_database_delays_no_job(tmp_path: Path, lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuneyard.tracking.history.LOCK_WAIT_S", 1)
    url = f"sqlite:///{tmp_path}/history.db"
    History.open(url).close()

    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url), api=api) as stage:
            members = asyncio.create_task(Members(api, fails=0.0).run())
            other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
            other.execute(lock)
            longest = asyncio.create_task(longest_pause_s())
            await one_job(stage, "leaf")
            assert await longest < 0.5, "the loop of the hub waits for the lock"
            threads = [each for each in threading.enumerate() if each.name == "tuneyard-history"]
            assert len(threads) == 1
            await until(lambda: failures(stage, "away") >= 1, "the writer has met the lock")
            other.execute("ROLLBACK")
            await until(lambda: not lags(stage), "history has it all", 60)
            members.cancel()
        (job,) = History.open(url).jobs()
        assert (job.status, job.attempts) == ("succeeded", 1)

    asyncio.run(scene())


def test_a_full_disk_is_waited_out(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    History.open(url).close()

    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url), api=api) as stage:
            await until(lambda: history_of(stage)._history is not None, "the history is open")
            limit_pages(stage, "max_page_count = 1")  # sets the limit to the present size
            members = asyncio.create_task(Members(api, fails=0.0).run())
            await one_job(stage, "leaf", env=[{"name": f"FILLER_{index}", "value": "x" * 4000} for index in range(20)])
            await until(lambda: failures(stage, "away") >= 1, "the database is full")
            await stage.delete("leaf")
            await until(lambda: held(stage), "the deletion waits")
            limit_pages(stage, "max_page_count = 1000000")
            await stage.let_go("leaf")
            members.cancel()
        assert [job.status for job in History.open(url).jobs()] == ["succeeded"]

    asyncio.run(scene())


def limit_pages(stage: Scene, pragma: str) -> None:
    """A quota of SQLite's own, on each connection of the writer."""
    history = history_of(stage)._history
    assert history is not None
    history._engine.dispose()
    sa.event.listen(history._engine, "connect", lambda connection, _record: connection.execute(f"PRAGMA {pragma}"))


@pytest.fixture
def small(mortal: PostgresServer) -> Iterator[tuple[str, Path]]:
    """A database on a file system of 24 MB, and that file system's folder."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    folder = mortal.folder / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=1777", "tmpfs", str(folder)], check=True)
    try:
        space = folder / "space"
        space.mkdir()
        space.chmod(0o700)
        os.chown(space, mortal.folder.stat().st_uid, -1)
        engine = sa.create_engine(mortal.url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE TABLESPACE small LOCATION '{space}'"))
            connection.execute(sa.text("CREATE DATABASE small TABLESPACE small"))
        engine.dispose()
        yield mortal.url.rsplit("/", 1)[0] + "/small", folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_of_a_server_is_waited_out(small: tuple[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    url, folder = small
    History.open(url).close()

    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url), api=api) as stage:
            members = asyncio.create_task(Members(api, fails=0.0).run())
            fill(folder / "filler")
            env = [{"name": f"FILLER_{index}", "value": secrets.token_hex(2000)} for index in range(20)]  # does not compress
            await one_job(stage, "leaf", env=env)
            await stage.delete("leaf")
            await until(lambda: held(stage) and failures(stage, "away") >= 1, "the deletion waits for a database that is full")
            assert f"No space left on device; {AGAIN}" in caplog.text
            (folder / "filler").unlink()
            await stage.let_go("leaf")
            members.cancel()

    asyncio.run(scene())
    (job,) = History.open(url).jobs()
    assert (job.status, job.attempts) == ("succeeded", 1)


def fill(file: Path) -> None:
    """Write until the file system is full."""
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(65536))
        except OSError:
            pass


class Proxy:
    """A TCP proxy to a server: forwards at once, late, or, while `stalled`, not at all."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.delay_s = 0.0
        self._flows = threading.Event()
        self._flows.set()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def stall(self) -> None:
        self._flows.clear()

    def cut(self) -> None:
        """End all connections; new ones are forwarded."""
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._flows.set()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [here, there]
                for source, target in ((here, there), (there, here)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with source, suppress(OSError):
            while data := source.recv(65536):
                time.sleep(self.delay_s)
                self._flows.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


def test_a_slow_server_and_one_that_stops_answering_delay_no_job(postgres: str) -> None:
    History.open(postgres).close()
    server = sa.make_url(postgres)
    assert server.port is not None

    async def scene(proxy: Proxy) -> None:
        url = server.set(port=proxy.port).render_as_string()
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url), api=api) as stage:
            members = asyncio.create_task(Members(api, fails=0.0).run())
            proxy.delay_s = 0.05
            await one_job(stage, "slow")
            await until(lambda: not lags(stage), "a slow database has it all", 60)
            proxy.stall()
            await one_job(stage, "stalled")
            await stage.delete("stalled")
            await until(lambda: held(stage), "the deletion waits")
            assert lags(stage)
            proxy.cut()
            await stage.let_go("stalled")
            members.cancel()

    proxy = Proxy(server.port)
    try:
        asyncio.run(scene(proxy))
    finally:
        proxy.close()
    assert sorted((job.name, job.status, job.attempts) for job in History.open(postgres).jobs()) == [
        ("slow", "succeeded", 1),
        ("stalled", "succeeded", 1),
    ]


def test_another_file_in_the_place_of_a_corrupt_one_has_all_jobs_that_exist(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "history.db"
    url = f"sqlite:///{file}"

    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url), api=api) as stage:
            members = asyncio.create_task(Members(api, fails=0.0).run())
            await one_job(stage, "before")
            await until(lambda: not lags(stage), "history has it all")
            corrupt(file)
            drop_pages(stage)
            await one_job(stage, "leaf")
            await stage.delete("leaf")
            await until(lambda: held(stage) and failures(stage, "away") >= 1, "the deletion waits")
            assert f"; {AGAIN}" in caplog.text
            assert "malformed" in caplog.text or "not a database" in caplog.text
            remove(file)
            await stage.let_go("leaf")
            await until(lambda: not lags(stage), "history has it all, again", 60)
            members.cancel()

    asyncio.run(scene())
    assert sorted((job.name, job.status, job.attempts) for job in History.open(url).jobs()) == [
        ("before", "succeeded", 1),
        ("leaf", "succeeded", 1),
    ]


def test_a_hub_that_starts_over_a_corrupt_file_runs_its_jobs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "history.db"
    url = f"sqlite:///{file}"
    History.open(url).close()
    corrupt(file)

    async def scene() -> None:
        api = await api_with_nodes(2)
        async with running_hub(settings=with_history(url), api=api) as stage:
            members = asyncio.create_task(Members(api, fails=0.0).run())
            await one_job(stage, "leaf")
            await until(lambda: failures(stage, "away") >= 1, "the writer has met the file")
            assert f"cannot open history at {url}: file is not a database; {AGAIN}" in caplog.text
            remove(file)
            await until(lambda: not lags(stage), "history has it all", 60)
            members.cancel()

    asyncio.run(scene())
    assert [(job.name, job.attempts) for job in History.open(url).jobs()] == [("leaf", 1)]


def drop_pages(stage: Scene) -> None:
    """What connections hold in memory, as a larger database would not be: it is read from the file again."""
    history = history_of(stage)._history
    assert history is not None
    history._engine.dispose()


def corrupt(file: Path) -> None:
    """Every page of a SQLite file and of its log becomes garbage, in place: as a broken disk does it."""
    for each in (file, file.with_name(f"{file.name}-wal")):
        if each.exists():
            with each.open("r+b") as out:
                out.write(secrets.token_bytes(each.stat().st_size))


def remove(file: Path) -> None:
    for each in file.parent.glob(f"{file.name}*"):
        each.unlink()
