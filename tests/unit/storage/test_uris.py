from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.storage import absolute, is_local, join, local_path, open_store
from tuneyard.storage.uris import clean, split_bucket

NAMES = st.text("abcXYZ0189._-", min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize(
    ("uri", "local"),
    [("out", True), ("/data/x", True), ("file:///data/x", True), ("s3://b/x", False), ("webhdfs://nn:9870/x", False), ("hf://a/b", False)],
)
def test_local_and_remote_are_told_apart(uri: str, local: bool) -> None:
    assert is_local(uri) is local


def test_file_uris_become_paths() -> None:
    assert local_path("file:///data/my%20model") == Path("/data/my model")
    assert local_path("~/x") == Path(os.environ["HOME"]) / "x"
    with pytest.raises(BadInput, match="machine 'data'"):
        local_path("file://data/x")


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        (("s3://b/x/", "/y/", "z.json"), "s3://b/x/y/z.json"),
        (("/", "tmp"), "/tmp"),
        (("", "x"), "x"),
        (("out", ""), "out"),
    ],
)
def test_join(parts: tuple[str, ...], joined: str) -> None:
    assert join(*parts) == joined


def test_relative_references_start_at_their_base() -> None:
    assert absolute("data/a.jsonl", "/jobs") == "/jobs/data/a.jsonl"
    assert absolute("data/a.jsonl", "s3://b/jobs") == "s3://b/jobs/data/a.jsonl"
    assert absolute("/data/a.jsonl", "/jobs") == "/data/a.jsonl"
    assert absolute("s3://b/a", "/jobs") == "s3://b/a"


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_clean_paths_stay_as_they_are(parts: list[str]) -> None:
    assert clean("/".join(parts)) == "/".join(parts)
    assert clean("/./" + "//".join(parts) + "/") == "/".join(parts)


@given(st.lists(NAMES, max_size=3), st.lists(NAMES, max_size=3))
def test_no_path_leaves_its_store(before: list[str], after: list[str]) -> None:
    with pytest.raises(BadInput, match="leaves its folder"):
        clean("/".join([*before, "..", *after]))


def test_buckets() -> None:
    assert split_bucket("s3://models/a/b/") == ("models", "a/b")
    assert split_bucket("gs://models") == ("models", "")
    with pytest.raises(BadInput, match="names no bucket"):
        split_bucket("s3:///a")


def test_credentials_in_a_uri_are_refused_without_repeating_them() -> None:
    with pytest.raises(BadInput) as raised:
        open_store("s3://AKIA123:topsecret@models/x")
    assert "topsecret" not in str(raised.value)


def test_unknown_schemes_are_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="ftp:// is not a known kind of storage") as raised:
        open_store("ftp://server/x")
    assert "s3://" in raised.value.next_step
