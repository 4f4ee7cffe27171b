"""Logs on their way from a machine's disk to the job's output, and back out of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tuneyard.api import EnvVar
from tuneyard.runtime.attempt.log_shipper import LogShipper, secrets_here, tail_of
from tuneyard.storage import open_store
from tuneyard.tracking import LogReader

SECRET = "hf_never-write-me-down"


def reader(folder: Path) -> LogReader:
    return LogReader(open_store(str(folder / "out")), "tune", 2)


def shipper(folder: Path) -> LogShipper:
    return LogShipper(str(folder / "out"), "tune", 2, [SECRET], pause_s=0.05)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_lines_come_as_they_are_written_and_the_rest_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    logs = shipper(tmp_path)
    logs.add("rank-0", log)  # before the rank has written anything
    log.write_text("one\ntwo\nthr")
    wait_until(lambda: reader(tmp_path).read("rank-0").text == "one\ntwo\n")
    with log.open("a") as file:
        file.write("ee\nlast words without an end")
    wait_until(lambda: "three\n" in reader(tmp_path).read("rank-0").text)
    assert logs.close(30)
    assert reader(tmp_path).read("rank-0").text == "one\ntwo\nthree\nlast words without an end"


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text("one\n")
    logs = shipper(tmp_path)
    logs.add("rank-0", log)
    wait_until(lambda: reader(tmp_path).sources() == ["rank-0"])
    first = reader(tmp_path).read("rank-0")
    with log.open("a") as file:
        file.write("two\n")
    logs.close(30)
    second = reader(tmp_path).read("rank-0", first.cursor)
    assert (first.text, second.text) == ("one\n", "two\n")
    assert reader(tmp_path).read("rank-0", second.cursor) == type(second)("", second.cursor)


def test_secrets_stay_behind(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text(f"token {SECRET} in s3://key:pass@bucket\n")
    logs = shipper(tmp_path)
    logs.add("rank-0", log)
    assert SECRET not in logs.tail("rank-0", 5)
    logs.close(30)
    assert reader(tmp_path).read("rank-0").text == "token *** in s3://***@bucket\n"


def test_lines_of_a_secret_with_several_are_secrets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = EnvVar.model_validate({"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}})
    monkeypatch.setenv("KEY", "-----BEGIN\nabcdefgh\n}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-cluster")
    monkeypatch.setenv("TUNEYARD_SECRETS", "AWS_SECRET_ACCESS_KEY,KEY,NOT_SET")
    found = secrets_here([variable, EnvVar(name="PATH", value="x")])
    assert found == ["-----BEGIN\nabcdefgh\n}", "of-the-cluster", "-----BEGIN", "abcdefgh"]


def test_another_machine_goes_on_with_the_same_source(tmp_path: Path) -> None:
    for text in ("first machine\n", "second machine\n"):
        (tmp_path / "rank-0.log").write_text(text)
        logs = shipper(tmp_path)
        logs.add("rank-0", tmp_path / "rank-0.log")
        logs.close(30)
    assert reader(tmp_path).read("rank-0").text == "first machine\nsecond machine\n"


def test_storage_that_is_away_makes_logs_late_only(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder of the output should be")
    (tmp_path / "rank-0.log").write_text("kept\n")
    logs = shipper(tmp_path)
    logs.add("rank-0", tmp_path / "rank-0.log")
    time.sleep(0.2)
    assert logs.tail("rank-0", 5) == "kept"
    (tmp_path / "out").unlink()
    assert logs.close(30)
    assert reader(tmp_path).read("rank-0").text == "kept\n"


def test_a_log_larger_than_a_chunk(tmp_path: Path) -> None:
    text = "".join(f"line {number} {'x' * 90}\n" for number in range(25_000))
    (tmp_path / "rank-0.log").write_text(text)
    logs = shipper(tmp_path)
    logs.add("rank-0", tmp_path / "rank-0.log")
    assert logs.close(60)
    assert reader(tmp_path).read("rank-0").text == text
    assert reader(tmp_path).tail("rank-0", 2).text == "".join(text.splitlines(keepends=True)[-2:])
    assert tail_of(tmp_path / "rank-0.log", 1).startswith("line 24999")
