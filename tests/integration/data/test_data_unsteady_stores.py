"""S3 that throttles, is away for a while, or changes under a reader; tables and many small objects on it. The server is a real one."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.installed import S3, make_s3

from tuneyard.api import BadInput, StorageError
from tuneyard.data import access, inspect, inspection, opening
from tuneyard.data.access import Bucket
from tuneyard.data.records import Record, read_records
from tuneyard.data.sources import locate
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.splits import splits_of

BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
ROWS = 30_000


def content(rows: int = ROWS) -> bytes:
    return "".join(json.dumps({"text": f"row {number} " + "x" * 80}) + "\n" for number in range(rows)).encode()


def put(name: str, body: bytes) -> None:
    """Through the server, which then knows an ETag."""
    obstore.put(Bucket("s3", "tests").store, f"data/{name}", body)


def rows_of(uri: str) -> list[dict[str, Any]]:
    return [row.values for row in read_records(locate(uri).files) if isinstance(row, Record)]


class Door(ThreadingHTTPServer):
    """In front of an S3 server. `busy`: whether a request, by its number, is answered with 503."""

    daemon_threads = True

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _Through)
        self.behind, self.requests = behind, 0
        self.busy: Callable[[int], bool] = lambda _number: False


class _Through(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Door

    def do_GET(self) -> None:
        self.server.requests += 1
        if self.server.busy(self.server.requests):
            self.send_response(503)
            self.send_header("Content-Length", str(len(BUSY)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(BUSY)
            return
        with_server = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        with_server.request(self.command, self.path, headers=dict(self.headers.items()))
        answer = with_server.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "server", "date"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def door(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    found = Door(s3.port)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{found.server_port}")
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuneyard.data.file_types.REMOTE_BLOCK_BYTES", 256 << 10)


def test_a_store_that_throttles_is_asked_again(s3: S3, door: Door) -> None:
    """Every answer is 503 but each eighth: more than the client of the store tries by itself."""
    (s3.root / s3.bucket / "data" / "busy").mkdir(parents=True, exist_ok=True)
    (s3.root / s3.bucket / "data" / "busy" / "a.jsonl").write_bytes(content(3_000))
    door.busy = lambda number: number % 8 != 0
    assert len(rows_of("s3://tests/data/busy")) == 3_000
    assert door.requests >= 16


def test_a_store_that_never_stops_throttling_is_told_with_its_own_words(s3: S3, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    (s3.root / s3.bucket / "data").mkdir(parents=True, exist_ok=True)
    (s3.root / s3.bucket / "data" / "never.jsonl").write_bytes(content(10))
    located = locate("s3://tests/data/never.jsonl")
    monkeypatch.setattr(opening, "READ_RETRY_S", 2.0)
    door.busy = lambda _number: True
    with pytest.raises(StorageError, match=r"s3://tests/data/never.jsonl: could not be read: .*503 Service Unavailable"):
        list(read_records(located.files))


@contextmanager
def away_for(server: S3, seconds: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A server of one's own, and what takes it away for some seconds."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    running = server.started()
    running.__enter__()
    state = [running]
    threads: list[threading.Thread] = []

    def come_back() -> None:
        time.sleep(seconds)
        state[0] = server.started()
        state[0].__enter__()

    def go() -> None:
        state[0].__exit__(None, None, None)
        threads.append(threading.Thread(target=come_back))
        threads[0].start()

    yield go
    for thread in threads:
        thread.join()
    state[0].__exit__(None, None, None)


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_store_that_is_away_while_a_file_is_read_is_waited_for(
    kind: str, seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_s3(tmp_path)
    folder = server.root / server.bucket / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(content())
    if kind == "parquet":
        (folder / "a.jsonl").unlink()
        pq.write_table(pa.table({"text": [f"row {number}" for number in range(ROWS)]}), folder / "a.parquet", row_group_size=1_000)
    with away_for(server, seconds, monkeypatch) as go:
        rows = read_records(locate("s3://tests/data").files)
        first = [next(rows) for _ in range(100)]
        go()
        every = [row.values["text"].split()[1] for row in (*first, *rows) if isinstance(row, Record)]
    assert every == [str(number) for number in range(ROWS)], "no row lost, none twice"


@pytest.mark.parametrize("how", ["in place", "through the server"])
def test_an_object_that_changes_while_it_is_read_is_refused_by_name(how: str, s3: S3) -> None:
    """As large as before: by its ETag, or, where the store has none, by its time."""
    folder = s3.root / s3.bucket / "data" / "changing"
    folder.mkdir(parents=True, exist_ok=True)
    body = content()
    if how == "in place":
        (folder / "a.jsonl").write_bytes(body)
    else:
        put("changing/a.jsonl", body)
    rows = read_records(locate("s3://tests/data/changing").files)
    next(rows)
    time.sleep(1.1)
    if how == "in place":
        (folder / "a.jsonl").write_bytes(body.swapcase())
    else:
        put("changing/a.jsonl", body.swapcase())
    with pytest.raises(BadInput, match=r"s3://tests/data/changing/a\.jsonl: changed while it was being used \(still [\d,]+ bytes"):
        list(rows)
    (folder / "a.jsonl").unlink()


def test_an_object_that_is_gone_meanwhile_is_named(s3: S3) -> None:
    put("gone/a.jsonl", content())
    put("gone/b.jsonl", content(10))
    rows = read_records(locate("s3://tests/data/gone").files)
    next(rows)
    (s3.root / s3.bucket / "data" / "gone" / "a.jsonl").unlink()
    with pytest.raises(BadInput, match=r"s3://tests/data/gone/a\.jsonl: was deleted while it was being used"):
        list(rows)


def test_many_small_objects_are_fetched_side_by_side(s3: S3, door: Door) -> None:
    """One request each, and one for the list. Two more look at the first file of an ending, which may hold an array. Types that names do
    not tell need one more.
    """
    folder = s3.root / s3.bucket / "data" / "many-small"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(300):
        (folder / f"{number:03}.jsonl").write_text(json.dumps({"text": f"row {number}"}) + "\n")
    assert [row["text"] for row in rows_of("s3://tests/data/many-small")] == [f"row {number}" for number in range(300)]
    assert door.requests == 303


def test_a_sample_of_a_large_object_takes_no_more_than_its_blocks(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "SAMPLED_FROM_BYTES", 1 << 20)
    monkeypatch.setattr("tuneyard.data.sampling.BLOCK_BYTES", 1 << 10)
    folder = s3.root / s3.bucket / "data" / "large"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.jsonl").write_bytes(content(100_000))
    found = inspect("s3://tests/data/large")
    assert found.sampled is not None
    assert found.sampled.rows == pytest.approx(100_000, rel=0.05)
    assert found.sampled.read_bytes < 1 << 20


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.csv", "stream.arrow", "file.arrow"])
def test_pieces_of_an_object_that_is_read_from_its_front(name: str, s3: S3, door: Door) -> None:
    folder = s3.root / s3.bucket / "data" / "forward"
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"text": [f"row {number} " + "x" * 80 for number in range(ROWS)]})
    if name.endswith(".arrow"):
        make = pa.ipc.new_stream if name.startswith("stream") else pa.ipc.new_file
        with pa.OSFile(str(folder / name), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    elif name == "a.csv":
        (folder / name).write_text("text\n" + "".join(f'"{text}"\n' for text in table["text"].to_pylist()))
    else:
        body = content()
        (folder / name).write_bytes(gzip.compress(body) if name.endswith("gz") else bytes(pa.Codec("zstd").compress(body)))
    files = locate(f"s3://tests/data/forward/{name}").files
    door.busy = lambda number: number % 3 == 0
    splits = splits_of(files, 64 << 10)
    assert len(splits) > 40
    rows = [row.values["text"] for split in splits for row in SplitData(files, split).records() if isinstance(row, Record)]
    assert rows == table["text"].to_pylist()
    assert door.requests < 30  # a third of them refused


def test_patterns_and_mixed_files_in_a_bucket(s3: S3) -> None:
    folder = s3.root / s3.bucket / "data" / "mixed"
    (folder / "deep").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": ["one"]}), folder / "a.parquet")
    (folder / "b.jsonl").write_text('{"text": "two"}\n')
    (folder / "deep" / "c.dat").write_text('{"text": "three"}\n')
    (folder / "README.txt").write_text("about\n")
    assert rows_of("s3://tests/data/mixed") == [{"text": "one"}, {"text": "two"}]
    assert rows_of("s3://tests/data/mixed/{a,b}.*") == [{"text": "one"}, {"text": "two"}]
    assert rows_of("s3://tests/data/mixed/**/c.dat") == [{"text": "three"}]


@pytest.mark.usefixtures("s3")
def test_tables_in_a_bucket(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    rows = pa.Table.from_pylist([{"text": text} for text in ("one", "two", "three")])
    options = {"allow_http": "true", "aws_conditional_put": "etag"}
    deltalake.write_deltalake("s3://tests/data/delta", rows, storage_options=options)
    deltalake.DeltaTable("s3://tests/data/delta", storage_options=options).delete("text = 'two'")
    located = locate("s3://tests/data/delta")
    assert rows_of("s3://tests/data/delta") == [{"text": "one"}, {"text": "three"}]
    assert located.files[0].identity().endswith(" version 1 ()")
    with pytest.raises(BadInput, match=r"s3://tests/data/delta is a table"):
        locate("s3://tests/data/delta/*.parquet")

    (tmp_path / "warehouse").mkdir()
    catalog = sql.SqlCatalog("tests", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=rows.schema)
    table.append(rows)
    table.delete("text = 'two'")
    here = Path(table.location().removeprefix("file://"))
    for file in (path for path in here.rglob("*") if path.is_file()):
        put(f"iceberg/{file.relative_to(here)}", file.read_bytes())
    assert sorted(row["text"] for row in rows_of("s3://tests/data/iceberg")) == ["one", "three"], "a table that was moved"
    newest = max((here / "metadata").glob("*.metadata.json")).name
    assert len(rows_of(f"s3://tests/data/iceberg/metadata/{newest}")) == 2
    with pytest.raises(BadInput, match=r"s3://tests/data/iceberg is a table") as refused:
        locate("s3://tests/data/iceberg/**/*.json")
    assert "point data.source at the table itself" in refused.value.next_step


@pytest.mark.usefixtures("s3")
def test_the_store_is_opened_anew_where_the_environment_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Bucket("s3", "tests").store
    assert Bucket("s3", "tests").store is before
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert Bucket("s3", "tests").store is not before
    assert access.SCHEMES["s3a"] == "s3"
