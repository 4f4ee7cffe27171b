"""Logs that are too long, and storage that is broken or slow."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.cluster.logs_api.replica import LOG, Say, Served, cluster, make_job, placed_on, raw
from tests.servers.installed import free_port
from tests.testcluster.waiting import wait_for

from tuneyard.cluster.log_api import LARGEST_ANSWER
from tuneyard.tracking.task_logs import Chunk


def test_megabytes_come_in_bounded_parts(served: Served, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    store = served.store(make_job(served, "long"), monkeypatch)
    lines = [f"{number:07} {'x' * 992}\n" for number in range(3500)]
    for number, start in enumerate(range(0, len(lines), 500), 1):
        store.create(Chunk("train", 2, "rank-0", number).path, "".join(lines[start : start + 500]).encode())
    answer = raw(served, "long")
    assert answer["more"]
    assert sum(len(part["text"]) for part in answer["parts"]) <= LARGEST_ANSWER
    assert say("logs", "long", "--rank", 0)[1] == "".join(lines)
    assert say("logs", "long", "--rank", 0, "--tail", 3)[1] == "".join(lines[-3:])
    assert not raw(served, "long", cursor="rank-0:7")["more"]


def test_a_file_that_no_rank_of_ours_has_written_is_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    store = served.store(make_job(served, "huge"), monkeypatch)
    store.put(Chunk("train", 2, "rank-0", 1).path, b"\x1b[2J" + b"y" * (40 << 20))
    (part,) = raw(served, "huge")["parts"]
    assert len(part["text"]) < LARGEST_ANSWER + 100
    assert part["text"].endswith("[41,943,044 bytes: the rest of this file is left out]\n")
    assert raw(served, "huge", cursor="rank-0:1")["parts"] == []
    assert raw(served, "huge", format="text").startswith("\\u001b[2Jyyy")


def test_storage_that_is_down_is_named(served: Served, say: Say) -> None:
    down = f"http://127.0.0.1:{free_port()}"
    served.hub.apply(cluster("down", down))
    make_job(served, "on-down", attempts=placed_on("down"))
    code, out, err = say("logs", "on-down")
    assert (code, out) == (1, "")
    assert err.startswith("error: the hub cannot read the log of default/on-down: cannot list s3://tests/on-down")
    assert "next: try again in a minute" in err
    assert served.healthy()


def test_a_storage_that_hangs_takes_nothing_from_others(served: Served, two_ranks: str, say: Say) -> None:
    """It accepts, and never answers: so many questions wait for it, the rest are asked to come again, and all else goes on."""
    release = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def handle(self) -> None:
            release.wait()

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        served.hub.apply(cluster("slow", f"http://127.0.0.1:{server.server_port}"))
        make_job(served, "on-slow", attempts=placed_on("slow"))
        api = replace(served.hub.api, timeout_s=120)
        codes: list[int] = []

        def ask() -> None:
            server_address, pool = api._connection
            codes.append(pool.request("GET", server_address + LOG.format("default", "on-slow")).status)

        with ThreadPoolExecutor(40) as readers:
            asked = [readers.submit(ask) for _ in range(40)]
            wait_for("those who are too many", lambda: codes.count(429) >= 28, limit_s=120)
            assert served.healthy()
            assert say("logs", two_ranks, "--rank", 0)[1] == "hello from rank-0\nmore from rank-0\n"
            for each in asked:
                each.result()
        release.set()
        server.shutdown()
        thread.join()
    assert sorted(set(codes)) == [429, 503]
