"""Streams that share shards over a real S3 server and a volume: the next job builds none, and no fault of the tier changes a row."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import CHAT_TEMPLATE, sentences, tokenizer_of
from tests.servers.faults import S3Proxy
from tests.servers.installed import S3

from tuneyard.api import TrainData
from tuneyard.data import prepare, shared_work_of
from tuneyard.data.shared import courier as courier_module
from tuneyard.data.shared.courier import shared_here, sharing
from tuneyard.data.shared.place import SharedShards
from tuneyard.data.stream import splits as splits_module
from tuneyard.data.stream import windows as windows_module
from tuneyard.storage import open_store

ROWS = 600


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 1024)
    monkeypatch.setattr(splits_module, "_ROWS_OF_A_SHARD", 0)
    monkeypatch.setattr(windows_module, "_FIRST_BYTES", 1024)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts") / "texts.jsonl")


@pytest.fixture(params=["s3", "volume"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedShards:
    if request.param == "volume":
        return SharedShards(str(tmp_path / "tier"), "maps")
    return SharedShards(f"s3://{request.getfixturevalue('s3').bucket}/{tmp_path.name}", "maps")


def write_texts(path: Path) -> Path:
    path.write_text("".join(json.dumps({"text": f"{number} {text}"}) + "\n" for number, text in enumerate(sentences(ROWS))))
    return path


def read(source: Path, cache: Path, place: SharedShards | None, *, workers: int = 0, seed: int = 3) -> tuple[list[Any], dict[str, Any]]:
    """The rows of an epoch and a half, and what became of shared shards."""
    tokenizer = tokenizer_of([], eos="<|end|>", chat_template=CHAT_TEMPLATE)
    spec = TrainData.model_validate({"source": str(source), "streaming": True, "workers": workers, "maxLength": 64})
    with sharing(place, f"{cache} {seed}"):
        prepared = prepare(spec, tokenizer, objective="clm", seed=seed, cache_dir=cache)
        rows = [tuple(prepared.train[position]["input_ids"]) for position in range(ROWS * 3 // 2)]
        return rows, shared_work_of(prepared).get("shared_shards", {})


def test_the_next_job_builds_no_shard_and_has_the_same_rows(texts: Path, place: SharedShards, tmp_path: Path) -> None:
    """The first one's shards are built by forks beside the rank. The second job has another seed, a copy of the file, and one worker."""
    alone, none = read(texts, tmp_path / "alone", None)
    first, counts = read(texts, tmp_path / "first", place, workers=2)
    assert none == {}
    assert first == alone
    assert counts["built"] == counts["stored"] > 20
    assert (counts["fetched"], counts["problem"]) == (0, "")
    assert len(open_store(place.uri).list(place.team)) == counts["stored"]
    again, second = read(texts, tmp_path / "second", place, workers=1)
    assert again == first
    assert (second["built"], second["fetched"]) == (0, counts["built"])
    assert second["fetched_bytes"] == counts["stored_bytes"]
    third, moved = read(write_texts(tmp_path / "copy.jsonl"), tmp_path / "third", place, seed=4)
    assert sorted(third[:ROWS]) == sorted(first[:ROWS])
    assert (moved["built"], moved["fetched"]) == (0, counts["built"])
    _, here = read(texts, tmp_path / "second", place)
    assert (here["built"], here["fetched"], here["found"]) == (0, 0, len(set(_splits(texts))))


def _splits(texts: Path) -> Iterator[int]:
    tokenizer = tokenizer_of([], eos="<|end|>", chat_template=CHAT_TEMPLATE)
    spec = TrainData.model_validate({"source": str(texts), "streaming": True, "workers": 0, "maxLength": 64})
    prepared = prepare(spec, tokenizer, objective="clm", seed=3, cache_dir=texts.parent / "counted")
    yield from (split.number for split in prepared.train.stream.splits)


def test_two_jobs_at_once_store_each_shard_once(texts: Path, place: SharedShards, tmp_path: Path) -> None:
    def run(name: str) -> tuple[list[Any], dict[str, Any]]:
        heard, answer = os.pipe()
        if os.fork() == 0:
            try:
                with os.fdopen(answer, "wb") as told:
                    pickle.dump(read(texts, tmp_path / name, place), told)
            finally:
                os._exit(0)
        os.close(answer)
        with os.fdopen(heard, "rb") as told:
            found: tuple[list[Any], dict[str, Any]] = pickle.load(told)
        return found

    alone, _ = read(texts, tmp_path / "alone", None)
    with ThreadPoolExecutor(2) as threads:
        (one, first), (other, second) = threads.map(run, ["first", "second"])
    assert one == other == alone
    kept = open_store(place.uri).list(place.team)
    assert first["stored"] + second["stored"] == len(kept)
    assert not first["problem"] + second["problem"]


def test_shards_in_the_tier_that_are_damaged_are_built_anew_and_said_once(texts: Path, tmp_path: Path) -> None:
    place = SharedShards(str(tmp_path / "tier"), "maps")
    rows, first = read(texts, tmp_path / "first", place)
    damaged = sorted((tmp_path / "tier").rglob("*.shard"))[::2]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-50])
    again, second = read(texts, tmp_path / "second", place)
    assert again == rows
    assert second["refused"] == second["built"] == second["stored"] == len(damaged)
    assert second["fetched"] == first["built"] - len(damaged)
    assert second["sentence"].count("instead of") == 1
    healed, third = read(texts, tmp_path / "third", place)
    assert healed == rows
    assert (third["built"], third["refused"], third["sentence"]) == (0, 0, "")


def test_a_store_that_is_away_changes_no_row(texts: Path, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = S3Proxy(s3.port)
    with proxy.listening() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        proxy.away_for(3600)
        rows, counts = read(texts, tmp_path / "cache", SharedShards(f"s3://{s3.bucket}/{tmp_path.name}", "maps"))
    alone, _ = read(texts, tmp_path / "alone", None)
    assert rows == alone
    assert (counts["fetched"], counts["stored"]) == (0, 0)
    assert counts["slow"] >= 1
    assert counts["passed_over"] + counts["slow"] + counts["failed"] == counts["built"]
    assert "did not answer" in counts["sentence"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_courier_that_is_killed_or_hangs_changes_no_row(
    number: signal.Signals, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = SharedShards(str(tmp_path / "tier"), "maps")
    monkeypatch.setattr(courier_module, "_ANSWER_S", 0.5)
    alone, _ = read(texts, tmp_path / "alone", None)
    tokenizer = tokenizer_of([], eos="<|end|>", chat_template=CHAT_TEMPLATE)
    spec = TrainData.model_validate({"source": str(texts), "streaming": True, "workers": 0, "maxLength": 64})
    with sharing(place, str(number)):
        prepared = prepare(spec, tokenizer, objective="clm", seed=3, cache_dir=tmp_path / "cache")
        found = [tuple(prepared.train[position]["input_ids"]) for position in range(10)]
        assert shared_here() is not None
        assert courier_module._here is not None
        assert courier_module._here._process is not None
        courier_module._here._process.send_signal(number)
        found += [tuple(prepared.train[position]["input_ids"]) for position in range(10, len(alone))]
        told = shared_work_of(prepared)["shared_shards"]
    assert found == alone
    assert "has ended" in told["problem"] or "does not answer" in told["problem"]
