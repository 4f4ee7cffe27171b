"""Shards that several threads or several users want: work is never disturbed, and what is of no use to this user is told."""

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import CHAT_TEMPLATE, sentences, tokenizer_of

from tuneyard.api import StorageError, TrainData
from tuneyard.data import prepare
from tuneyard.data.stream import splits as splits_module
from tuneyard.data.stream import windows as windows_module


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_of(["<|user|>", "<|assistant|>", "<|system|>"], eos="<|end|>", chat_template=CHAT_TEMPLATE)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One that every user may enter."""
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 2048)
    monkeypatch.setattr(splits_module, "_ROWS_OF_A_SHARD", 0)
    monkeypatch.setattr(windows_module, "_FIRST_BYTES", 2048)
    path = Path(f"/tmp/tuneyard-shared-{os.getpid()}")
    path.mkdir(mode=0o755)
    (path / "texts.jsonl").write_text("".join(json.dumps({"text": f"{i} {text}"}) + "\n" for i, text in enumerate(sentences(400))))
    yield path
    shutil.rmtree(path)


def stream_of(folder: Path, tokenizer: Any) -> Any:
    spec = TrainData.model_validate({"source": str(folder / "texts.jsonl"), "streaming": True, "workers": 0, "maxLength": 64})
    return prepare(spec, tokenizer, objective="clm", seed=3, cache_dir=folder)


def test_threads_that_build_the_same_shards_do_not_disturb_each_other(folder: Path, tokenizer: Any) -> None:
    streams = [stream_of(folder, tokenizer) for _ in range(6)]

    def read(prepared: Any) -> list[tuple[int, ...]]:
        return [tuple(prepared.train[position]["input_ids"]) for position in range(400)]

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(read, streams))
    assert all(rows == found[0] for rows in found)
    assert len(set(found[0])) == 400
    assert not list((folder / "shards").glob(".*.shard.*"))


@pytest.mark.parametrize(("mode", "kept", "said"), [(0, None, "cannot be read: "), (0o644, -20, "cannot be removed, and is damaged: ")])
def test_a_shard_of_another_user_that_is_of_no_use_says_what_to_do(
    folder: Path, tokenizer: Any, mode: int, kept: int | None, said: str
) -> None:
    """As another user, where the tests run as root."""
    stream = stream_of(folder, tokenizer).train.stream
    path = stream.build(stream.splits[3])
    path.write_bytes(path.read_bytes()[:kept])
    path.chmod(mode)
    path.parent.chmod(0o555)
    answer, write = os.pipe()
    if os.fork() == 0:
        try:
            if os.geteuid() == 0:
                os.seteuid(65534)
            stream.shard(stream.splits[3])
        except StorageError as error:
            os.write(write, f"{error.cause}; {error.next_step}".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.wait()
    with os.fdopen(answer) as told:
        text = told.read()
    path.parent.chmod(0o755)
    assert text.startswith(f"{path}, a shard of training rows, {said}")
    assert "ask its owner to remove it" in text
